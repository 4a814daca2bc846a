//! What points at executions: places, listings and logs. Each names an execution that is there, in the state that the place stands for.

use bytes::Bytes;
use compline_core::execution::State;
use compline_core::ids::{ExecutionId, JobId, TenantId};

use super::{Kind, Notes, jobs_of, trailing_execution};
use crate::backend::{KeyValue, Read};
use crate::keys::Table;
use crate::tables::execution::{self, ExecutionRow};
use crate::tables::queue::{self, Part};
use crate::tables::{history, running};
use crate::{StoreError, Tx};

/// The execution that each of these keys names; what cannot be read is found with the executions, and left out here.
async fn named<'a, T>(
    tx: &Tx,
    rows: Vec<(&'a Bytes, ExecutionId, T)>,
    notes: &mut Notes,
) -> Result<Vec<(&'a Bytes, ExecutionRow, T)>, StoreError> {
    let ids: Vec<ExecutionId> = rows.iter().map(|(_, id, _)| *id).collect();
    let executions = execution::get_many(tx, &ids, Read::Snapshot).await?;
    let mut found = Vec::with_capacity(rows.len());
    for ((key, id, row), execution) in rows.into_iter().zip(executions) {
        match execution {
            Ok(Some(execution)) => found.push((key, execution, row)),
            Ok(None) => notes.add(Kind::Orphan, key, format!("{id} has no row")),
            Err(_) => {}
        }
    }
    Ok(found)
}

pub(super) async fn check_due(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes) -> Result<(), StoreError> {
    let mut rows = Vec::with_capacity(pairs.len());
    for KeyValue { key, value } in pairs {
        rows.extend(notes.read(key, queue::decode_due(key, value)).map(|due| (key, due.execution, due)));
    }
    for (key, ExecutionRow { execution, .. }, due) in named(tx, rows, notes).await? {
        let right = match execution.state {
            // One that waits for others has a due row while it is woken.
            State::Pending { due: at } | State::Retrying { due: at } | State::Waiting { due: at, .. } => {
                queue::due_instant(at) == due.at
            }
            _ => false,
        };
        if !right || execution.job != due.job {
            notes.add(Kind::Mismatch, key, format!("{} is {:?}, of {}", execution.id, execution.state, execution.job));
        }
    }
    Ok(())
}

pub(super) async fn check_owed(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes) -> Result<(), StoreError> {
    let mut rows = Vec::with_capacity(pairs.len());
    for KeyValue { key, value } in pairs {
        rows.extend(notes.read(key, queue::decode_owed(key, value)).map(|owed| (key, owed.1.execution, owed)));
    }
    for (key, ExecutionRow { execution, .. }, (lane, row)) in named(tx, rows, notes).await? {
        let right = matches!(&execution.state, State::Owed(owed)
            if owed.lane == lane && queue::due_instant(owed.due) == row.at);
        if !right || execution.job != row.job {
            notes.add(Kind::Mismatch, key, format!("{} is {:?}, of {}", execution.id, execution.state, execution.job));
        }
    }
    Ok(())
}

pub(super) async fn check_ready(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes) -> Result<(), StoreError> {
    let mut rows = Vec::with_capacity(pairs.len());
    for KeyValue { key, value } in pairs {
        let read = notes.read(key, Part::decode(key, value));
        rows.extend(read.map(|(_, stamp, ready)| (key, ready.execution, (stamp, ready.job))));
    }
    for (key, row, (stamp, job)) in named(tx, rows, notes).await? {
        let execution = &row.execution;
        if !matches!(execution.state, State::Queued(_)) || row.stamp != stamp || execution.job != job {
            notes.add(
                Kind::Mismatch,
                key,
                format!("{} is {}, and waits at another place", execution.id, execution.state.name()),
            );
        }
    }
    Ok(())
}

pub(super) async fn check_running(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes) -> Result<(), StoreError> {
    let mut rows = Vec::with_capacity(pairs.len());
    for KeyValue { key, value } in pairs {
        let read = notes.read(key, running::decode(key, value).and_then(|row| Ok((running::holder(key)?, row))));
        rows.extend(read.map(|(session, row)| (key, row.execution, (session, row))));
    }
    for (key, ExecutionRow { execution, .. }, (session, row)) in named(tx, rows, notes).await? {
        let right =
            matches!(&execution.state, State::Running(held) if held.session == session && held.fence == row.fence);
        if !right {
            notes.add(
                Kind::Mismatch,
                key,
                format!("{} is {}, and not this session's", execution.id, execution.state.name()),
            );
        }
    }
    Ok(())
}

pub(super) async fn check_log(tx: &Tx, pairs: &[KeyValue], notes: &mut Notes) -> Result<(), StoreError> {
    let mut rows = Vec::with_capacity(pairs.len());
    for KeyValue { key, value } in pairs {
        rows.extend(notes.read(key, execution::decode_log(key, value)).map(|(id, _, _)| (key, id, ())));
    }
    named(tx, rows, notes).await?;
    Ok(())
}

pub(super) async fn check_listing(
    tx: &Tx,
    table: Table,
    pairs: &[KeyValue],
    notes: &mut Notes,
) -> Result<(), StoreError> {
    let mut rows = Vec::with_capacity(pairs.len());
    for KeyValue { key, .. } in pairs {
        rows.extend(notes.read(key, trailing_execution(table, key)).map(|id| (key, id, ())));
    }
    let rows = named(tx, rows, notes).await?;
    let jobs = jobs_of(tx, rows.iter().map(|(_, row, ())| row.execution.job)).await?;
    for (key, ExecutionRow { execution, .. }, ()) in rows {
        let tenant = jobs.get(&execution.job).and_then(|job| job.as_ref()).map(|job| &job.tenant);
        let expected = match (table, tenant) {
            (Table::History, _) => Some(history::job_key(execution.job, execution.slot, execution.id)),
            (Table::JobFailed, _) => Some(history::job_failed_key(execution.job, execution.id)),
            (_, tenant) => tenant.map(|tenant| of_tenant(table, tenant, execution.id)),
        };
        if expected.is_some_and(|expected| expected != *key) {
            notes.add(Kind::Mismatch, key, format!("{} belongs elsewhere in this listing", execution.id));
        }
        let failures = matches!(table, Table::Failed | Table::JobFailed);
        if failures && !matches!(execution.state, State::Failed { .. }) {
            notes.add(
                Kind::Mismatch,
                key,
                format!("{} is {}, and is listed as failed", execution.id, execution.state.name()),
            );
        }
    }
    Ok(())
}

fn of_tenant(table: Table, tenant: &TenantId, id: ExecutionId) -> Bytes {
    match table {
        Table::Failed => history::failed_key(tenant, id),
        _ => history::tenant_key(tenant, id),
    }
}

/// The job at this place of a key.
pub(super) fn job_at(table: Table, key: &[u8], at: usize) -> Result<JobId, StoreError> {
    Ok(JobId::from_bytes(crate::tables::key_field(table.name(), key, at)?))
}
