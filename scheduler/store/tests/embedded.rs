//! What only a store on disk must do: keep what it acknowledged, refuse what it can't vouch for, and find the front of a FIFO.
#![cfg(feature = "embedded")]

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use compline_store::backend::embedded::{EmbeddedBackend, EmbeddedOptions};
use compline_store::backend::{Backend, RangeQuery, Read, Transaction};
use compline_store::{Stamp, Store, StoreError, Versionstamp};

fn open(directory: &Path) -> Result<Arc<EmbeddedBackend>, StoreError> {
    EmbeddedBackend::open(directory, EmbeddedOptions::default())
}

fn refusal(directory: &Path) -> String {
    match open(directory) {
        Ok(_) => panic!("the store must not open"),
        Err(error) => error.to_string(),
    }
}

fn key(name: &str) -> Bytes {
    Bytes::copy_from_slice(name.as_bytes())
}

async fn put(backend: &EmbeddedBackend, name: &str, value: &str) -> Versionstamp {
    let tx = backend.begin();
    tx.set(key(name), key(value));
    tx.commit().await.expect("the commit succeeds").expect("it wrote")
}

async fn get(backend: &EmbeddedBackend, name: &str) -> Option<Bytes> {
    let tx = backend.begin();
    tx.get_many(&[key(name)], Read::Snapshot).await.expect("the read succeeds").pop().flatten()
}

#[tokio::test]
async fn versions_go_on_after_reopening() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let mut last = Versionstamp::new(0, 0);
    for round in 0..4 {
        let backend = open(directory.path())?;
        for index in 0..5 {
            let stamp = put(&backend, &format!("{round} {index}"), "1").await;
            assert!(last < stamp);
            last = stamp;
        }
        for earlier in 0..=round {
            assert!(get(&backend, &format!("{earlier} 4")).await.is_some());
        }
        if round % 2 == 0 {
            backend.close().await?;
            backend.close().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_closed_store_answers_and_lets_go() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let backend = open(directory.path())?;
    put(&backend, "a", "1").await;
    let late = backend.begin();
    late.get_many(&[key("a")], Read::Snapshot).await?;
    late.set(key("a"), key("2"));
    backend.close().await?;
    assert!(matches!(late.commit().await, Err(StoreError::Unavailable(_))));
    assert!(matches!(late.get_many(&[key("a")], Read::Snapshot).await, Err(StoreError::Unavailable(_))));
    // The old handles are still alive, but the directory is free.
    let again = open(directory.path())?;
    assert_eq!(get(&again, "a").await, Some(key("1")));
    Ok(())
}

#[tokio::test]
async fn a_directory_in_use_is_refused() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let first = open(directory.path())?;
    let sentence = refusal(directory.path());
    assert!(sentence.contains(&*directory.path().to_string_lossy()), "{sentence}");
    assert!(sentence.contains("stop that process"), "{sentence}");
    put(&first, "a", "1").await;
    Ok(())
}

/// The one journal, and how much of it is written.
fn journal(directory: &Path) -> Result<(PathBuf, u64), std::io::Error> {
    for entry in std::fs::read_dir(directory.join("db"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "jnl") {
            let bytes = std::fs::read(&path)?;
            let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            return Ok((path, written as u64));
        }
    }
    Err(std::io::Error::other("there is no journal"))
}

async fn filled(directory: &Path) -> Result<(), StoreError> {
    let backend = open(directory)?;
    for index in 0..20 {
        put(&backend, &format!("row {index:02}"), "value").await;
    }
    backend.close().await
}

#[tokio::test]
async fn a_journal_cut_below_what_was_acknowledged_is_refused() -> Result<(), Box<dyn std::error::Error>> {
    for lost_bytes in [1, 40, 500] {
        let directory = tempfile::tempdir()?;
        filled(directory.path()).await?;
        let (path, written) = journal(directory.path())?;
        OpenOptions::new().write(true).open(path)?.set_len(written - lost_bytes)?;
        for _ in 0..2 {
            let sentence = refusal(directory.path());
            assert!(sentence.contains("has lost commits"), "{sentence}");
            assert!(sentence.contains("up to 20 were acknowledged"), "{sentence}");
        }
        // The way on that the sentence names.
        std::fs::remove_file(directory.path().join("durable"))?;
        let backend = open(directory.path())?;
        assert_eq!(get(&backend, "row 00").await, Some(key("value")));
        assert_eq!(get(&backend, "row 19").await, None);
    }
    Ok(())
}

