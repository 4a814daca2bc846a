//! Rules `settled`, `accounted`, `acknowledged`, `run` and `tables`: what must hold when the run is over.

use std::collections::{BTreeMap, BTreeSet};

use compline_core::Timestamp;
use compline_core::execution::{Outcome, State};
use compline_core::ids::{Fence, JobId, SessionId};
use compline_store::check::Report;
use tokio::time::Instant;

use crate::sim::backend::SIGNATURE;

use super::{Checked, Ending, Oracle, Violation, broken, ensure};

impl Oracle {
    /// The executions that are due by an instant, or were once, and have not ended.
    pub fn unsettled(&self, now: Timestamp) -> impl Iterator<Item = String> {
        self.executions
            .values()
            .filter_map(move |row| {
                let open = match row.execution.state {
                    State::Pending { due } => due <= now,
                    State::Owed(_)
                    | State::Waiting { .. }
                    | State::Queued(_)
                    | State::Running(_)
                    | State::Retrying { .. } => true,
                    State::Completed { .. }
                    | State::Failed { .. }
                    | State::Cancelled { .. }
                    | State::Skipped { .. } => false,
                };
                open.then(|| format!("{:?}", row.execution))
            })
            .chain(self.outdated())
    }

    /// The violation that executions did not end in time.
    pub fn never_settled(&self, now: Instant) -> Violation {
        let all: Vec<String> = self.unsettled(self.world.clock.at(now)).collect();
        let record = self.world.record.lock();
        let under_way: Vec<_> = record.runs.iter().filter(|run| run.ended.is_none()).collect();
        let detail = format!(
            "{} executions have not ended since all faults were over, such as {}; these runs are under way: {under_way:?}",
            all.len(),
            all[0]
        );
        self.violation(super::Broken { rule: "settled", detail }, now)
    }

    /// Everything that is checked once, at the end. What was due by `settled` has ended.
    pub fn check_end_of_run(&self, settled: Instant, now: Instant) -> Result<(), Violation> {
        let checked = self
            .check_answers()
            .and_then(|()| self.check_accounted(self.world.clock.at(settled)))
            .and_then(|()| self.check_runs())
            .and_then(|()| self.check_workers())
            .and_then(|()| self.check_cancel_answers())
            .and_then(|()| self.check_change_answers())
            .and_then(|()| self.check_letter_answers())
            .and_then(|()| self.check_nothing_else());
        checked.map_err(|broken| self.violation(broken, now))
    }

    /// What `compline admin check` says of the store at the end.
    pub fn check_tables(&self, report: &Report, now: Instant) -> Result<(), Violation> {
        // Signatures are the simulator's own.
        let signature = SIGNATURE.escape_ascii().to_string();
        let checked = match report.findings.iter().find(|finding| finding.key != signature) {
            Some(finding) => broken("tables", format!("{finding:?}, one of {}", report.findings_total)),
            None => Ok(()),
        };
        checked.map_err(|broken| self.violation(broken, now))
    }

    fn check_answers(&self) -> Checked {
        let record = self.world.record.lock();
        let mut of_key: BTreeMap<&str, JobId> = BTreeMap::new();
        for answer in &record.answers {
            let landed = self.jobs.get(&answer.job).map(|owned| owned.landed);
            ensure(landed.is_some_and(|landed| landed <= answer.at), "acknowledged", || {
                format!("{} was acknowledged before it landed ({landed:?})", answer.job)
            })?;
            if let Some(key) = &answer.key {
                let first = *of_key.entry(key).or_insert(answer.job);
                ensure(first == answer.job, "acknowledged", || {
                    format!("{key:?} was answered {first} and {}", answer.job)
                })?;
            }
        }
        let keyed: BTreeSet<JobId> = of_key.values().copied().collect();
        let plain: BTreeSet<JobId> =
            record.answers.iter().filter(|answer| answer.key.is_none()).map(|answer| answer.job).collect();
        ensure(keyed.is_disjoint(&plain), "acknowledged", || "two requests were answered with one job".to_owned())
    }

