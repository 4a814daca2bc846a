//! The journal, cut and damaged at every byte of its last commits: what was acknowledged is there or the store is refused, with all files as they
//! are; half a transaction is never seen.
#![cfg(feature = "embedded")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use compline_store::StoreError;
use compline_store::backend::embedded::{EmbeddedBackend, EmbeddedOptions};
use compline_store::backend::{Backend, RangeQuery, Read};

const COMMITS: usize = 6;
const ROWS: usize = 3;
const JOURNAL: &str = "db/0.jnl";

/// A store's files as they were written, and where each commit ends in its journal.
struct Written {
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// By commit; the first is where the journal ended before all of them.
    ends: Vec<usize>,
    /// The mark as it was after each commit.
    marks: Vec<Vec<u8>>,
}

fn key(commit: usize, row: usize) -> Bytes {
    format!("row {commit} {row}").into()
}

async fn commit(backend: &EmbeddedBackend, commit: usize) -> Result<(), StoreError> {
    let tx = backend.begin();
    (0..ROWS).for_each(|row| tx.set(key(commit, row), Bytes::from(vec![commit as u8 + 1; 7 + row])));
    tx.commit().await.map(|_| ())
}

/// A file without the zeros at its end.
fn contents(path: &Path) -> Vec<u8> {
    let mut bytes = std::fs::read(path).expect("a file");
    if path.extension().is_some_and(|extension| extension == "jnl") {
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    }
    bytes
}

fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(next) = directories.pop() {
        for entry in std::fs::read_dir(next).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
            } else {
                files.insert(path.strip_prefix(directory).expect("inside").to_owned(), contents(&path));
            }
        }
    }
    files
}

impl Written {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let backend = EmbeddedBackend::open(directory.path(), EmbeddedOptions::default()).expect("a store");
        let journal = directory.path().join(JOURNAL);
        let (mut ends, mut marks) = (vec![contents(&journal).len()], Vec::new());
        for number in 0..COMMITS {
            commit(&backend, number).await.expect("a commit");
            ends.push(contents(&journal).len());
            marks.push(std::fs::read(directory.path().join("durable")).expect("a mark"));
        }
        backend.close().await.expect("it closes");
        drop(backend);
        assert!(ends.is_sorted_by(|left, right| left < right), "{ends:?}");
        Self { files: files(directory.path()), ends, marks }
    }

    /// The same files elsewhere, with another journal and the mark of `acknowledged` commits.
    fn put(&self, journal: &[u8], acknowledged: usize) -> tempfile::TempDir {
        let directory = tempfile::tempdir().expect("a directory");
        for (path, bytes) in &self.files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(path, bytes).expect("a file");
        }
        std::fs::create_dir_all(directory.path().join("db/keyspaces")).expect("a directory");
        std::fs::write(directory.path().join(JOURNAL), journal).expect("a file");
        std::fs::write(directory.path().join("durable"), &self.marks[acknowledged - 1]).expect("a file");
        directory
    }

    fn journal(&self) -> &[u8] {
        &self.files[Path::new(JOURNAL)]
    }
}

/// How many commits are there, after checking that each is whole and that none is missing before one that is there.
async fn whole_commits(backend: &EmbeddedBackend) -> usize {
    let query = RangeQuery {
        begin: Bytes::from_static(b"row"),
        end: Bytes::from_static(b"rox"),
        limit: usize::MAX,
        reverse: false,
        read: Read::Snapshot,
    };
    let rows = backend.begin().range(&query).await.expect("the rows are read");
    for (index, row) in rows.iter().enumerate() {
        let (commit, part) = (index / ROWS, index % ROWS);
        assert_eq!((&row.key, &row.value[..]), (&key(commit, part), &vec![commit as u8 + 1; 7 + part][..]));
    }
    assert_eq!(rows.len() % ROWS, 0, "no transaction is there by halves");
    rows.len() / ROWS
}

