//! The counters of buckets: each says how many of its executions are open.

use std::collections::BTreeMap;

use compline_core::ids::{ExecutionId, ShardId};

use super::{Finding, Kind, PAGE_ROWS};
use crate::backend::{RangeQuery, Read};
use crate::keys::{KeyBuilder, Table, after};
use crate::tables::execution;
use crate::{Store, StoreError, Tx};

pub(super) use crate::tables::execution::decode_bucket as decode;

/// A bucket that seems wrong is counted so often, before it is called wrong or too busy to tell.
const COUNTS_MAX: usize = 5;

#[derive(Default)]
pub(super) struct Buckets {
    /// How many open executions the pages had, by bucket. A bucket that has only closed ones is here too.
    seen: BTreeMap<(ShardId, u32), i64>,
}

#[derive(Default)]
pub(super) struct Counted {
    pub findings: Vec<Finding>,
    pub busy: u64,
}

enum Verdict {
    Right,
    Wrong(String),
    Busy,
}

impl Buckets {
    pub(super) fn count(&mut self, open: &[ExecutionId], closed: &[ExecutionId]) {
        for (ids, each) in [(open, 1), (closed, 0)] {
            for id in ids {
                *self.seen.entry((id.shard(), id.bucket_hour())).or_default() += each;
            }
        }
    }

    /// Compares with the counters.
    pub(super) async fn check(mut self, store: &Store) -> Result<Counted, StoreError> {
        let mut counted = Counted::default();
        let (mut begin, end) = KeyBuilder::new(Table::Bucket).prefix();
        let mut suspects = Vec::new();
        loop {
            let (from, end) = (&begin, &end);
            let read = store.transact(|tx| async move {
                let limit = PAGE_ROWS;
                tx.range(&RangeQuery {
                    begin: from.clone(),
                    end: end.clone(),
                    limit,
                    reverse: false,
                    read: Read::Snapshot,
                })
                .await
            });
            let pairs = read.await?.value;
            for pair in &pairs {
                // One that cannot be read was found with its table.
                let Ok((shard, hour, open)) = decode(&pair.key, &pair.value) else { continue };
                if self.seen.remove(&(shard, hour)).unwrap_or(0) != open {
                    suspects.push((shard, hour));
                }
            }
            match pairs.last() {
                Some(last) if pairs.len() == PAGE_ROWS => begin = after(&last.key),
                _ => break,
            }
        }
        // What is left has rows, and no counter.
        suspects.extend(self.seen.into_keys());
        for (shard, hour) in suspects {
            match verdict(store, shard, hour).await? {
                Verdict::Right => {}
                Verdict::Busy => counted.busy += 1,
                Verdict::Wrong(problem) => {
                    let key = execution::bucket_key(shard, hour).escape_ascii().to_string();
                    counted.findings.push(Finding { kind: Kind::Mismatch, table: Table::Bucket.name(), key, problem });
                }
            }
        }
        Ok(counted)
    }
}

async fn verdict(store: &Store, shard: ShardId, hour: u32) -> Result<Verdict, StoreError> {
    let mut wrong = 0;
    for _ in 0..COUNTS_MAX {
        let before = counter(store, shard, hour).await?;
        let (open, rows) = count(store, shard, hour).await?;
        if counter(store, shard, hour).await? != before {
            continue;
        }
        if before == Some(open) || (before.is_none() && rows == 0) {
            return Ok(Verdict::Right);
        }
        wrong += 1;
        // A change that was undone again during the count can hide from the counter; hardly twice.
        if wrong == 2 {
            return Ok(Verdict::Wrong(match before {
                Some(counter) => format!("the counter says {counter} and {open} executions are open"),
                None => format!("there are {rows} executions, {open} of them open, and no counter"),
            }));
        }
    }
    Ok(Verdict::Busy)
}

async fn counter(store: &Store, shard: ShardId, hour: u32) -> Result<Option<i64>, StoreError> {
    let read = |tx: Tx| async move { execution::open_in(&tx, shard, hour, Read::Snapshot).await };
    Ok(store.transact(read).await?.value)
}

/// How many executions of a bucket are open, and how many there are. Those that cannot be read are left out: nobody can say.
async fn count(store: &Store, shard: ShardId, hour: u32) -> Result<(i64, u64), StoreError> {
    let (mut open, mut rows) = (0, 0);
    let (mut begin, end) = execution::bucket_range(shard, hour);
    loop {
        let (from, end) = (&begin, &end);
        let page = store.transact(|tx| async move {
            let query = RangeQuery {
                begin: from.clone(),
                end: end.clone(),
                limit: PAGE_ROWS,
                reverse: false,
                read: Read::Snapshot,
            };
            tx.range(&query).await
        });
        let page = page.await?.value;
        let read = page.iter().filter_map(|pair| execution::decode(&pair.key, &pair.value).ok());
        open += read.filter(|row| !row.execution.state.is_terminal()).count() as i64;
        rows += page.len() as u64;
        match page.last() {
            Some(last) if page.len() == PAGE_ROWS => begin = after(&last.key),
            _ => return Ok((open, rows)),
        }
    }
}
