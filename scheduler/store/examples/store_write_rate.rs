//! How many executions a second the embedded store takes, with the writes of a recurring job: 11 small ones per execution, 256 executions a
//! commit, an fsync before each acknowledgement.
//!
//! ```text
//! cargo run -p compline-store --example store_write_rate -- DIRECTORY [SECONDS] [COMMITTERS]
//! ```
//!
//! Each round of a committer is a tick (clear due, write ready and the next due, execution, history), a claim (take ready rows from the front
//! of a FIFO, write running) and a completion. It prints one line of JSON.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use compline_store::backend::embedded::{EmbeddedBackend, EmbeddedOptions};
use compline_store::backend::{RangeQuery, Read};
use compline_store::{Stamp, Store, StoreError, Tx};
use tokio::time::Instant;

const BATCH: u32 = 256;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let directory = PathBuf::from(arguments.next().ok_or("name a directory for the store")?);
    let seconds: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let committers: u32 = arguments.next().map_or(Ok(4), |text| text.parse())?;

    let options = EmbeddedOptions { fifo_prefix, ..EmbeddedOptions::default() };
    let opening = Instant::now();
    let backend = EmbeddedBackend::open(&directory, options.clone())?;
    let open = opening.elapsed();
    let store = Store::new(backend.clone());
    let started = Instant::now();
    let workers = (0..committers).map(|worker| work(store.clone(), worker, started + Duration::from_secs(seconds)));
    let rounds: Vec<(u64, Duration)> = futures::future::try_join_all(workers).await?;
    let elapsed = started.elapsed();
    let executions: u64 = rounds.iter().map(|(rounds, _)| rounds * u64::from(BATCH)).sum();
    let slowest = rounds.iter().map(|(_, slowest)| *slowest).max().unwrap_or_default();
    let (cost, metrics) = (store.cost(), backend.metrics());
    let closing = Instant::now();
    store.close().await?;
    let close = closing.elapsed();
    drop((store, backend));
    let opening = Instant::now();
    let reopened = EmbeddedBackend::open(&directory, options)?;
    let reopen = opening.elapsed();
    drop(reopened);
    writeln!(
        std::io::stdout(),
        "{{\"executions_per_second\":{:.0},\"commits\":{},\"groups\":{},\"conflicts\":{},\"writes_per_execution\":{:.1},\
         \"slowest_transaction_ms\":{},\"open_ms\":{},\"close_ms\":{},\"reopen_ms\":{}}}",
        executions as f64 / elapsed.as_secs_f64(),
        metrics.commits,
        metrics.groups,
        cost.conflicts,
        cost.key_writes as f64 / executions.max(1) as f64,
        slowest.as_millis(),
        open.as_millis(),
        close.as_millis(),
        reopen.as_millis(),
    )?;
    Ok(())
}

/// Due rows (`d`, worker) and ready rows (`r`, worker) are FIFOs.
fn fifo_prefix(key: &[u8]) -> Option<usize> {
    (key.len() >= 5 && matches!(key[0], b'd' | b'r')).then_some(5)
}

fn key(table: u8, worker: u32, number: u64, name: u32) -> Bytes {
    let mut key = Vec::with_capacity(33);
    key.push(table);
    key.extend_from_slice(&worker.to_be_bytes());
    key.extend_from_slice(&number.to_be_bytes());
    key.extend_from_slice(&[7; 16]);
    key.extend_from_slice(&name.to_be_bytes());
    key.into()
}

fn prefix(table: u8, worker: u32) -> (Bytes, Bytes) {
    let begin = [&[table][..], &worker.to_be_bytes()].concat();
    let end = [&[table][..], &(worker + 1).to_be_bytes()].concat();
    (begin.into(), end.into())
}

async fn work(store: Store, worker: u32, until: Instant) -> Result<(u64, Duration), StoreError> {
    let (mut round, mut slowest) = (0, Duration::ZERO);
    while Instant::now() < until {
        for pass in 0..3 {
            let started = Instant::now();
            store
                .transact(|tx| async move {
                    match pass {
                        0 => tick(&tx, worker, round),
                        1 => claim(&tx, worker, round).await?,
                        _ => complete(&tx, worker, round),
                    }
                    Ok(())
                })
                .await?;
            slowest = slowest.max(started.elapsed());
        }
        round += 1;
    }
    Ok((round, slowest))
}

fn tick(tx: &Tx, worker: u32, round: u64) {
    let row = Bytes::from_static(&[1; 90]);
    for name in 0..BATCH {
        tx.clear(key(b'd', worker, round, name));
        tx.set(key(b'd', worker, round + 1, name), Bytes::from_static(&[1; 16]));
        tx.set(key(b'x', worker, round, name), row.clone());
        tx.set(key(b'h', worker, round, name), Bytes::new());
        tx.set(key(b'j', worker, 0, name), Bytes::from_static(&[1; 40]));
        let ready = [&[b'r'][..], &worker.to_be_bytes(), &Stamp::unset(tx.next_stamp_index()).0].concat();
        tx.set_stamped_key(ready, 5, Bytes::from_static(&[1; 40]));
    }
}

async fn claim(tx: &Tx, worker: u32, round: u64) -> Result<(), StoreError> {
    let (begin, end) = prefix(b'r', worker);
    let query = RangeQuery { begin, end, limit: BATCH as usize, reverse: false, read: Read::Snapshot };
    for (name, ready) in (0..).zip(tx.range(&query).await?) {
        tx.depend_on(&ready.key);
        tx.clear(ready.key);
        tx.set(key(b'x', worker, round, name), Bytes::from_static(&[2; 100]));
        tx.set(key(b'n', worker, round, name), Bytes::from_static(&[1; 30]));
    }
    Ok(())
}

fn complete(tx: &Tx, worker: u32, round: u64) {
    for name in 0..BATCH {
        tx.clear(key(b'n', worker, round, name));
        tx.set(key(b'x', worker, round, name), Bytes::from_static(&[3; 110]));
    }
    tx.add(key(b'b', worker, 0, 0), i64::from(BATCH));
}
