//! Plays the store and the clock for plans of one job: carries out what they say, and remembers what became of every slot.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Cause, Cost, Event, Execution, Finish, Outcome, State};
use compline_core::ids::{ClaimId, ExecutionId, Fence, JobId, RequestId, SessionId, ShardCount};
use compline_core::job::{Bounds, JobRun, JobState, Misfire, Overlap};
use compline_core::schedule::Schedule;
use compline_core::schedule::cron::CronExpr;
use compline_core::schedule::zone::Zone;
use compline_core::tick::{
    Action, Change, Counted, Decision, DueItem, Gate, JobView, Missed, Snapshot, plan, planned_slot,
};
use compline_core::timetable::Timetable;

/// So many seconds after an instant at the top of an hour.
pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_seconds(1_800_000_000 + seconds)
}

/// One job, its executions and the time.
pub struct Player {
    pub job: JobView,
    pub now: Timestamp,
    pub executions: BTreeMap<ExecutionId, Execution>,
    /// In the order in which they became live.
    pub live: Vec<ExecutionId>,
    /// In the order in which they were due.
    pub waiting: Vec<ExecutionId>,
    pub missed: Vec<Missed>,
    /// Slots in the order in which they were queued, each with the time.
    pub queued: Vec<(Timestamp, Timestamp)>,
    /// Due rows: when, and what.
    pub due: BTreeSet<(Timestamp, ExecutionId)>,
    /// Rows of what is owed: when it was due, and what.
    pub owed: BTreeSet<(Timestamp, ExecutionId)>,
    /// How many rows plans have decided about: a bound on what passes write.
    pub decided: usize,
    fences: u64,
}

const SHARDS: u16 = 16;

impl Player {
    /// A job created at `at(0)`.
    pub fn new(cron: &str, misfire: Misfire, overlap: Overlap) -> Self {
        Self::within(cron, misfire, overlap, Duration::ZERO, Bounds::default())
    }

    pub fn within(cron: &str, misfire: Misfire, overlap: Overlap, splay: Duration, bounds: Bounds) -> Self {
        let schedule = Arc::new(Schedule::cron(CronExpr::parse(cron).expect("a schedule"), Zone::utc()));
        let (id, state) = (JobId::new(at(0), 3), JobState::Active);
        let run = JobRun::default();
        let mut player = Self {
            job: JobView { id, state, schedule, misfire, overlap, splay, bounds, run },
            now: at(0),
            executions: BTreeMap::new(),
            live: Vec::new(),
            waiting: Vec::new(),
            missed: Vec::new(),
            queued: Vec::new(),
            due: BTreeSet::new(),
            owed: BTreeSet::new(),
            decided: 0,
            fences: 0,
        };
        let first = player.table().first(at(0)).expect("a first slot");
        let execution = player.table().execution(first, ShardCount::new(SHARDS));
        player.job.run.next = Some(planned_slot(&execution));
        player.plan_for(execution);
        player
    }

