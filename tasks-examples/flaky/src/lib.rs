//! A task that fails as its parameters say: every outcome that a run can have, on demand.

use std::hint::black_box;

use compline_sdk::{Context, TaskError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct Params {
    /// So many attempts fail, and may be tried again; the next one does what `mode` says.
    fail_attempts: u32,
    /// What the first attempt after those does.
    mode: Mode,
}

#[derive(Debug, Default, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Mode {
    /// Completes.
    #[default]
    Succeed,
    /// Says that it can never work.
    Permanent,
    /// Panics.
    Trap,
    /// Never ends; the fuel limit or the timeout ends it.
    Spin,
    /// Takes memory until it gets no more.
    Hog,
}

#[derive(Debug, PartialEq, Serialize)]
struct Report {
    succeeded_at_attempt: u32,
}

#[compline_sdk::task]
fn flaky(ctx: &Context, params: Params) -> Result<Report, TaskError> {
    if ctx.attempt() <= params.fail_attempts {
        ctx.warn(format_args!("attempt {} fails, as asked", ctx.attempt()));
        return Err(TaskError::retryable(format_args!(
            "attempt {} of {} that fail before one succeeds",
            ctx.attempt(),
            params.fail_attempts
        )));
    }
    match params.mode {
        Mode::Succeed => Ok(Report { succeeded_at_attempt: ctx.attempt() }),
        Mode::Permanent => Err(TaskError::permanent("asked to fail for good")),
        Mode::Trap => panic!("asked to panic"),
        Mode::Spin => spin(),
        Mode::Hog => hog(),
    }
}

fn spin() -> ! {
    let mut turns = 0_u64;
    loop {
        turns = black_box(turns.wrapping_add(1));
    }
}

fn hog() -> ! {
    const CHUNK_BYTES: usize = 1 << 20;
    let mut taken = Vec::new();
    loop {
        // Not zero: memory that is only promised would cost nothing.
        taken.push(black_box(vec![1_u8; CHUNK_BYTES]));
    }
}

#[cfg(test)]
mod tests {
    use compline_sdk::ErrorKind;

    use super::*;

    #[test]
    fn it_succeeds_at_the_attempt_after_the_last_that_fails() {
        let kinds: Vec<_> = (1..=3)
            .map(|attempt| {
                let params = Params { fail_attempts: 2, mode: Mode::Succeed };
                flaky(&Context::for_test().with_attempt(attempt), params).map_err(|error| error.kind())
            })
            .collect();
        assert_eq!(
            kinds,
            [Err(ErrorKind::Retryable), Err(ErrorKind::Retryable), Ok(Report { succeeded_at_attempt: 3 })]
        );
    }

    #[test]
    fn permanent_stays_permanent() {
        let params = Params { mode: Mode::Permanent, ..Params::default() };
        assert_eq!(flaky(&Context::for_test(), params).unwrap_err().kind(), ErrorKind::Permanent);
    }

    #[test]
    #[should_panic(expected = "asked to panic")]
    fn trap_panics() {
        let _ = flaky(&Context::for_test(), Params { mode: Mode::Trap, ..Params::default() });
    }
}
