//! Instants: strict RFC 3339 in, UTC with `Z` out.

use chrono::{DateTime, SecondsFormat, Utc};

use crate::schedule::civil::{DAY, Date, YEAR_MAX, is_leap, month_days};
use crate::schedule::zone::Zone;

/// The longest text that is read, in bytes: room for any number of digits a clock gives out.
const BYTES_MAX: usize = 64;
const SHAPE: &str = "write it like 2026-12-01T10:00:00Z or 2026-12-01T10:00:00+05:45";

/// Text that is not an instant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not an instant: {detail}; {hint}", text.escape_debug())]
pub struct InstantError {
    /// The text as given; cut where it is longer than any instant.
    pub text: String,
    /// What is wrong with it.
    pub detail: String,
    /// What to write instead.
    pub hint: String,
}

/// Reads an RFC 3339 instant. The offset is required. Second 60 is refused: which minutes have one is not known for the future. Digits
/// beyond the nanosecond are cut.
///
/// # Errors
/// [`InstantError`] says what is wrong and what to write.
pub fn parse(text: &str) -> Result<DateTime<Utc>, InstantError> {
    parse_in(text, None)
}

/// Reads an RFC 3339 instant, or a local time (the same without an offset) of `zone`. A time that the zone's clock skips is the first
/// instant after the jump; one that it shows twice is the first pass. A time inside a jump of three hours or more (the date line) is
/// refused, and so is a local time before 1970.
///
/// # Errors
/// [`InstantError`] says what is wrong and what to write.
pub fn parse_in(text: &str, zone: Option<Zone>) -> Result<DateTime<Utc>, InstantError> {
    read(text, zone).map_err(|Refused { detail, hint }| InstantError {
        text: text.chars().take(BYTES_MAX).collect(),
        detail: detail.into(),
        hint: hint.into(),
    })
}

/// Writes an instant in UTC with `Z`, with no more digits of the second than it needs.
pub fn format(instant: DateTime<Utc>) -> String {
    let text = instant.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    match text.split_once('.') {
        None => text,
        Some(_) => format!("{}Z", text.trim_end_matches('Z').trim_end_matches('0')),
    }
}

struct Refused {
    detail: &'static str,
    hint: &'static str,
}

fn refused<T>(detail: &'static str, hint: &'static str) -> Result<T, Refused> {
    Err(Refused { detail, hint })
}

fn read(text: &str, zone: Option<Zone>) -> Result<DateTime<Utc>, Refused> {
    if text.len() > BYTES_MAX {
        return refused("it is too long", SHAPE);
    }
    if !text.is_ascii() {
        return refused("it has a character that is not ASCII, such as a typographic minus", SHAPE);
    }
    let mut input = Input(text.as_bytes());
    let local = local_seconds(&mut input)?;
    let nanos = fraction(&mut input)?;
    let utc = match (offset(&mut input)?, zone) {
        (Some(offset), _) => local - offset,
        (None, Some(_)) if local < 0 => {
            return refused("the zone's clock is not known before 1970", "give an offset such as `+02:00`");
        }
        (None, Some(zone)) => match zone.first_instant(local) {
            Some(utc) => utc,
            None => return refused("the zone's clock jumped over that day", "choose another day, or give an offset"),
        },
        (None, None) => {
            return refused("it has no offset", "end it with `Z` or an offset such as `+02:00`, or name a time zone");
        }
    };
    let range = Date::new(0, 1, 1).days() * DAY..Date::new(YEAR_MAX + 1, 1, 1).days() * DAY;
    let instant = DateTime::from_timestamp(utc, nanos).filter(|_| range.contains(&utc));
    instant.map_or_else(|| refused("it is outside the years 0000 to 9999 in UTC", "choose a year in that range"), Ok)
}

