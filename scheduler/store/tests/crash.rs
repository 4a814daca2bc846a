//! Real processes, killed for real: what was acknowledged stays, and nothing is there by halves.
//!
//! The child is this test binary again, running only `writer_process`, which does nothing unless it is told where.
#![cfg(feature = "embedded")]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bytes::Bytes;
use compline_store::backend::embedded::{EmbeddedBackend, EmbeddedOptions};
use compline_store::backend::{Backend, RangeQuery, Read};
use compline_store::{Store, StoreError};

const DIRECTORY: &str = "COMPLINE_STORE_CRASH_DIRECTORY";
const ROUND: &str = "COMPLINE_STORE_CRASH_ROUND";
const JOURNAL_BYTES: &str = "COMPLINE_STORE_CRASH_JOURNAL_BYTES";
const WORKERS_WANTED: &str = "COMPLINE_STORE_CRASH_WORKERS";
const WORKERS: u32 = 4;
/// A child that should stop by itself is not listened to for longer.
const LINES_MAX: usize = 50_000;
const PARTS: usize = 6;

fn row(round: u32, worker: u32, number: u32, part: usize) -> Bytes {
    format!("row {round:02} {worker} {number:06} {part}").into()
}

/// One transaction: some rows that belong together, and a count of such transactions.
async fn write(store: &Store, round: u32, worker: u32, number: u32) -> Result<(), StoreError> {
    let committed = store.transact(|tx| async move {
        for part in 0..PARTS {
            tx.set(row(round, worker, number, part), Bytes::from(vec![part as u8; 50 + 400 * part]));
        }
        tx.add(Bytes::from_static(b"count"), 1);
        Ok(())
    });
    committed.await.map(|_| ())
}

async fn write_until_stopped(store: Store, round: u32, worker: u32) -> StoreError {
    for number in 0.. {
        if let Err(error) = write(&store, round, worker, number).await {
            return error;
        }
        // The acknowledgement: once this line is out, the rows must stay.
        writeln!(std::io::stderr(), "acknowledged {worker} {number}").expect("the parent listens");
    }
    unreachable!("the parent stops this process")
}

#[test]
fn writer_process() {
    let Ok(directory) = std::env::var(DIRECTORY) else { return };
    let round = std::env::var(ROUND).expect("the parent names the round").parse().expect("a number");
    let journal_bytes = std::env::var(JOURNAL_BYTES).ok().map(|text| text.parse().expect("a number"));
    if journal_bytes.is_some() {
        // Writing past the limit must fail, not kill.
        let mut signals = nix::sys::signal::SigSet::empty();
        signals.add(nix::sys::signal::Signal::SIGXFSZ);
        signals.thread_block().expect("the signal is blocked");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let backend =
            EmbeddedBackend::open(Path::new(&directory), EmbeddedOptions::default()).expect("the store opens");
        if let Some(bytes) = journal_bytes {
            let resource = nix::sys::resource::Resource::RLIMIT_FSIZE;
            nix::sys::resource::setrlimit(resource, bytes, bytes).expect("the limit is set");
        }
        let store = Store::new(backend.clone());
        let wanted = std::env::var(WORKERS_WANTED).ok().map(|text| text.parse().expect("a number"));
        let workers = (0..wanted.unwrap_or(WORKERS)).map(|worker| write_until_stopped(store.clone(), round, worker));
        for error in futures::future::join_all(workers).await {
            writeln!(std::io::stderr(), "stopped {error}").expect("the parent listens");
        }
        let read = backend.begin().get_many(&[Bytes::from_static(b"count")], Read::Snapshot).await;
        writeln!(std::io::stderr(), "read {}", read.is_ok()).expect("the parent listens");
        let closed = backend.close().await;
        writeln!(std::io::stderr(), "closed {}", closed.is_ok()).expect("the parent listens");
    });
}

fn start(directory: &Path, round: u32, journal_bytes: Option<u64>) -> Child {
    start_under(&[], directory, round, journal_bytes)
}

