//! Any text is answered: a cron expression, an instant and a duration.

#![no_main]

mod answers;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| answers::answered(text));