#[tokio::test]
async fn a_damaged_journal_is_refused() -> Result<(), Box<dyn std::error::Error>> {
    use std::os::unix::fs::FileExt;
    // In the first, a middle and the last batch: a byte of a row's key, of its value, and of the lengths before it.
    for (name, offset) in [("row 00", 3), ("row 07", 8), ("row 07", -3), ("row 19", 8), ("row 19", -9)] {
        let directory = tempfile::tempdir()?;
        filled(directory.path()).await?;
        let (path, _) = journal(directory.path())?;
        let bytes = std::fs::read(&path)?;
        let row = bytes.windows(name.len()).position(|window| window == name.as_bytes()).ok_or("the row is there")?;
        let position = row.checked_add_signed(offset).ok_or("the position is in the file")?;
        OpenOptions::new().write(true).open(path)?.write_all_at(&[bytes[position] ^ 0x55], position as u64)?;
        let sentence = refusal(directory.path());
        assert!(sentence.contains("backup"), "{name} {offset}: {sentence}");
    }
    Ok(())
}

#[tokio::test]
async fn a_torn_tail_that_was_never_acknowledged_is_dropped() -> Result<(), Box<dyn std::error::Error>> {
    use std::os::unix::fs::FileExt;
    let directory = tempfile::tempdir()?;
    filled(directory.path()).await?;
    let (path, written) = journal(directory.path())?;
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let mut begun = [0; 60];
    file.read_exact_at(&mut begun, written - 160)?;
    file.write_all_at(&begun, written)?;
    drop(file);
    let backend = open(directory.path())?;
    assert_eq!(get(&backend, "row 19").await, Some(key("value")));
    assert!(put(&backend, "a", "1").await > Versionstamp::new(20, 0));
    Ok(())
}

#[tokio::test]
async fn a_damaged_mark_is_refused() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    filled(directory.path()).await?;
    File::create(directory.path().join("durable"))?;
    let sentence = refusal(directory.path());
    assert!(sentence.contains("remove the file and start again"), "{sentence}");
    Ok(())
}

#[tokio::test]
async fn a_first_start_that_was_killed_half_way_is_begun_again() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    std::fs::create_dir_all(directory.path().join("db/keyspaces"))?;
    for left_over in ["db/lock", "db/0.jnl", "durable.new"] {
        File::create(directory.path().join(left_over))?;
    }
    put(&*open(directory.path())?, "a", "1").await;

    // With a mark there was something, so nothing is thrown away.
    std::fs::remove_file(directory.path().join("db/version"))?;
    refusal(directory.path());
    assert!(directory.path().join("db/0.jnl").exists());
    Ok(())
}

#[tokio::test]
async fn commits_in_flight_together_share_an_fsync() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let backend = open(directory.path())?;
    let transactions: Vec<_> = (0..400).map(|index| (index, backend.begin())).collect();
    let commits = transactions.iter().map(|(index, tx)| {
        tx.add(key("sum"), *index);
        tx.set(key(&format!("row {index:03}")), key("1"));
        tx.commit()
    });
    for commit in futures::future::join_all(commits).await {
        commit?;
    }
    let metrics = backend.metrics();
    assert_eq!(metrics.commits, 400);
    assert!(metrics.groups < 200, "{metrics:?}");
    let sum: i64 = (0..400).sum();
    assert_eq!(get(&backend, "sum").await.as_deref(), Some(&sum.to_le_bytes()[..]), "additions of one group add up");
    Ok(())
}

