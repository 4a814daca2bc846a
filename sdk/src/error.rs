//! How a task fails.

use std::fmt::{self, Display};
use std::io;

/// Why a task could not do its work, and whether trying again can help.
///
/// It is recorded in the execution and shown to the job's owner: one sentence for people, at most 4,096 bytes of it are kept.
///
/// # `?`
///
/// | error | becomes |
/// | --- | --- |
/// | [`std::io::Error`] | retryable, but permanent for `InvalidInput`, `InvalidData` and `Unsupported` |
/// | [`serde_json::Error`] | permanent (its input/output errors as above) |
/// | integer, float, `bool` and `char` parse errors, [`std::num::TryFromIntError`] | permanent |
/// | [`std::str::Utf8Error`], [`std::string::FromUtf8Error`] | permanent |
/// | [`std::fmt::Error`] | permanent |
///
/// What the same input gives every time is permanent. Only the author knows about other errors, and says so:
/// `.map_err(TaskError::retryable)?`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError {
    kind: ErrorKind,
    message: String,
}

/// Whether running the same attempt again can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// Try again by the job's retry rule: the world may have changed by then.
    Retryable,
    /// Never try again: the input or the task itself is wrong.
    Permanent,
}

impl TaskError {
    /// A failure that may be gone at the next attempt, such as a service that does not answer.
    pub fn retryable(message: impl Display) -> Self {
        Self { kind: ErrorKind::Retryable, message: message.to_string() }
    }

    /// A failure that every attempt would meet, such as parameters that make no sense.
    pub fn permanent(message: impl Display) -> Self {
        Self { kind: ErrorKind::Permanent, message: message.to_string() }
    }

    /// Whether trying again can help.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl Display for TaskError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for TaskError {}

impl From<io::Error> for TaskError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData | io::ErrorKind::Unsupported => {
                Self::permanent(error)
            }
            _ => Self::retryable(error),
        }
    }
}

impl From<serde_json::Error> for TaskError {
    fn from(error: serde_json::Error) -> Self {
        if error.is_io() { io::Error::from(error).into() } else { Self::permanent(error) }
    }
}

macro_rules! permanent {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for TaskError {
            fn from(error: $error) -> Self {
                Self::permanent(error)
            }
        }
    )*};
}

permanent!(
    fmt::Error,
    std::char::ParseCharError,
    std::num::ParseFloatError,
    std::num::ParseIntError,
    std::num::TryFromIntError,
    std::str::ParseBoolError,
    std::str::Utf8Error,
    std::string::FromUtf8Error,
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_same_input_gives_every_time_is_permanent() {
        let number = "x".parse::<u8>().map_err(TaskError::from).unwrap_err();
        assert_eq!((number.kind(), number.message()), (ErrorKind::Permanent, "invalid digit found in string"));
        let json = serde_json::from_str::<u8>("{").map_err(TaskError::from).unwrap_err();
        assert_eq!(json.kind(), ErrorKind::Permanent);
        assert_eq!(TaskError::from(io::Error::from(io::ErrorKind::InvalidData)).kind(), ErrorKind::Permanent);
    }

    #[test]
    fn what_the_world_may_mend_is_retryable() {
        assert_eq!(TaskError::from(io::Error::from(io::ErrorKind::ConnectionRefused)).kind(), ErrorKind::Retryable);
        struct Broken;
        impl io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::ConnectionReset.into())
            }
        }
        let read = serde_json::from_reader::<_, u8>(Broken).map_err(TaskError::from).unwrap_err();
        assert_eq!(read.kind(), ErrorKind::Retryable);
    }
}
