//! Executions: each has the place that its state asks for, is listed, and has its job.

use bytes::Bytes;
use compline_core::execution::{Queued, State};
use compline_core::ids::ExecutionId;
use compline_core::job::Job;

use super::{Expected, Kind, Notes, Page, expect, jobs_of};
use crate::backend::{KeyValue, Read};
use crate::tables::execution::{self, ExecutionRow};
use crate::tables::queue::{self, ByTime, Part, ZONE_DEFAULT};
use crate::tables::{bucket, history, live, running};
use crate::{StoreError, Tx};

pub(super) async fn check(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes, page: &mut Page) -> Result<(), StoreError> {
    let mut rows: Vec<(&Bytes, ExecutionRow)> = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let Some(row) = notes.read(&pair.key, execution::decode(&pair.key, &pair.value)) else { continue };
        let id = row.execution.id;
        if execution::key(id) == pair.key {
            rows.push((&pair.key, row));
        } else {
            notes.add(Kind::Mismatch, &pair.key, format!("it holds {id}, whose row lies elsewhere"));
        }
    }
    let jobs = jobs_of(tx, rows.iter().map(|(_, row)| row.execution.job)).await?;
    // What has ended in a bucket that is being dropped is on its way out: its entries go before it.
    let ids: Vec<ExecutionId> = rows.iter().map(|(_, row)| row.execution.id).collect();
    let leaving = bucket::are_dropping(tx, &ids, Read::Snapshot).await?;
    let mut expected = Vec::with_capacity(rows.len() * 3);
    for ((key, row), leaving) in rows.iter().zip(leaving) {
        let execution = &row.execution;
        if execution.state.is_terminal() { &mut page.closed } else { &mut page.open }.push(execution.id);
        let Some(job) = jobs.get(&execution.job) else {
            notes.add(Kind::Orphan, key, format!("{} is of {}, which has no row", execution.id, execution.job));
            continue;
        };
        // Without the definition neither lane nor tenant is known.
        let Some(job) = job else { continue };
        expected.extend(place(key, row));
        if !(leaving && execution.state.is_terminal()) {
            expected.extend(listings(key, row, job));
        }
    }
    expect(tx, expected, notes).await
}

fn place(key: &Bytes, row: &ExecutionRow) -> Option<Expected> {
    let execution = &row.execution;
    let (counterpart, place) = match &execution.state {
        State::Pending { due } | State::Retrying { due } => {
            (ByTime::Due.key(queue::due_instant(*due), execution.id), "due row")
        }
        State::Owed(owed) => {
            (ByTime::Owed(&owed.lane).key(queue::due_instant(owed.due), execution.id), "row among what is owed")
        }
        State::Queued(queued) => {
            let Queued { lane, owed, partition, .. } = queued;
            let part = Part { lane, owed: *owed, zone: ZONE_DEFAULT, partition: *partition };
            (part.key(row.stamp), "row in its lane")
        }
        State::Running(held) => (running::key(held.session, execution.id), "row with its session"),
        State::Waiting { due, .. } => (
            live::waiting_key_of(execution.job, queue::due_instant(*due), execution.id),
            "row with its job's waiting ones",
        ),
        State::Completed { .. } | State::Failed { .. } | State::Cancelled { .. } | State::Skipped { .. } => {
            return None;
        }
    };
    let problem = format!("{} is {} and has no {place}", execution.id, execution.state.name());
    Some(Expected { key: key.clone(), counterpart, kind: Kind::Mismatch, problem })
}

fn listings(key: &Bytes, row: &ExecutionRow, job: &Job) -> Vec<Expected> {
    let execution = &row.execution;
    let mut keys = vec![
        (history::job_key(job.id, execution.slot, execution.id), "its job's history"),
        (history::tenant_key(&job.tenant, execution.id), "its tenant's runs"),
    ];
    if let State::Failed { .. } = execution.state {
        keys.push((history::failed_key(&job.tenant, execution.id), "its tenant's failures"));
        keys.push((history::job_failed_key(job.id, execution.id), "its job's failures"));
    }
    let expected = |(counterpart, listing)| Expected {
        key: key.clone(),
        counterpart,
        kind: Kind::Mismatch,
        problem: format!("{} is not listed among {listing}", execution.id),
    };
    keys.into_iter().map(expected).collect()
}
