//! Where a listing goes on. To clients a cursor is opaque; it is the key of the last row they saw, so rows inserted or removed in between
//! neither repeat nor hide others.

use data_encoding::BASE64URL_NOPAD;

use super::problem::{ApiError, Kind};

/// No key in a listing is longer.
const CURSOR_CHARS_MAX: usize = 512;

/// Which listing a cursor belongs to. A cursor of one listing is refused by the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Listing {
    /// `GET /v1/jobs`
    Jobs = 1,
    /// `GET /v1/executions`
    Executions = 2,
    /// `GET /v1/jobs/{id}/executions`
    JobExecutions = 3,
    /// `GET /v1/tasks`
    Tasks = 4,
    /// `GET /v1/dead`
    Dead = 5,
    /// `GET /v1/jobs/{id}/ledger`
    Ledger = 6,
}

/// The cursor that goes on behind `position`.
pub fn encode(listing: Listing, position: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(position.len() + 2);
    bytes.push(listing as u8);
    bytes.extend_from_slice(position);
    // One byte against cut or retyped cursors; a forged one can only name a place in the caller's own listing.
    bytes.push(check_byte(&bytes));
    BASE64URL_NOPAD.encode(&bytes)
}

/// The position that a cursor names.
pub fn decode(listing: Listing, text: &str) -> Result<Vec<u8>, ApiError> {
    let refuse = || {
        ApiError::new(Kind::BadCursor, "this cursor was not given out by this listing").field("cursor").hint(
            "pass `next_cursor` of the page before, unchanged, with the same route; or leave it out to start anew",
        )
    };
    if text.len() > CURSOR_CHARS_MAX {
        return Err(refuse());
    }
    let mut bytes = BASE64URL_NOPAD.decode(text.as_bytes()).map_err(|_| refuse())?;
    let check = bytes.pop().ok_or_else(refuse)?;
    if bytes.first() != Some(&(listing as u8)) || check != check_byte(&bytes) {
        return Err(refuse());
    }
    bytes.remove(0);
    Ok(bytes)
}

fn check_byte(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0x5a_u8, |sum, byte| sum.rotate_left(3) ^ byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_as_it_went_out_and_only_to_its_listing() {
        let text = encode(Listing::Jobs, b"\x00some key\xff");
        assert_eq!(decode(Listing::Jobs, &text).unwrap(), b"\x00some key\xff");
        assert!(decode(Listing::Executions, &text).is_err());
    }

    #[test]
    fn what_was_not_given_out_is_refused() {
        let text = encode(Listing::Jobs, b"0123456789abcdef");
        let cut = &text[..text.len() - 2];
        for wrong in ["", "x", "null", "AAAA", "§", cut, &text.to_uppercase(), &format!("{text}A"), &"A".repeat(9999)]
        {
            assert_eq!(decode(Listing::Jobs, wrong).unwrap_err().kind(), Kind::BadCursor, "{wrong}");
        }
    }
}