/// The child, started by another program.
fn start_under(program: &[&str], directory: &Path, round: u32, journal_bytes: Option<u64>) -> Child {
    let this: PathBuf = std::env::current_exe().expect("this binary has a path");
    let mut command = match program {
        [] => Command::new(this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
    };
    command.args(["--exact", "writer_process", "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory).env(ROUND, round.to_string());
    if let Some(bytes) = journal_bytes {
        command.env(JOURNAL_BYTES, bytes.to_string());
    }
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the child starts")
}

fn acknowledged(line: &str) -> Option<(u32, u32)> {
    let mut words = line.strip_prefix("acknowledged ")?.split(' ');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// Every transaction of which a row is there, after checking that all of it is, and that the count agrees.
async fn whole_transactions(directory: &Path) -> BTreeSet<(u32, u32, u32)> {
    let backend = EmbeddedBackend::open(directory, EmbeddedOptions::default()).expect("the store opens after a crash");
    let query = RangeQuery {
        begin: Bytes::from_static(b"row"),
        end: Bytes::from_static(b"rox"),
        limit: usize::MAX,
        reverse: false,
        read: Read::Snapshot,
    };
    let tx = backend.begin();
    let rows = tx.range(&query).await.expect("the rows are read");
    let mut whole = BTreeSet::new();
    assert_eq!(rows.len() % PARTS, 0, "no transaction is there by halves");
    for parts in rows.chunks(PARTS) {
        let text = String::from_utf8(parts[0].key.to_vec()).expect("keys are text");
        let mut words = text.split(' ').skip(1).map(|word| word.parse::<u32>().expect("a number"));
        let mut next = || words.next().expect("three numbers");
        let (round, worker, number) = (next(), next(), next());
        for (part, pair) in parts.iter().enumerate() {
            assert_eq!(pair.key, row(round, worker, number, part));
            assert_eq!(pair.value, vec![part as u8; 50 + 400 * part]);
        }
        whole.insert((round, worker, number));
    }
    let count =
        tx.get_many(&[Bytes::from_static(b"count")], Read::Snapshot).await.expect("the count is read").remove(0);
    let count = count.map_or(0, |count| i64::from_le_bytes(count[..].try_into().expect("a counter has 8 bytes")));
    assert_eq!(count, whole.len() as i64);
    backend.close().await.expect("the store closes");
    whole
}

#[tokio::test]
async fn kill_9_loses_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().expect("a directory is made");
    let mut kept = BTreeSet::new();
    let mut random = fastrand::Rng::with_seed(9);
    for round in 0..6 {
        let mut child = start(directory.path(), round, None);
        let mut lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let mut acknowledgements = BTreeSet::new();
        let enough = random.usize(50..800);
        while acknowledgements.len() < enough {
            let line = lines.next().expect("the child goes on until it is killed").expect("the line is read");
            acknowledgements.extend(acknowledged(&line).map(|(worker, number)| (round, worker, number)));
        }
        child.kill().expect("the child is killed");
        child.wait().expect("the child is gone");
        // What it had written to the pipe before it died was acknowledged too.
        let rest = lines.map_while(Result::ok).filter_map(|line| acknowledged(&line));
        acknowledgements.extend(rest.map(|(worker, number)| (round, worker, number)));
        let whole = whole_transactions(directory.path()).await;
        assert!(acknowledgements.is_subset(&whole), "round {round} lost something acknowledged");
        assert!(kept.is_subset(&whole), "round {round} lost something of an earlier one");
        assert!(
            whole.len() <= kept.len() + acknowledgements.len() + WORKERS as usize,
            "one more per worker at the most"
        );
        kept = whole;
    }
}

/// A child that stops by itself: what it said, and what it had acknowledged.
struct Stopped {
    lines: Vec<String>,
    acknowledged: BTreeSet<(u32, u32, u32)>,
}

impl Stopped {
    fn wait_for(mut child: Child) -> Self {
        let lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
        let lines: Vec<String> = lines.map_while(Result::ok).take(LINES_MAX).collect();
        // It has gone by itself, or never will.
        let _ = child.kill();
        child.wait().expect("the child is gone");
        let numbers = lines.iter().filter_map(|line| acknowledged(line));
        let acknowledged = numbers.map(|(worker, number)| (0, worker, number)).collect();
        Self { lines, acknowledged }
    }

    /// Each worker's commit had an unknown result, and its next run was refused with the reason; nothing was read or acknowledged after.
    fn assert_for_good(&self) {
        let Self { lines, acknowledged } = self;
        assert!(acknowledged.len() > 20, "{lines:?}");
        let stopped =
            |line: &&String| line.starts_with("stopped the store is unavailable: writing to the journal failed");
        assert_eq!(lines.iter().filter(stopped).count(), WORKERS as usize, "{lines:?}");
        let first = lines.iter().position(|line| line.starts_with("stopped")).unwrap_or(lines.len());
        assert!(!lines[first..].iter().any(|line| line.starts_with("acknowledged")), "{lines:?}");
        assert!(lines.contains(&"read false".into()) && lines.contains(&"closed false".into()), "{lines:?}");
    }

    /// The directory, opened again, has all that was acknowledged, and of the rest only what was under way.
    async fn assert_kept_in(&self, directory: &Path) {
        let whole = whole_transactions(directory).await;
        assert!(self.acknowledged.is_subset(&whole));
        assert!(whole.len() <= self.acknowledged.len() + WORKERS as usize);
    }
}

#[tokio::test]
async fn a_failed_write_stops_the_store_for_good() {
    let directory = tempfile::tempdir().expect("a directory is made");
    let stopped = Stopped::wait_for(start(directory.path(), 0, Some(1_500_000)));
    stopped.assert_for_good();
    stopped.assert_kept_in(directory.path()).await;
}

/// Says in one line that a test did not run, and why. The test runner shows it.
fn skip(test: &str, reason: &str) {
    // Not `eprintln!`, which the test runner holds back.
    let _ = writeln!(std::io::stderr(), "\n{test}: SKIPPED: {reason}");
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let quiet = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    quiet.is_ok_and(|status| status.success())
}

#[tokio::test]
async fn a_failed_fsync_stops_the_store_for_good() {
    let inject =
        ["strace", "-f", "-qq", "-o", "/dev/null", "-e", "trace=fsync", "-e", "inject=fsync:error=EIO:when=60+"];
    if !succeeds("strace", &["-f", "-qq", "-o", "/dev/null", "true"]) {
        return skip("a_failed_fsync_stops_the_store_for_good", "it needs `strace`, and leave to trace a child");
    }
    let directory = tempfile::tempdir().expect("a directory is made");
    let stopped = Stopped::wait_for(start_under(&inject, directory.path(), 0, None));
    stopped.assert_for_good();
    assert!(
        stopped.lines.iter().any(|line| line.contains("os error 5") || line.contains("code: 5")),
        "{:?}",
        stopped.lines
    );
    stopped.assert_kept_in(directory.path()).await;
}

/// What a system-call trace tells of the order in which one writer's commits were written, forced to the disk and acknowledged.
#[tokio::test]
async fn what_is_acknowledged_was_forced_to_the_disk_before() {
    let name = "what_is_acknowledged_was_forced_to_the_disk_before";
    if !succeeds("strace", &["-f", "-qq", "-o", "/dev/null", "true"]) {
        return skip(name, "it needs `strace`, and leave to trace a child");
    }
    let directory = tempfile::tempdir().expect("a directory is made");
    let trace = directory.path().join("trace");
    let calls = "trace=write,writev,pwrite64,fsync,fdatasync";
    let traced = ["strace", "-f", "-qq", "-y", "-o", trace.to_str().expect("a path in UTF-8"), "-e", calls];
    let mut command = Command::new(traced[0]);
    command.args(&traced[1..]).arg(std::env::current_exe().expect("this binary has a path"));
    command.args(["--exact", "writer_process", "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory.path().join("store")).env(ROUND, "0").env(WORKERS_WANTED, "1");
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the child starts");
    let lines = BufReader::new(child.stderr.take().expect("stderr is piped")).lines();
    let heard = lines.map_while(Result::ok).filter(|line| acknowledged(line).is_some()).take(100).count();
    child.kill().expect("the tracer is killed");
    child.wait().expect("the tracer is gone");
    let trace = std::fs::read_to_string(&trace).expect("the trace is written");
    let (mut commits, mut is_synced) = (0, true);
    for line in trace.lines() {
        let in_database = line.contains("/store/db/");
        if line.contains("write") && in_database && !line.contains("resumed") {
            is_synced = false;
        } else if line.contains("sync") && line.ends_with("= 0") {
            is_synced = true;
        } else if line.contains("\"acknowledged \"") {
            assert!(is_synced, "acknowledged before it was forced to the disk: {line}");
            commits += 1;
        }
    }
    assert!(commits > 50 && heard == 100, "{commits} of {heard} acknowledgements were traced: {trace}");
}

/// A file system in memory, gone when this is.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new(size: &str) -> Option<Self> {
        let disk = Self(tempfile::tempdir().expect("a directory is made"));
        let path = disk.0.path().to_str()?;
        succeeds("mount", &["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs", path]).then_some(disk)
    }

    fn grow(&self, size: &str) {
        let path = self.0.path().to_str().expect("a path in UTF-8");
        assert!(succeeds("mount", &["-o", &format!("remount,size={size}"), path]), "the disk grows");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_stops_the_store_and_loses_nothing() {
    let Some(disk) = SmallDisk::new("2m") else {
        return skip("a_full_disk_stops_the_store_and_loses_nothing", "it may not mount a file system");
    };
    let directory = disk.0.path().join("store");
    let stopped = Stopped::wait_for(start(&directory, 0, None));
    stopped.assert_for_good();
    assert!(
        stopped.lines.iter().any(|line| line.contains("StorageFull") || line.contains("code: 28")),
        "{:?}",
        stopped.lines
    );
    // While it is full it does not open, and says why.
    match EmbeddedBackend::open(&directory, EmbeddedOptions::default()) {
        Ok(backend) => backend.close().await.expect("what opens on a full disk closes too"),
        Err(error) => assert!(error.to_string().contains("No space left"), "{error}"),
    }
    disk.grow("200m");
    stopped.assert_kept_in(&directory).await;
}