#[tokio::test]
async fn order_inside_a_group_is_the_order_of_versions() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let backend = open(directory.path())?;
    put(&backend, "b", "old").await;
    // Queued at one go: set, clear the span, add inside it, set again. Each sees what the ones before it did.
    let steps: Vec<Box<dyn Transaction>> = (0..5).map(|_| backend.begin()).collect();
    steps[0].set(key("a"), Bytes::copy_from_slice(&5_i64.to_le_bytes()));
    steps[1].add(key("a"), 2);
    steps[2].clear_range(key("a"), key("c"));
    steps[3].add(key("a"), 3);
    steps[4].set(key("c"), key("last"));
    for commit in futures::future::join_all(steps.iter().map(|tx| tx.commit())).await {
        commit?;
    }
    assert_eq!(get(&backend, "a").await.as_deref(), Some(&3_i64.to_le_bytes()[..]));
    assert_eq!(get(&backend, "b").await, None);
    assert_eq!(get(&backend, "c").await, Some(key("last")));
    Ok(())
}

const FRONT: usize = 256;

fn fifo_prefix(key: &[u8]) -> Option<usize> {
    key.starts_with(b"q/").then_some(2)
}

/// A FIFO, and what it should hold.
struct Fifo {
    backend: Arc<EmbeddedBackend>,
    live: BTreeSet<Bytes>,
    removed: BTreeSet<Bytes>,
}

impl Fifo {
    async fn insert(&mut self, names: impl Iterator<Item = String>) {
        let tx = self.backend.begin();
        for name in names {
            tx.set(key(&name), Bytes::new());
            self.removed.remove(name.as_bytes());
            self.live.insert(key(&name));
        }
        tx.commit().await.expect("it commits");
    }

    async fn front(&self, tx: &dyn Transaction) -> Vec<Bytes> {
        let query = RangeQuery { begin: key("q/"), end: key("q0"), limit: FRONT, reverse: false, read: Read::Snapshot };
        tx.range(&query).await.expect("the scan succeeds").into_iter().map(|pair| pair.key).collect()
    }

    /// Takes from the front, and tells how many removed keys the scan stepped over: those between its begin and the last row returned.
    async fn take(&mut self) -> usize {
        let tx = self.backend.begin();
        let mark = self.backend.low_water(b"q/").unwrap_or_else(|| key("q/"));
        let before = self.backend.metrics();
        let front = self.front(&*tx).await;
        let after = self.backend.metrics();
        let expected: Vec<_> = self.live.iter().take(FRONT).cloned().collect();
        assert_eq!(front, expected);
        let used_mark = after.fifo_scans_from_mark - before.fifo_scans_from_mark;
        let from = if used_mark == 1 { mark } else { key("q/") };
        let stepped = match front.last() {
            Some(last) if from < *last => self.removed.range(from..last.clone()).count(),
            _ => 0,
        };
        for row in front {
            tx.clear(row.clone());
            self.live.remove(&row);
            self.removed.insert(row);
        }
        tx.commit().await.expect("it commits");
        stepped
    }
}

#[tokio::test]
async fn the_front_of_a_fifo_is_found_without_stepping_over_what_was_removed() -> Result<(), Box<dyn std::error::Error>>
{
    let directory = tempfile::tempdir()?;
    let options = EmbeddedOptions { fifo_prefix, ..EmbeddedOptions::default() };
    let backend = EmbeddedBackend::open(directory.path(), options)?;
    let mut fifo = Fifo { backend, live: BTreeSet::new(), removed: BTreeSet::new() };
    for batch in 0..55 {
        fifo.insert((0..2_000).map(|index| format!("q/{:08}", 1_000_000 + batch * 2_000 + index))).await;
    }
    let mut stale = None;
    let (mut round, mut stepped_most) = (0, 0);
    while !fifo.live.is_empty() {
        let stepped = fifo.take().await;
        if round > 0 {
            stepped_most = stepped_most.max(stepped);
        }
        // A reader from ten rounds ago still finds the front that it had.
        if round % 50 == 10 {
            let tx = fifo.backend.begin();
            let front = fifo.front(&*tx).await;
            stale = Some((tx, front));
        }
        if round % 50 == 20
            && let Some((tx, front)) = stale.take()
        {
            assert_eq!(fifo.front(&*tx).await, front);
        }
        // Below the front, far and near, new and removed before.
        if round % 50 == 30 {
            let near = 1_000_000 + round * FRONT - 1_000;
            fifo.insert([format!("q/{round:08}"), format!("q/{:08}", 1_000_000), format!("q/{near:08}")].into_iter())
                .await;
        }
        round += 1;
    }
    assert!(fifo.removed.len() > 100_000, "{}", fifo.removed.len());
    assert!(stepped_most <= 2 * FRONT, "a scan stepped over {stepped_most} removed keys");
    let metrics = fifo.backend.metrics();
    assert!(metrics.fifo_scans_from_mark + 2 >= metrics.fifo_scans, "{metrics:?}");

    // Emptied, it begins where it is written next.
    assert_eq!(fifo.take().await, 0);
    fifo.insert(std::iter::once("q/90000000".into())).await;
    assert_eq!(fifo.backend.low_water(b"q/"), Some(key("q/90000000")));
    assert_eq!(fifo.take().await, 0);
    Ok(())
}