fn local_seconds(input: &mut Input<'_>) -> Result<i64, Refused> {
    let year = input.digits(4, "the year must have four digits")?;
    input.expect(b"-")?;
    let month = input.digits(2, "the month must have two digits")?;
    input.expect(b"-")?;
    let day = input.digits(2, "the day must have two digits")?;
    input.expect(b"Tt")?;
    let hour = input.digits(2, "the hour must have two digits")?;
    input.expect(b":")?;
    let minute = input.digits(2, "the minute must have two digits")?;
    input.expect(b":")?;
    let second = input.digits(2, "the second must have two digits")?;
    if !(1..=12).contains(&month) {
        return refused("there is no such month", "use a month from 01 to 12");
    }
    if !(1..=month_days(is_leap(year as i32), month)).contains(&day) {
        return refused("the month has no such day", "check the length of the month");
    }
    if hour > 23 {
        return refused("there is no such hour", "use an hour from 00 to 23; midnight is 00:00 of the next day");
    }
    if minute > 59 {
        return refused("there is no such minute", "use a minute from 00 to 59");
    }
    if second > 59 {
        return refused("there is no such second (leap seconds are not taken)", "use a second from 00 to 59");
    }
    let days = Date::new(year as i32, month, day).days();
    Ok(days * DAY + i64::from(hour * 3600 + minute * 60 + second))
}

/// Nanoseconds after the second.
fn fraction(input: &mut Input<'_>) -> Result<u32, Refused> {
    if !input.take(b".") {
        return Ok(0);
    }
    let (mut nanos, mut worth, mut digits) = (0, 100_000_000, 0);
    while let Some(digit) = input.digit() {
        nanos += digit * worth;
        worth /= 10;
        digits += 1;
    }
    if digits == 0 { refused("there are no digits after the point", SHAPE) } else { Ok(nanos) }
}

/// Seconds east of UTC, `None` if there is no offset at all.
fn offset(input: &mut Input<'_>) -> Result<Option<i64>, Refused> {
    let sign = match input.0 {
        [] => return Ok(None),
        [b'Z' | b'z'] => return Ok(Some(0)),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return refused("there is something after the seconds that is not an offset", SHAPE),
    };
    input.0 = &input.0[1..];
    let hint = "write the offset as +hh:mm or -hh:mm, below 24 hours";
    let wrong = |_| Refused { detail: "the offset is malformed", hint };
    let hours = input.digits(2, "").map_err(wrong)?;
    input.expect(b":").map_err(wrong)?;
    let minutes = input.digits(2, "").map_err(wrong)?;
    if hours > 23 || minutes > 59 || !input.0.is_empty() {
        return refused("the offset is malformed", hint);
    }
    Ok(Some(sign * i64::from(hours * 3600 + minutes * 60)))
}

