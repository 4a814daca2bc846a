//! Durations: `90s`, `1h30m`, `1h 30m`, `PT1H30M`, `1d`, `500ms` in; one canonical form out.

use std::time::Duration;

/// The longest text that is read, in bytes.
const BYTES_MAX: usize = 64;
const NANOS_PER_SECOND: u128 = 1_000_000_000;
const SHAPE: &str = "write it like `90s`, `1h30m`, `1d` or `500ms`";

/// Units from the largest to the smallest: name, length in nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("d", 86_400 * NANOS_PER_SECOND),
    ("h", 3_600 * NANOS_PER_SECOND),
    ("m", 60 * NANOS_PER_SECOND),
    ("s", NANOS_PER_SECOND),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Text that is not a duration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a duration: {detail}; {hint}", text.escape_debug())]
pub struct DurationError {
    /// The text as given; cut where it is longer than any duration.
    pub text: String,
    /// What is wrong with it.
    pub detail: String,
    /// What to write instead.
    pub hint: String,
}

/// Reads a duration: whole numbers with the units `d`, `h`, `m`, `s`, `ms`, `us` and `ns`, the larger ones first, each once, blanks
/// between them allowed; or the ISO 8601 form with days, hours, minutes and seconds (`P1DT2H`, `PT1.5S`). A day is 24 hours.
///
/// # Errors
/// [`DurationError`] says what is wrong and what to write.
pub fn parse(text: &str) -> Result<Duration, DurationError> {
    read(text).map_err(|Refused { detail, hint }| DurationError {
        text: text.chars().take(BYTES_MAX).collect(),
        detail: detail.into(),
        hint: hint.into(),
    })
}

