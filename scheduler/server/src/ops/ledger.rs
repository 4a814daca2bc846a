//! Why a job's slots did or did not run: its executions, its ledger and its state put together, a bounded part at a time.

use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::Execution;
use compline_core::explain::{Facts, Line, explain, merge};
use compline_core::job::JobState;
use compline_core::ledger::{Entry, Mark, SkipReason, Stretch};
use compline_store::backend::Read;
use compline_store::tables::{execution, history, ledger};
use compline_store::{StoreError, Tx};

use crate::ctx::Ctx;
use crate::ops::query::JobSeen;

/// How many rows of each kind one transaction reads.
const ROWS: usize = 256;
/// How many executions one answer looks at: a page may then be short and have a next one all the same.
pub const SCANNED_MAX: usize = 4_096;
/// Rows before the begin among which a stretch that reaches over it is looked for: stretches do not overlap, and marks are few.
const ROWS_BEFORE: usize = 64;

/// A part of the story.
#[derive(Debug)]
pub struct Story {
    /// Its lines, oldest first.
    pub lines: Vec<Line>,
    /// Where it goes on, if it does.
    pub next: Option<Timestamp>,
}

/// What was read of a stretch of a job's life.
struct Known {
    executions: Vec<Execution>,
    stretches: Vec<Stretch>,
    marks: Vec<Mark>,
    /// All before this was read.
    until: Timestamp,
}

/// The story of a job's slots in `from..until`, `limit` lines at the most.
pub async fn story(
    ctx: &Ctx,
    job: &JobSeen,
    from: Timestamp,
    until: Timestamp,
    limit: usize,
) -> Result<Story, StoreError> {
    let now = ctx.env.now();
    let (mut lines, mut at, mut scanned) = (Vec::new(), from, 0);
    while at < until && scanned < SCANNED_MAX {
        let read = ctx.store.transact(|tx| async move { known(ctx, &tx, job, at, until, now).await });
        let known = read.await?.value;
        scanned += known.executions.len() + known.stretches.len() + known.marks.len() + 1;
        let facts = Facts {
            job: job.id,
            schedule: &job.parsed.schedule,
            executions: &known.executions,
            stretches: &known.stretches,
            marks: &known.marks,
        };
        let part = explain(&facts, at, known.until)
            .map_err(|error| StoreError::unreadable("ledger", job.id.as_bytes(), error))?;
        lines = merge(lines.into_iter().chain(part));
        at = known.until;
        if lines.len() > limit {
            at = lines[limit].first;
            lines.truncate(limit);
            break;
        }
    }
    Ok(Story { lines, next: (at < until).then_some(at) })
}

async fn known(
    ctx: &Ctx,
    tx: &Tx,
    job: &JobSeen,
    from: Timestamp,
    until: Timestamp,
    now: Timestamp,
) -> Result<Known, StoreError> {
    let micro = Duration::from_micros(1);
    let ids = history::of_slots(tx, job.id, from, until, ROWS).await?;
    let rows = execution::get_many(tx, &ids, Read::Snapshot).await?;
    let executions: Vec<Execution> = rows.into_iter().filter_map(|row| Some(ctx.readable(row)??.execution)).collect();
    let earlier = ledger::newest(tx, job.id, Some(from), ROWS_BEFORE).await?;
    let later = ledger::from(tx, job.id, from, ROWS).await?;
    let mut cut = until;
    if ids.len() == ROWS
        && let Some(last) = executions.last()
    {
        cut = cut.min(last.slot + micro);
    }
    if later.len() == ROWS
        && let Some(Ok(last)) = later.last()
    {
        cut = cut.min(last.at().max(from + micro));
    }
    // A pause is written down when it ends; until then the job's own row says from which slot on it leaves them out.
    let paused_from = job.run.paused_from.filter(|_| job.state == JobState::Paused);
    let (mut stretches, mut marks) = (Vec::new(), Vec::new());
    for entry in earlier.into_iter().rev().chain(later) {
        match ctx.readable(entry) {
            Some(Entry::Stretch(stretch)) if stretch.until > from && stretch.from < cut => stretches.push(stretch),
            Some(Entry::Mark(mark)) if mark.at >= from => marks.push(mark),
            _ => {}
        }
    }
    stretches.extend(paused_from.map(|since| Stretch {
        from: since,
        until: now.max(since),
        reason: SkipReason::Paused,
        detail: None,
    }));
    Ok(Known { executions, stretches, marks, until: cut })
}