/// Opens a damaged store. A refusal must leave every file as it was.
async fn open(directory: &Path) -> Result<usize, String> {
    let before = files(directory);
    match EmbeddedBackend::open(directory, EmbeddedOptions::default()) {
        Ok(backend) => {
            let commits = whole_commits(&backend).await;
            // It goes on, and what it goes on with stays.
            commit(&backend, commits).await.expect("a commit");
            backend.close().await.expect("it closes");
            drop(backend);
            let backend = EmbeddedBackend::open(directory, EmbeddedOptions::default()).expect("it opens again");
            assert_eq!(whole_commits(&backend).await, commits + 1);
            backend.close().await.expect("it closes");
            Ok(commits)
        }
        Err(error) => {
            let mut after = files(directory);
            after.remove(Path::new("lock"));
            let before: BTreeMap<_, _> = before.into_iter().filter(|(path, _)| path != Path::new("lock")).collect();
            assert_eq!(before, after, "the evidence is untouched: {error}");
            Err(error.to_string())
        }
    }
}

#[tokio::test]
async fn a_cut_at_any_byte_loses_nothing_acknowledged_or_is_refused() {
    let written = Written::new().await;
    let end = written.ends[COMMITS];
    for length in written.ends[COMMITS - 3]..end {
        for pad in [0, 5_000] {
            let mut journal = written.journal()[..length].to_vec();
            // A write that did not reach the disk leaves the zeros that the file was made with.
            journal.resize(length + pad, 0);
            let refused = open(written.put(&journal, COMMITS).path()).await.expect_err("acknowledged commits are gone");
            assert!(refused.contains("has lost commits") && refused.contains("up to 6 were acknowledged"), "{refused}");
        }
    }
    // The same cuts when only the commits before them had been acknowledged.
    for length in written.ends[COMMITS - 1]..=end {
        let directory = written.put(&written.journal()[..length], COMMITS - 1);
        let commits = open(directory.path()).await.expect("what was acknowledged is there");
        assert_eq!(commits, if length == end { COMMITS } else { COMMITS - 1 }, "{length}");
        let torn = std::fs::read(directory.path().join("torn-tail")).unwrap_or_default();
        let expected = if length == end { &[][..] } else { &written.journal()[written.ends[COMMITS - 1]..length] };
        let expected = &expected[..expected.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)];
        assert_eq!(torn, expected, "what was cut off is kept");
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_refused_or_harmless() {
    let written = Written::new().await;
    let mut harmless = Vec::new();
    for position in written.ends[COMMITS - 3]..written.ends[COMMITS] {
        let mut journal = written.journal().to_vec();
        journal[position] ^= 1 << (position % 8);
        match open(written.put(&journal, COMMITS).path()).await {
            Ok(commits) => {
                assert_eq!(commits, COMMITS, "nothing is missing");
                harmless.push(position);
            }
            Err(refused) => assert!(refused.contains("backup"), "{position}: {refused}"),
        }
    }
    // The number of a batch is not covered by its checksum. One that still follows the number before it changes nothing.
    for position in &harmless {
        let begins = written.ends.iter().rfind(|end| *end <= position).expect("a commit");
        assert!((5..13).contains(&(position - begins)), "{position} {begins}");
    }
    assert!(harmless.len() <= 3 * 5, "{harmless:?}");
}

#[tokio::test]
async fn damage_before_a_whole_commit_is_refused_though_the_mark_is_behind() {
    let written = Written::new().await;
    // After a power cut the mark may be a second behind. The committer begins no commit before the one before it is on the disk.
    for position in written.ends[2]..written.ends[3] {
        let mut journal = written.journal().to_vec();
        journal[position] ^= 1 << (position % 8);
        match open(written.put(&journal, 1).path()).await {
            Ok(commits) => assert_eq!(commits, COMMITS, "nothing is missing"),
            Err(refused) => assert!(refused.contains("commits behind it are whole"), "{position}: {refused}"),
        }
    }
    let directory = written.put(&written.journal()[..written.ends[4] - 2], 1);
    std::fs::write(directory.path().join("db/1.jnl"), b"").expect("a file");
    let refused = open(directory.path()).await.expect_err("an older journal is not whole");
    assert!(refused.contains("0.jnl is damaged at byte") && refused.contains("newer one"), "{refused}");
}
