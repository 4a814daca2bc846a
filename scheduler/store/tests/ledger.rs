//! The ledger's rows come back as they were written, in order, on the memory backend.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::ids::JobId;
use compline_core::ledger::{Change, SkipReason};
use compline_core::schedule::ScheduleSpec;
use compline_store::backend::memory::{MemoryBackend, MemoryOptions};
use compline_store::tables::ledger::{self, Entry, Mark, Stretch};
use compline_store::{Store, StoreError};

fn at(second: u64) -> Timestamp {
    Timestamp::from_unix_seconds(1_796_000_000) + Duration::from_secs(second)
}

#[tokio::test]
async fn stretches_and_marks_come_back_in_order() -> Result<(), StoreError> {
    let store = Store::new(MemoryBackend::new(MemoryOptions::default()));
    let (job, other) = (JobId::new(at(0), 1), JobId::new(at(0), 2));
    let stretch = |from, until| Stretch { from, until, reason: SkipReason::Paused, detail: None };
    let edited = Change::Edited { schedule_before: ScheduleSpec::cron("0 * * * *") };
    let mark = |revision, change: &Change| Mark { at: at(30), revision, change: change.clone() };
    let (first, second) = (mark(2, &edited), mark(3, &Change::Paused));
    let (first, second) = (&first, &second);
    // Twice: a transaction whose result is unknown is run again.
    for _ in 0..2 {
        store
            .transact(|tx| async move {
                ledger::add_range(&tx, job, at(10), at(20), SkipReason::Paused)?;
                ledger::add_range(&tx, job, at(40), at(40), SkipReason::Paused)?;
                ledger::add_range(&tx, other, at(5), at(50), SkipReason::Quota)?;
                ledger::add_mark(&tx, job, first)?;
                ledger::add_mark(&tx, job, second)
            })
            .await?;
    }
    let rows = [Entry::Stretch(stretch(at(10), at(20))), Entry::Mark(first.clone()), Entry::Mark(second.clone())];
    let read = |rows: Vec<Result<Entry, StoreError>>| rows.into_iter().collect::<Result<Vec<_>, _>>();
    let oldest = store.transact(|tx| async move { ledger::from(&tx, job, at(0), 10).await }).await?.value;
    assert_eq!(read(oldest)?, rows);
    let later = store.transact(|tx| async move { ledger::from(&tx, job, at(11), 1).await }).await?.value;
    assert_eq!(read(later)?, rows[1..2]);
    let newest = store.transact(|tx| async move { ledger::newest(&tx, job, Some(at(30)), 10).await }).await?.value;
    assert_eq!(read(newest)?, rows[..1]);
    Ok(())
}