/// Writes a duration in the one form that answers use: the largest units first, without those that are zero, such as `1h30m`.
pub fn format(duration: Duration) -> String {
    let mut left = duration.as_nanos();
    let mut text = String::new();
    for (unit, length) in UNITS {
        let count = left / length;
        left %= length;
        if count > 0 {
            text.push_str(&count.to_string());
            text.push_str(unit);
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

struct Refused {
    detail: &'static str,
    hint: &'static str,
}

const fn refused(detail: &'static str, hint: &'static str) -> Refused {
    Refused { detail, hint }
}

fn read(text: &str) -> Result<Duration, Refused> {
    if text.is_empty() {
        return Err(refused("it is empty", SHAPE));
    }
    if text.len() > BYTES_MAX {
        return Err(refused("it is too long", SHAPE));
    }
    if text.starts_with(['-', '+']) {
        return Err(refused("it has a sign", "leave the sign out"));
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(refused("it has no unit", "add one, such as `s` for seconds"));
    }
    let nanos = match text.strip_prefix('P') {
        Some(iso) => read_iso(iso)?,
        None => read_units(text)?,
    };
    let seconds = u64::try_from(nanos / NANOS_PER_SECOND).map_err(|_| TOO_LONG)?;
    Ok(Duration::new(seconds, (nanos % NANOS_PER_SECOND) as u32))
}

const TOO_LONG: Refused = refused("it is longer than can be counted", "choose a shorter one");

fn read_units(text: &str) -> Result<u128, Refused> {
    let mut total = 0;
    let mut left = text;
    let mut units = UNITS.as_slice();
    while !left.is_empty() {
        let (count, after) = leading_number(left)?;
        let end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let length = take_unit(unit, &mut units)?;
        total = add(total, count, length)?;
        left = after.trim_start_matches(' ');
        if left.is_empty() && !after.is_empty() {
            return Err(refused("it ends with a blank", SHAPE));
        }
    }
    Ok(total)
}

/// What comes after the `P` of the ISO form.
fn read_iso(text: &str) -> Result<u128, Refused> {
    const DATE: &[(&str, u128)] = &[("D", UNITS[0].1)];
    const TIME: &[(&str, u128)] = &[("H", UNITS[1].1), ("M", UNITS[2].1), ("S", UNITS[3].1)];
    let (date, time) = match text.split_once('T') {
        None => (text, None),
        Some((date, time)) => (date, Some(time)),
    };
    if time.unwrap_or(date).is_empty() {
        return Err(refused("it ends where a number should follow", SHAPE));
    }
    let mut total = 0;
    for (part, units) in [(date, DATE), (time.unwrap_or_default(), TIME)] {
        let (mut left, mut units) = (part, units);
        while !left.is_empty() {
            let (count, after) = leading_number(left)?;
            let (nanos, after) = second_fraction(after)?;
            let (unit, after) = after.split_at(after.chars().next().map_or(0, char::len_utf8));
            let length = take_unit(unit, &mut units)?;
            if nanos.is_some() && unit != "S" {
                return Err(refused("only seconds may have a fraction", SHAPE));
            }
            total = add(total, count, length)?;
            total = add(total, nanos.unwrap_or(0), 1)?;
            left = after;
        }
    }
    Ok(total)
}

/// The nanoseconds of `.5`, if the text begins with a point.
fn second_fraction(text: &str) -> Result<(Option<u128>, &str), Refused> {
    let Some(text) = text.strip_prefix('.') else { return Ok((None, text)) };
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let digits = &text[..end];
    if !(1..=9).contains(&digits.len()) {
        return Err(refused("its fraction does not have one to nine digits", SHAPE));
    }
    let (nanos, _) = leading_number(&format!("{digits:0<9}")).map(|(nanos, _)| (nanos, ()))?;
    Ok((Some(nanos), &text[end..]))
}

fn leading_number(text: &str) -> Result<(u128, &str), Refused> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, after) = text.split_at(end);
    if digits.is_empty() {
        return Err(refused("a whole number is missing before a unit", SHAPE));
    }
    Ok((digits.parse().map_err(|_| TOO_LONG)?, after))
}

/// The length of a unit. It and the larger ones are used up.
fn take_unit(unit: &str, units: &mut &[(&str, u128)]) -> Result<u128, Refused> {
    if let Some(index) = units.iter().position(|(name, _)| *name == unit) {
        let length = units[index].1;
        *units = &units[index + 1..];
        return Ok(length);
    }
    Err(match unit {
        "" => refused("a number has no unit right after it", SHAPE),
        "y" | "Y" | "mo" | "M" => refused("months and years have no fixed length", "give it in days, such as `30d`"),
        "w" | "W" => refused("there is no such unit", "write a week as `7d`"),
        unit if UNITS.iter().any(|(name, _)| *name == unit.to_ascii_lowercase()) => {
            refused("its units are not each given once, in lower case, the larger ones first", SHAPE)
        }
        _ => refused("there is no such unit", "use `d`, `h`, `m`, `s` or `ms`"),
    })
}

fn add(total: u128, count: u128, length: u128) -> Result<u128, Refused> {
    count.checked_mul(length).and_then(|part| total.checked_add(part)).ok_or(TOO_LONG)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_has_one_answer() {
        for (text, answer) in [
            ("90s", "1m30s"),
            ("1h30m", "1h30m"),
            ("1h 30m", "1h30m"),
            ("PT1H30M", "1h30m"),
            ("90m", "1h30m"),
            ("1d", "1d"),
            ("24h", "1d"),
            ("P1DT2H", "1d2h"),
            ("P2D", "2d"),
            ("PT0S", "0s"),
            ("0s", "0s"),
            ("PT1.5S", "1s500ms"),
            ("PT0.000000001S", "1ns"),
            ("500ms", "500ms"),
            ("1d 1h 1m 1s 1ms 1us 1ns", "1d1h1m1s1ms1us1ns"),
            ("007s", "7s"),
            ("18446744073709551615s", "213503982334601d7h15s"),
        ] {
            assert_eq!(parse(text).map(format).as_deref(), Ok(answer), "{text}");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            " ",
            "5",
            "0",
            "-5s",
            "+5s",
            "1.5h",
            "1,5h",
            "5 s",
            " 5s",
            "5s ",
            "s",
            "h1",
            "1h30",
            "30m1h",
            "1h1h",
            "1H",
            "1M",
            "1mo",
            "1y",
            "1w",
            "P",
            "PT",
            "P1DT",
            "P1Y",
            "P1M",
            "P1W",
            "PT1M1H",
            "PT1S1S",
            "PT1H30",
            "PT.5S",
            "PT1.S",
            "PT1.5H",
            "PT1.1234567890S",
            "P-1D",
            "PT-1S",
            "pt1h",
            "1e3s",
            "0x5s",
            "١s",
            "1h\t30m",
            "1hour",
            "1 hour",
            "1h,30m",
            "18446744073709551616s",
            "99999999999999999999999999999999999999999s",
            "213503982334602d",
            "infinity",
            "1d-1h",
        ] {
            assert!(parse(text).is_err(), "{text:?} was read as {:?}", parse(text));
        }
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        let error = parse("30").unwrap_err();
        assert_eq!(error.to_string(), "`30` is not a duration: it has no unit; add one, such as `s` for seconds");
        let error = parse("1mo").unwrap_err();
        assert_eq!(error.detail, "months and years have no fixed length");
        assert!(parse(&"9".repeat(100_000)).unwrap_err().to_string().len() < 300);
    }

    proptest! {
        #[test]
        fn answers_can_be_read_again(duration: Duration) {
            prop_assert_eq!(parse(&format(duration)), Ok(duration));
        }

        #[test]
        fn any_text_is_answered(text in "\\PC{0,40}|P?[0-9DTHMSdhms .]{0,24}") {
            if let Ok(duration) = parse(&text) {
                prop_assert_eq!(parse(&format(duration)), Ok(duration));
            }
        }
    }
}
