//! The fuzz target without the fuzzer: its seeds and the texts of all cases, on the stable compiler, with every `cargo test`. What a fuzzer finds
//! becomes another seed.

#[path = "../fuzz/fuzz_targets/answers.rs"]
mod answers;

use std::path::Path;

/// A text of the list of cases.
#[derive(serde::Deserialize)]
struct Case {
    cron: String,
}

fn texts() -> Vec<String> {
    let cases: Vec<Case> = serde_json::from_str(include_str!("cases/cron.json")).expect("the list is well-formed");
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/parse");
    let seeds = std::fs::read_dir(&seeds).expect("the seeds are checked in");
    // As the fuzzer hands them over: only text.
    let seed = |entry: std::io::Result<std::fs::DirEntry>| {
        String::from_utf8(std::fs::read(entry.expect("readable").path()).expect("readable")).ok()
    };
    cases.into_iter().map(|case| case.cron).chain(seeds.filter_map(seed)).collect()
}

#[test]
fn every_seed_and_every_piece_of_it_is_answered() {
    let texts = texts();
    for text in &texts {
        answers::answered(text);
        for (at, _) in text.char_indices().take(300) {
            answers::answered(&text[..at]);
            answers::answered(&text[at..]);
        }
    }
    assert!(texts.len() >= 141 + 39, "only {} texts", texts.len());
}