    fn check_accounted(&self, now: Timestamp) -> Checked {
        for (job, span) in self.jobs.iter().flat_map(|(job, owned)| owned.spans.iter().map(move |span| (job, span))) {
            let model = &span.model;
            let mut slot = match span.after {
                None => model.first(),
                Some(after) => model.after(after),
            };
            while let Some(at) = slot.filter(|at| *at <= now && span.until.is_none_or(|until| *at < until)) {
                let row = self.by_slot.get(&(*job, at)).and_then(|id| self.executions.get(id));
                let stretches = self.stretches.get(job).map_or(&[][..], Vec::as_slice);
                let passed_over = stretches.iter().filter(|(from, until)| *from <= at && at < *until).count();
                // A slot that is spread may be due later still.
                let to_come = row.is_some_and(|row| matches!(row.execution.state, State::Pending { due } if now < due));
                let ended = row.is_some_and(|row| row.execution.state.is_terminal()) || to_come;
                // What was cancelled ahead of its time may lie in a stretch that is left out for another reason.
                let cancelled = row.is_some_and(|row| matches!(row.execution.state, State::Cancelled { .. }));
                let once = usize::from(ended) + passed_over == 1 || (cancelled && passed_over == 1);
                ensure(once, "accounted", || {
                    let (owned, starts) = (self.jobs.get(job), self.starts(*job));
                    format!(
                        "the slot {at} of {job} has this execution: {row:?}, and lies in {passed_over} stretches; of {starts} starts it is {owned:?}"
                    )
                })?;
                slot = model.after(at);
            }
        }
        Ok(())
    }

    fn check_runs(&self) -> Checked {
        let record = self.world.record.lock();
        let mut fences: BTreeSet<Fence> = BTreeSet::new();
        for run in &record.runs {
            ensure(fences.insert(run.fence), "run", || format!("one fence was run twice, at last by {run:?}"))?;
            let granted = self.granted.get(&run.fence);
            ensure(
                granted.is_some_and(|(execution, session, at)| {
                    *execution == run.execution && *session == run.session && *at <= run.started
                }),
                "run",
                || format!("{run:?} has the fence of {granted:?}"),
            )?;
            let ran = self.executions.get(&run.execution).map(|row| self.digest_of(&row.execution));
            ensure(ran == Some(run.digest), "run", || format!("{run:?} ran another component than {ran:?}"))?;
            if let Some((at, Ending::HandedBack | Ending::Reported)) = self.over.get(&run.fence) {
                ensure(run.started <= *at, "run", || format!("{run:?} began after its fence was over"))?;
            }
        }
        Ok(())
    }

    /// No more attempts at once than a node has workers. Who is told to stop before it begins needs none.
    fn check_workers(&self) -> Checked {
        let record = self.world.record.lock();
        let mut changes: BTreeMap<SessionId, Vec<(Instant, i64)>> = BTreeMap::new();
        for run in record.runs.iter().filter(|run| run.outcome != Some(Outcome::Cancelled)) {
            let of_session = changes.entry(run.session).or_default();
            of_session.push((run.started, 1));
            of_session.extend(run.ended.map(|ended| (ended, -1)));
        }
        for (session, mut changes) in changes {
            // At one instant, ends first.
            changes.sort_unstable();
            let most = changes.iter().scan(0, |under_way, (_, change)| {
                *under_way += change;
                Some(*under_way)
            });
            let node = self.actors.node(session);
            let shape = self.world.shape.nodes.iter().find(|shape| Some(shape.name.as_str()) == node);
            let (most, workers) = (most.max().unwrap_or(0), shape.map_or(0, |shape| shape.workers as i64));
            ensure(most <= workers, "workers", || {
                format!("{node:?} ran {most} attempts at once with {workers} workers")
            })?;
        }
        Ok(())
    }

    fn check_nothing_else(&self) -> Checked {
        let open = self.executions.values().filter(|row| !row.execution.state.is_terminal()).count();
        let places = self.reader.places();
        ensure(open == places, "places", || format!("{open} executions are open, and there are {places} places"))?;
        match &self.world.record.lock().broken[..] {
            [] => Ok(()),
            [first, ..] => broken("alive", first.clone()),
        }
    }
}