/// What is left to read.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    /// Takes one byte if it is one of `wanted`.
    fn take(&mut self, wanted: &[u8]) -> bool {
        let found = self.0.first().is_some_and(|byte| wanted.contains(byte));
        if found {
            self.0 = &self.0[1..];
        }
        found
    }

    fn expect(&mut self, wanted: &[u8]) -> Result<(), Refused> {
        if self.take(wanted) { Ok(()) } else { refused("it does not have the shape of RFC 3339", SHAPE) }
    }

    fn digit(&mut self) -> Option<u32> {
        let digit = self.0.first().filter(|byte| byte.is_ascii_digit())?;
        self.0 = &self.0[1..];
        Some(u32::from(digit - b'0'))
    }

    fn digits(&mut self, count: usize, otherwise: &'static str) -> Result<u32, Refused> {
        (0..count)
            .try_fold(0, |number, _| Some(number * 10 + self.digit()?))
            .map_or_else(|| refused(otherwise, SHAPE), Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn utc(text: &str) -> String {
        parse(text).map_or_else(|error| error.to_string(), format)
    }

    #[test]
    fn offsets_become_utc() {
        for (text, answer) in [
            ("2026-06-15T12:30:00+05:45", "2026-06-15T06:45:00Z"),
            ("2026-06-15t12:30:00z", "2026-06-15T12:30:00Z"),
            ("2026-01-01T00:30:00-23:59", "2026-01-02T00:29:00Z"),
            ("2026-06-15T12:30:00-00:00", "2026-06-15T12:30:00Z"),
            ("2024-02-29T23:59:59.5Z", "2024-02-29T23:59:59.5Z"),
            ("2026-06-15T12:30:00.000Z", "2026-06-15T12:30:00Z"),
            ("2026-06-15T12:30:00.120Z", "2026-06-15T12:30:00.12Z"),
            ("2026-06-15T12:30:00.1234567899999Z", "2026-06-15T12:30:00.123456789Z"),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z"),
            ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999999Z"),
        ] {
            assert_eq!(utc(text), answer, "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "1764500000",
            "2026-06-15",
            "2026-06-15T12:30:00",
            "2026-06-15T12:30Z",
            "2026-06-15 12:30:00Z",
            "2016-12-31T23:59:60Z",
            "2026-06-15T12:30:60Z",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-06-31T00:00:00Z",
            "2026-06-15T24:00:00Z",
            "2026-06-15T12:60:00Z",
            "2026-06-15T12:30:00+24:00",
            "2026-06-15T12:30:00+05:60",
            "2026-06-15T12:30:00+0545",
            "2026-06-15T12:30:00+05",
            "2026-06-15T12:30:00\u{2212}05:00",
            "10000-01-01T00:00:00Z",
            "+2026-06-15T12:30:00Z",
            "-001-06-15T12:30:00Z",
            "2026-6-15T12:30:00Z",
            "2026-06-15T12:30:00.Z",
            "2026-06-15T12:30:00,5Z",
            " 2026-06-15T12:30:00Z",
            "2026-06-15T12:30:00Z ",
            "2026-06-15T12:30:00ZZ",
            "2026-06-15T12:30:00Z[UTC]",
            "2026-06-15T12:30:00 Z",
            "9999-12-31T23:59:59-00:01",
            "0000-01-01T00:00:00+00:01",
            "٢٠٢٦-06-15T12:30:00Z",
            "2026-W25-1T12:30:00Z",
            "20260615T123000Z",
            "now",
            "tomorrow",
        ] {
            assert!(parse(text).is_err(), "{text:?} was read as {}", utc(text));
        }
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        assert_eq!(
            utc("2026-06-15T12:30:00"),
            "`2026-06-15T12:30:00` is not an instant: it has no offset; end it with `Z` or an offset such as `+02:00`, or name a time zone"
        );
        let long = parse(&"9".repeat(100_000)).unwrap_err();
        assert!(long.to_string().len() < 300);
    }

    #[test]
    fn local_times_follow_the_zone() {
        let local = |text: &str, zone: &str| {
            parse_in(text, Some(Zone::parse(zone).unwrap())).map_or_else(|error| error.detail, format)
        };
        for (text, zone, answer) in [
            ("2026-06-15T12:30:00", "America/New_York", "2026-06-15T16:30:00Z"),
            ("2026-06-15T12:30:00.25", "Asia/Kathmandu", "2026-06-15T06:45:00.25Z"),
            // Skipped: the first instant after the jump.
            ("2026-03-08T02:30:00", "America/New_York", "2026-03-08T07:00:00Z"),
            // Shown twice: the first pass, unless an offset says otherwise.
            ("2026-11-01T01:30:00", "America/New_York", "2026-11-01T05:30:00Z"),
            ("2026-11-01T01:30:00-05:00", "America/New_York", "2026-11-01T06:30:00Z"),
            ("1970-01-01T00:00:00", "Africa/Monrovia", "1970-01-01T00:44:30Z"),
            ("1969-12-31T23:59:59", "UTC", "the zone's clock is not known before 1970"),
            ("2011-12-30T12:00:00", "Pacific/Apia", "the zone's clock jumped over that day"),
            ("2011-12-31T00:00:00", "Pacific/Apia", "2011-12-30T10:00:00Z"),
            ("2011-12-29T23:59:59", "Pacific/Apia", "2011-12-30T09:59:59Z"),
        ] {
            assert_eq!(local(text, zone), answer, "{text} {zone}");
        }
    }

    proptest! {
        #[test]
        fn answers_can_be_read_again(seconds in -62_167_219_200_i64..253_402_300_800, nanos in 0_u32..1_000_000_000) {
            let instant = DateTime::from_timestamp(seconds, nanos).unwrap();
            prop_assert_eq!(parse(&format(instant)), Ok(instant));
            // chrono reads every RFC 3339 text, and more.
            prop_assert_eq!(DateTime::parse_from_rfc3339(&format(instant)).unwrap().to_utc(), instant);
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}|[0-9TZ:.+-]{0,40}") {
            if let Ok(instant) = parse(&text) {
                prop_assert_eq!(DateTime::parse_from_rfc3339(&text).unwrap().to_utc(), instant);
            }
        }
    }
}
