//! A file that is not as it was written is refused, with the place, and nothing is written to the target.

use std::path::Path;

use compline_store::transfer::TransferError;

use crate::contents::{dump, export_to, fill, import_from, memory};

async fn written(directory: &Path) -> Vec<u8> {
    let source = memory();
    fill(&source, 3, 40).await;
    let file = directory.join("file");
    export_to(&source, &file).await.expect("an export");
    std::fs::read(file).expect("a file")
}

/// What an import of these bytes says; the target must be as empty as before.
async fn refusal(path: &Path, bytes: &[u8]) -> TransferError {
    std::fs::write(path, bytes).expect("a file");
    let target = memory();
    let refused = import_from(&target, path).await.expect_err("a damaged file");
    assert!(dump(&target).await.is_empty(), "{refused}");
    refused
}

/// Positions in every part of the file: all of its first and last bytes, and a sample of what is between.
fn positions(length: usize) -> Vec<usize> {
    let mut positions: Vec<usize> = (0..120).chain(length - 120..length).collect();
    positions.extend((120..length - 120).step_by(length / 150));
    positions
}

#[tokio::test]
async fn a_file_that_was_cut_anywhere_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let bytes = written(directory.path()).await;
    let path = directory.path().join("cut");
    for length in positions(bytes.len()) {
        match refusal(&path, &bytes[..length]).await {
            TransferError::NotAnExport { .. } => assert!(length < 16, "{length}"),
            TransferError::Damaged { offset, what, .. } => {
                assert!(offset <= length as u64 && what.contains("ends before"), "{length} {offset} {what}")
            }
            other => panic!("{length}: {other}"),
        }
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let bytes = written(directory.path()).await;
    let path = directory.path().join("flipped");
    for position in positions(bytes.len()) {
        let mut flipped = bytes.clone();
        flipped[position] ^= 1 << (position % 8);
        match refusal(&path, &flipped).await {
            TransferError::NotAnExport { .. } => assert!(position < 16, "{position}"),
            TransferError::Format { .. } => assert!((16..20).contains(&position), "{position}"),
            TransferError::Damaged { offset, .. } => assert!(offset <= position as u64, "{position} {offset}"),
            other => panic!("{position}: {other}"),
        }
    }
}

/// The frames of a file: where each begins and ends.
fn frames(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut frames = Vec::new();
    let mut at = 20;
    while at < bytes.len() {
        let length = u32::from_be_bytes(bytes[at + 1..at + 5].try_into().expect("four bytes")) as usize;
        frames.push(at..at + 5 + length + 16);
        at += 5 + length + 16;
    }
    frames
}

#[tokio::test]
async fn parts_that_are_missing_doubled_or_in_another_place_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let bytes = written(directory.path()).await;
    let path = directory.path().join("parts");
    let frames = frames(&bytes);
    assert!(frames.len() >= 4, "a header, rows, and a tally");
    for (index, frame) in frames.iter().enumerate() {
        let missing = [&bytes[..frame.start], &bytes[frame.end..]].concat();
        let doubled = [&bytes[..frame.end], &bytes[frame.start..]].concat();
        for (what, damaged) in [("missing", missing), ("doubled", doubled)] {
            let refused = refusal(&path, &damaged).await;
            assert!(matches!(refused, TransferError::Damaged { .. }), "{index} {what}: {refused}");
        }
    }
    let (second, third) = (frames[1].clone(), frames[2].clone());
    let swapped = [&bytes[..second.start], &bytes[third.clone()], &bytes[second], &bytes[third.end..]].concat();
    assert!(matches!(refusal(&path, &swapped).await, TransferError::Damaged { .. }));
}

#[tokio::test]
async fn other_files_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("other");
    for bytes in [&b""[..], b"PK\x03\x04 something quite else, and long enough", &[0; 4_096]] {
        assert!(matches!(refusal(&path, bytes).await, TransferError::NotAnExport { .. }));
    }
    let refused = refusal(&path, b"COMPLINE EXPORT\n\0\0\0\x09 a later one").await;
    assert!(matches!(refused, TransferError::Format { found: 9, known: 1, .. }), "{refused}");
    let target = memory();
    let refused = import_from(&target, &directory.path().join("nowhere")).await.expect_err("no file");
    assert!(matches!(refused, TransferError::File { what: "opened", .. }), "{refused}");
}
