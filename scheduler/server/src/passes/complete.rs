//! complete(batch): record how attempts ended. Each report shows its fence; a stale one is refused and the rest go through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compline_core::Timestamp;
use compline_core::execution::{Cost, Event, Execution, Finish, IllegalTransition, Outcome, State};
use compline_core::ids::{ExecutionId, Fence, SessionId, ShardId};
use compline_store::backend::Read;
use compline_store::tables::bell::Bell;
use compline_store::tables::execution::LogLine;
use compline_store::tables::queue::{ByTime, Due};
use compline_store::tables::{cancel, execution, queue, running, session};
use compline_store::{StoreError, TransactOptions, Tx};

use super::failure::record_failure;
use super::{in_batches, overlap};
use crate::ctx::{Ctx, ParsedJob};

/// How an attempt ended.
#[derive(Debug, Clone)]
pub struct Report {
    /// The execution.
    pub execution: ExecutionId,
    /// The right to report.
    pub fence: Fence,
    /// The execution's job.
    pub job: Arc<ParsedJob>,
    /// When the attempt started.
    pub started_at: Timestamp,
    /// When it ended.
    pub finished_at: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// What it used.
    pub cost: Cost,
    /// What it answered.
    pub output: Option<bytes::Bytes>,
    /// What it said.
    pub logs: Vec<LogLine>,
    /// Random bits for the retry rule's jitter: drawn once, so that a report means the same in every run of the transaction.
    pub random: u64,
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// It is in the store now.
    Recorded,
    /// It was in the store already.
    AlreadyRecorded,
    /// The claim was lost: nothing was changed.
    Refused,
}

/// Records a batch of reports; the answers are in the order of the reports.
pub async fn complete(
    ctx: &Ctx,
    node: &str,
    session: SessionId,
    reports: &[Report],
) -> Result<Vec<Reported>, StoreError> {
    let batches =
        in_batches(reports, |options, begin, end| complete_batch(ctx, node, session, &reports[begin..end], options))
            .await?;
    Ok(batches.into_iter().flatten().collect())
}

async fn complete_batch(
    ctx: &Ctx,
    node: &str,
    session: SessionId,
    reports: &[Report],
    options: TransactOptions,
) -> Result<Vec<Reported>, StoreError> {
    let committed = ctx
        .store
        .transact_with(options, |tx| async move {
            let alive = session::is_current(&tx, node, session).await?;
            let ids: Vec<_> = reports.iter().map(|report| report.execution).collect();
            let rows = execution::get_many(&tx, &ids, Read::Serializable).await?;
            let mut batch = Batch::default();
            let mut answers = Vec::with_capacity(reports.len());
            for (report, row) in reports.iter().zip(rows) {
                let Some(Some(row)) = ctx.readable(row) else {
                    answers.push(Reported::Refused);
                    continue;
                };
                answers.push(match row.execution.apply(&Event::Finish(Box::new(finish(report, &row.execution)))) {
                    Ok(next) if alive => {
                        if matches!(&row.execution.state, State::Running(running) if running.stop.is_some()) {
                            cancel::clear(&tx, session, next.id);
                        }
                        batch.record(&tx, session, report, &next)?;
                        if next.state.is_terminal() {
                            overlap::leave(&tx, &row.execution).await?;
                        }
                        Reported::Recorded
                    }
                    Err(IllegalTransition::AlreadyReported) => Reported::AlreadyRecorded,
                    Ok(_) | Err(IllegalTransition::StaleFence { .. } | IllegalTransition::NotNow { .. }) => {
                        Reported::Refused
                    }
                });
            }
            let failed = batch.failed;
            batch.close(&tx);
            Ok((answers, failed))
        })
        .await?;
    let (answers, failed) = committed.value;
    for (report, answer) in reports.iter().zip(&answers) {
        ctx.metrics.reported(&report.outcome, *answer);
    }
    ctx.metrics.dead_letters.inc_by(failed);
    Ok(answers)
}

fn finish(report: &Report, execution: &Execution) -> Finish {
    // A clock that was set back under the attempt does not make it begin before its claim, nor end before it began.
    let started_at = match &execution.state {
        State::Running(running) => report.started_at.max(running.claimed_at),
        _ => report.started_at,
    };
    let at = report.finished_at.max(started_at);
    let retry_at = report.outcome.may_retry().then(|| {
        // This attempt counts, those whose worker was lost don't.
        let next_attempt = execution.attempts_counted() + 2;
        report.job.job.retry.delay_before(next_attempt, report.random).map(|delay| at + delay)
    });
    Finish {
        fence: report.fence,
        started_at,
        at,
        outcome: report.outcome.clone(),
        cost: report.cost,
        output: report.output.clone(),
        retry_at: retry_at.flatten(),
    }
}

/// What a batch writes once, however many reports it has.
#[derive(Default)]
struct Batch {
    ended: BTreeMap<(ShardId, u32), i64>,
    retried: BTreeSet<ShardId>,
    failed: u64,
}

impl Batch {
    fn record(&mut self, tx: &Tx, session: SessionId, report: &Report, next: &Execution) -> Result<(), StoreError> {
        execution::put(tx, next)?;
        running::clear(tx, session, next.id);
        if !report.logs.is_empty() {
            execution::put_log(tx, next.id, next.attempts.len() as u32, &report.logs)?;
        }
        if let State::Retrying { due } = next.state {
            let due = Due { at: queue::due_instant(due), execution: next.id, job: next.job };
            ByTime::Due.put(tx, &due)?;
            self.retried.insert(next.id.shard());
        }
        if let State::Failed { .. } = next.state {
            record_failure(tx, &report.job, next, &report.logs)?;
            self.failed += 1;
        }
        if next.state.is_terminal() {
            *self.ended.entry((next.id.shard(), next.id.bucket_hour())).or_default() -= 1;
        }
        Ok(())
    }

    fn close(self, tx: &Tx) {
        for ((shard, hour), delta) in self.ended {
            execution::add_open(tx, shard, hour, delta);
        }
        for shard in self.retried {
            Bell::Shard(shard).ring(tx);
        }
    }
}
