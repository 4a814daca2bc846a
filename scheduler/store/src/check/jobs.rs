//! Jobs: each is listed under its tenant and has a run row, whose next slot is planned.

use bytes::Bytes;
use compline_core::execution::State;
use compline_core::ids::{ExecutionId, JobId};

use super::places::job_at;
use super::{Expected, Kind, Notes, expect};
use crate::backend::{KeyValue, Read};
use crate::keys::Table;
use crate::tables::{execution, finished, job, ledger};
use crate::{StoreError, Tx};

pub(super) async fn check_jobs(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes) -> Result<(), StoreError> {
    let mut expected = Vec::with_capacity(pairs.len() * 2);
    for KeyValue { key, value } in pairs {
        let read = job::decode_row(key, value).and_then(|row| Ok((job::id_of(key)?, row.definition()?)));
        let Some((id, definition)) = notes.read(key, read) else { continue };
        if definition.id != id {
            notes.add(Kind::Mismatch, key, format!("it holds the definition of {}", definition.id));
            continue;
        }
        let needs = |counterpart, problem: &str| Expected {
            key: key.clone(),
            counterpart,
            kind: Kind::Mismatch,
            problem: format!("{id} {problem}"),
        };
        expected.push(needs(job::run_key(id), "has no run row"));
        expected.push(needs(job::tenant_key(&definition.tenant, id), "is not listed under its tenant"));
    }
    expect(tx, expected, notes).await
}

pub(super) async fn check_runs(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes) -> Result<(), StoreError> {
    let mut planned: Vec<(&Bytes, JobId, ExecutionId)> = Vec::with_capacity(pairs.len());
    let mut owned = Vec::with_capacity(pairs.len());
    for KeyValue { key, value } in pairs {
        let Some((id, run)) = notes.read(key, job::decode_run(key, value).and_then(|run| Ok((job::id_of(key)?, run))))
        else {
            continue;
        };
        owned.push((key, id));
        planned.extend(run.next.map(|next| (key, id, next.execution)));
    }
    expect_jobs(tx, &owned, notes).await?;
    let ids: Vec<ExecutionId> = planned.iter().map(|(_, _, id)| *id).collect();
    let executions = execution::get_many(tx, &ids, Read::Snapshot).await?;
    for ((key, job, id), execution) in planned.into_iter().zip(executions) {
        // One that cannot be read is found with the executions.
        let Ok(execution) = execution else { continue };
        match execution.map(|row| row.execution) {
            None => notes.add(Kind::Orphan, key, format!("its next slot's execution, {id}, has no row")),
            Some(next) if next.job != job || !matches!(next.state, State::Pending { .. } | State::Owed(_)) => {
                let problem = format!("its next slot's execution, {id}, is {} and of {}", next.state.name(), next.job);
                notes.add(Kind::Mismatch, key, problem);
            }
            Some(_) => {}
        }
    }
    Ok(())
}

pub(super) async fn check_tenant_jobs(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes) -> Result<(), StoreError> {
    let mut owned = Vec::with_capacity(pairs.len());
    for KeyValue { key, .. } in pairs {
        let at = key.len().saturating_sub(JobId::BYTES);
        owned.extend(notes.read(key, job_at(Table::TenantJob, key, at)).map(|id| (key, id)));
    }
    expect_jobs(tx, &owned, notes).await
}

/// They need not name a job: one whose end moved has a note in two hours, and goes at the first; the second is cleared when its own hour is
/// looked at.
pub(super) fn check_finished(pairs: &[KeyValue], notes: &mut Notes) {
    pairs.iter().for_each(|pair| notes.readable(pair, finished::decode(&pair.key)));
}

pub(super) async fn check_ledger(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes) -> Result<(), StoreError> {
    let mut owned = Vec::with_capacity(pairs.len());
    for KeyValue { key, value } in pairs {
        owned.extend(notes.read(key, ledger::decode(key, value)).map(|(id, _)| (key, id)));
    }
    expect_jobs(tx, &owned, notes).await
}

async fn expect_jobs(tx: &Tx, owned: &[(&Bytes, JobId)], notes: &mut Notes) -> Result<(), StoreError> {
    let needs = |(key, id): &(&Bytes, JobId)| Expected {
        key: (*key).clone(),
        counterpart: job::key(*id),
        kind: Kind::Orphan,
        problem: format!("{id} has no row"),
    };
    expect(tx, owned.iter().map(needs).collect(), notes).await
}
