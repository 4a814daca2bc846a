//! Values that are given in more than one way.

use std::io::Read;
use std::path::Path;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::CliError;
use crate::json::{JsonError, check_keys};
use crate::refusal::{Refusal, quoted};

/// Reads `TEXT`, `@FILE` or `-` (stdin).
pub fn read(flag: &str, text: &str) -> Result<Bytes, CliError> {
    let broken = |what: String, error: std::io::Error| {
        CliError::usage(Refusal::new(flag, format!("{what} can't be read: {error}")))
    };
    match text.strip_prefix('@') {
        Some(path) => {
            let bytes = std::fs::read(Path::new(path)).map_err(|error| broken(quoted(path), error))?;
            Ok(bytes.into())
        }
        None if text == "-" => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).map_err(|error| broken("stdin".to_owned(), error))?;
            Ok(bytes.into())
        }
        None => Ok(Bytes::copy_from_slice(text.as_bytes())),
    }
}

/// Reads JSON given as `JSON`, `@FILE` or `-`.
pub fn read_json(flag: &str, text: &str) -> Result<Box<RawValue>, CliError> {
    let bytes = read(flag, text)?;
    let refuse = |detail: String| {
        CliError::usage(
            Refusal::new(flag, detail)
                .hint("give JSON such as '{\"region\":\"eu\"}', @FILE, or - for stdin; mind the shell's quotes"),
        )
    };
    match check_keys(&bytes) {
        Ok(()) => {}
        Err(JsonError::Broken(detail)) => return Err(refuse(format!("this is not JSON: {detail}"))),
        Err(JsonError::Unfit(refusal)) => return Err(refuse(format!("{}: {}", refusal.field, refusal.detail))),
    }
    serde_json::from_slice(&bytes).map_err(|error| refuse(format!("this is not JSON: {error}")))
}

/// Reads a size in bytes: `67108864`, `64MiB`, `64MB`.
pub fn read_size(flag: &str, text: &str) -> Result<u64, CliError> {
    const UNITS: [(&str, u64); 8] = [
        ("", 1),
        ("b", 1),
        ("kib", 1 << 10),
        ("mib", 1 << 20),
        ("gib", 1 << 30),
        ("kb", 1_000),
        ("mb", 1_000_000),
        ("gb", 1_000_000_000),
    ];
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit = unit.trim().to_ascii_lowercase();
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let bytes = number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    bytes.ok_or_else(|| {
        CliError::usage(Refusal::new(flag, format!("{} is not a size", quoted(text))).hint("write it like 64MiB"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        for (text, want) in
            [("0", 0), ("67108864", 67_108_864), ("64MiB", 64 << 20), ("1 gib", 1 << 30), ("5KB", 5_000)]
        {
            assert_eq!(read_size("--memory", text), Ok(want), "{text}");
        }
        for text in ["", "MiB", "-1", "1.5GiB", "64 M", "99999999999999999999", "20000000000GiB"] {
            assert!(read_size("--memory", text).is_err(), "{text}");
        }
    }

    #[test]
    fn json_is_json() {
        assert_eq!(read_json("--params", r#"{"a":1.0}"#).unwrap().get(), r#"{"a":1.0}"#);
        for text in ["", "hello", "{a:1}", r#"{"a":1,"a":2}"#, "@/no/such/file"] {
            assert_eq!(read_json("--params", text).unwrap_err().exit(), crate::cli::Exit::Usage, "{text}");
        }
    }
}