const PRODUCERS: u32 = 3;
const BATCHES: u32 = 30;
const ROWS: u32 = 20;

/// Adds rows at the back, and now and then one before the front.
async fn produce(store: Store, producer: u32) {
    for batch in 0..BATCHES {
        let added = store.transact(|tx| async move {
            for _ in 1..ROWS {
                let row = [b"q/".as_slice(), &Stamp::unset(tx.next_stamp_index()).0].concat();
                tx.set_stamped_key(row, 2, Bytes::new());
            }
            let early = [b"q/".as_slice(), &[0; 8], &batch.to_be_bytes(), &producer.to_be_bytes()].concat();
            tx.set(early.into(), Bytes::new());
            Ok(())
        });
        added.await.expect("it commits");
    }
}

/// Takes rows from the front until all were taken by somebody.
async fn consume(store: Store) -> usize {
    let mut taken = 0;
    loop {
        let query = RangeQuery { begin: key("q/"), end: key("q0"), limit: 16, reverse: false, read: Read::Snapshot };
        let query = &query;
        let took = store.transact(|tx| async move {
            let rows = tx.range(query).await?;
            for row in &rows {
                tx.depend_on(&row.key);
                tx.clear(row.key.clone());
            }
            tx.add(key("count"), rows.len() as i64);
            let count = tx.get(key("count"), Read::Snapshot).await?.unwrap_or_default();
            Ok((rows.len(), i64::from_le_bytes(count[..].try_into().expect("a counter has 8 bytes"))))
        });
        let (rows, count) = took.await.expect("it commits").value;
        taken += rows;
        if count >= i64::from(PRODUCERS * BATCHES * ROWS) {
            return taken;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fifo_under_concurrency_gives_each_row_once() -> Result<(), Box<dyn std::error::Error>> {
    let directory = tempfile::tempdir()?;
    let options = EmbeddedOptions { fifo_prefix, ..EmbeddedOptions::default() };
    let backend = EmbeddedBackend::open(directory.path(), options)?;
    let store = Store::new(backend.clone());
    let producers: Vec<_> = (0..PRODUCERS).map(|producer| tokio::spawn(produce(store.clone(), producer))).collect();
    let consumers: Vec<_> = (0..4).map(|_| tokio::spawn(consume(store.clone()))).collect();
    futures::future::try_join_all(producers).await?;
    // A row that no scan finds would keep the consumers looking for it for ever.
    let taken = tokio::time::timeout(Duration::from_secs(60), futures::future::try_join_all(consumers)).await??;
    let taken: usize = taken.into_iter().sum();
    assert_eq!(taken, (PRODUCERS * BATCHES * ROWS) as usize);
    let all = RangeQuery { begin: key("q"), end: key("r"), limit: usize::MAX, reverse: true, read: Read::Snapshot };
    assert!(backend.begin().range(&all).await?.is_empty());
    let metrics = backend.metrics();
    assert!(metrics.fifo_scans_from_mark * 2 > metrics.fifo_scans, "{metrics:?}");
    Ok(())
}