    pub fn table(&self) -> Timetable<'_> {
        self.job.timetable()
    }

    pub fn state(&self, slot: i64) -> &State {
        let found = self.executions.values().find(|execution| execution.slot == at(slot));
        &found.expect("an execution of the slot").state
    }

    fn plan_for(&mut self, execution: Execution) {
        self.due.insert((planned_slot(&execution).due, execution.id));
        self.executions.insert(execution.id, execution);
    }

    /// Somebody asks for a run.
    pub fn trigger(&mut self) -> ExecutionId {
        self.fences += 1;
        let request = RequestId::from_bytes(u128::from(self.fences).to_be_bytes());
        let shard = self.job.id.shard(ShardCount::new(SHARDS));
        let id = ExecutionId::of_request(self.job.id, self.now, shard, request, self.now);
        self.plan_for(Execution::planned(id, self.job.id, self.now, self.now, Cause::Trigger));
        id
    }

    /// Passes over what is due and what is owed; the ticker comes until nothing is.
    pub fn tick(&mut self) {
        loop {
            let owed = self.due.first().is_none_or(|(due, _)| *due > self.now);
            let rows = if owed { &self.owed } else { &self.due };
            let items: Vec<DueItem> = rows
                .iter()
                .take_while(|(due, _)| *due <= self.now)
                .map(|(due, id)| DueItem {
                    id: *id,
                    due: *due,
                    execution: self.executions.get(id).cloned(),
                    job: Some(self.job.clone()),
                })
                .collect();
            if items.is_empty() {
                return;
            }
            let counted = |id: &ExecutionId| Counted::new(&self.executions[id]);
            let gate = Gate {
                live: self.live.iter().map(counted).collect(),
                waiting: self.waiting.iter().map(counted).collect(),
            };
            let shards = ShardCount::new(SHARDS);
            let snapshot = Snapshot { items, gates: [(self.job.id, gate)].into(), owed, partitions: 8, shards };
            for decision in plan(&snapshot, self.now).decisions {
                self.carry_out(decision);
            }
        }
    }

    fn carry_out(&mut self, decision: Decision) {
        if decision.action == Action::Later {
            return;
        }
        self.decided += 1;
        self.due.remove(&(decision.due, decision.id));
        self.owed.remove(&(decision.due, decision.id));
        for change in decision.changes {
            match change {
                Change::Release { before, after } => {
                    self.waiting.retain(|id| *id != before.id);
                    self.due.remove(&(Counted::new(&before).due, before.id));
                    self.queue(after);
                }
                Change::End { before, after } => {
                    self.waiting.retain(|id| *id != before.id);
                    self.live.retain(|id| *id != before.id);
                    self.due.remove(&(Counted::new(&before).due, before.id));
                    self.executions.insert(after.id, after);
                }
                Change::Stop { after, .. } => {
                    self.executions.insert(after.id, after);
                }
                Change::Wake { .. } | Change::Forget { .. } => panic!("all rows were read"),
            }
        }
        let advance = match decision.action {
            Action::Drop(_) | Action::Later => None,
            Action::Owe { execution, advance } => {
                self.owed.insert((decision.due, execution.id));
                self.executions.insert(execution.id, execution);
                advance
            }
            Action::Queue { execution, advance } => {
                self.queue(execution);
                advance
            }
            Action::Wait { execution, advance } => {
                self.waiting.push(execution.id);
                self.executions.insert(execution.id, execution);
                advance
            }
            Action::End { execution, advance } => {
                self.executions.insert(execution.id, execution);
                advance
            }
        };
        if let Some(advance) = advance {
            self.missed.extend(advance.missed);
            self.job.run = advance.run;
            if let Some(next) = advance.next {
                self.plan_for(next);
            }
        }
    }

    fn queue(&mut self, execution: Execution) {
        self.queued.push((execution.slot, self.now));
        if execution.counted && !self.live.contains(&execution.id) {
            self.live.push(execution.id);
        }
        self.executions.insert(execution.id, execution);
    }

    /// A worker takes a live execution.
    pub fn claim(&mut self, id: ExecutionId) {
        let claim = ClaimId::new(u128::from(self.fences));
        let event = Event::Claim { at: self.now, session: SessionId::NONE, node: "n".to_owned(), claim };
        if let Ok(mut running) = self.executions[&id].apply(&event) {
            self.fences += 1;
            if let State::Running(state) = &mut running.state {
                let mut stamp = [0; 12];
                stamp[4..].copy_from_slice(&self.fences.to_be_bytes());
                state.fence = Fence::new(1, stamp);
            }
            self.executions.insert(id, running);
        }
    }

    /// A live execution ends, or fails and waits for another try.
    pub fn finish(&mut self, id: ExecutionId, retry: Option<Timestamp>) {
        self.end(id, if retry.is_some() { Outcome::TimedOut } else { Outcome::Ok }, retry);
    }

    /// A live execution fails for good, and its owner wants another try.
    pub fn fail_and_redrive(&mut self, id: ExecutionId) {
        self.end(id, Outcome::TimedOut, None);
        let again = self.executions[&id].apply(&Event::Redrive { at: self.now }).expect("it failed");
        self.due.insert((self.now, id));
        self.executions.insert(id, again);
    }

    /// As complete does, whoever ends one wakes the first that waits.
    fn end(&mut self, id: ExecutionId, outcome: Outcome, retry: Option<Timestamp>) {
        self.claim(id);
        let State::Running(running) = &self.executions[&id].state else { return };
        let finish = Finish {
            fence: running.fence,
            started_at: self.now,
            at: self.now,
            outcome,
            cost: Cost::default(),
            output: None,
            retry_at: retry,
        };
        let after = self.executions[&id].apply(&Event::Finish(Box::new(finish))).expect("a report");
        if let State::Retrying { due } = after.state {
            self.due.insert((due, id));
        }
        if after.state.is_terminal() {
            self.live.retain(|live| *live != id);
            if let Some(first) = self.waiting.first() {
                self.due.insert((Counted::new(&self.executions[first]).due, *first));
            }
        }
        self.executions.insert(id, after);
    }

    /// The slots that the schedule has up to now, each with what became of it: queued, waiting, skipped, in a stretch, or still planned.
    pub fn accounts(&self) -> BTreeMap<Timestamp, &'static str> {
        let mut accounts = BTreeMap::new();
        let mut slot = self.table().first(at(0));
        while let Some(this) = slot.filter(|slot| *slot <= self.now) {
            let row = self.executions.values().find(|row| row.slot == this && row.cause == Cause::Schedule);
            let stretches = self.missed.iter().filter(|missed| missed.from <= this && this < missed.until).count();
            let account = match (row.map(|row| &row.state), stretches) {
                (None, 1) => "missed",
                (Some(State::Pending { .. } | State::Owed(_)), 0) => "planned",
                (Some(State::Waiting { .. }), 0) => "waiting",
                (Some(State::Skipped { reason, .. }), 0) => reason.as_str(),
                (Some(_), 0) => "queued",
                (None, 0) => "beyond",
                (row, stretches) => panic!("{this} has {row:?} and lies in {stretches} stretches"),
            };
            accounts.insert(this, account);
            slot = self.table().after(this);
        }
        accounts
    }
}
