//! The oracle: it replays the commit log with a model of its own, which shares no rule with the passes, and checks DESIGN §2 commit by commit.
//!
//! | rule | promise | what must hold |
//! | --- | --- | --- |
//! | `acknowledged` | 1 | an answered request's job is in the log before its answer, and nothing removes it; one key makes one job |
//! | `accounted` | 1 | every slot due in the run, counted out from the client's words, has one execution or lies in one ledger stretch |
//! | `settled` | 1 | when faults are over, every due execution ends, one within a bounded time of the other |
//! | `next-slot` | 1, 3 | the commit that takes a slot out of PENDING plans its successor, which is the one that the schedule says |
//! | `one-per-slot` | 3 | (job, slot) has one execution id; its row begins PENDING, never comes back once removed, and keeps what it stands for |
//! | `machine` | 3 | states follow one another legally; attempts are only appended; of terminal states there is one |
//! | `early` | 2 | nothing is queued, claimed or started before it is due, retries included; a retry is due when its rule says |
//! | `overlap` | 7 | no more executions of a job are live than its rule allows, no more slots wait, and nobody waits for nothing |
//! | `misfire` | 1, 7 | of late slots those run that their job's policy, deadline and cap leave, and no other |
//! | `spread` | 2 | a slot is due at its instant, or later by a share of the splay's window that is the job's own and never changes |
//! | `bounds` | 7 | no slot lies outside of its job's begin and end, and no more are admitted than it may have |
//! | `letter` | 7 | who fails for good leaves one dead letter with its kind in that commit; it goes only by a redrive or a drop that was asked for |
//! | `told` | 7 | the task that a job names runs once per failure, planned in its commit, with the failure; its own failure tells nobody |
//! | `redriven` | 7 | what failed for good runs again only if a client asked, at its turn, under its id, with its history, counted anew |
//! | `claim` | 4 | a claim takes a queued row, in a live session, with a fence of this commit: greater than all before |
//! | `run` | 4 | one fence is run at most once, by the session that it was granted to, after it was granted |
//! | `stale` | 5 | a report is recorded under the fence that is current, for the run that has it, by a session that is not over |
//! | `give-back` | 5 | an execution is taken from a session that is over, or given back by its holder, who does not run it |
//! | `zones` | 1, 7 | a zoned job's slot is ticked by nobody whose zone data is older than the newest; what is still to come follows newer data, once |
//! | `change` | 1, 7 | a job changes as a client asked, in one commit with a mark; what was planned by the old words goes, and nothing else |
//! | `paused` | 7 | no slot of a paused job is queued; of a deleted one nothing is queued or claimed |
//! | `asked-for` | 1, 3 | a trigger makes one execution, a backfill one per slot, and what was acknowledged ends as any other |
//! | `cancel` | 7 | only what a client cancelled, or what is of a deleted job, is told to stop; it is not tried again, and what was answered CANCELLED stays so |
//! | `lease` | 5 | only the owner of a shard's lease queues or skips its slots |
//! | `session` | 5 | a session that is over does nothing and never comes back |
//! | `aside` | 11 | only a node whose clock really is off by the limit stands aside, and then it holds no shard |
//! | `hasty` | 12 | nobody else ends a session whose counter moved within the TTL |
//! | `places` | 1 | after every commit each waiting or running execution has exactly its one place, and nothing else has one |
//! | `counters` | 10 | a bucket's open counter is the number of its executions that are not terminal |
//! | `retained` | 10 | what has ended goes when its hour is old or its job has enough of newer ones; what is open never does; a job goes last |
//! | `tables` | 10 | at the end of the run `compline admin check` finds nothing: no orphan, no row that contradicts another |
//! | `prompt` | 2, 12 | when faults are over, what is due starts within 2 s |
//! | `workers` | 8 | a node runs no more attempts at once than it has workers |
//! | `livelock`, `endless` | | time moves on, and the run ends |
//! | `listed` | 7 | an execution is listed in the commit that makes it, a failure in the commit that fails it |
//!
//! Promise 6 (state and effects through the host), the sandbox's part of 8, and 9 (tenants) have no rule: the simulated tasks use no host, and one
//! tenant owns all jobs.

mod actors;
mod cancels;
mod changes;
mod executions;
mod finale;
mod late;
mod letters;
mod overlap;
mod places;
mod retention;
pub mod rows;
mod slots;
mod zones;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Cause, Owed, State};
use compline_core::ids::{ExecutionId, Fence, JobId, SessionId, ShardId};
use compline_core::schedule::zone::ZoneVersion;
use compline_store::backend::memory::Landed;
use compline_store::tables::cancel::CancelRow;
use compline_store::tables::execution::ExecutionRow;
use tokio::time::Instant;

use self::actors::Actors;
use self::changes::Owned;
use self::places::Places;
use self::rows::{Commit, Reader};
use super::world::World;

/// A promise that was broken.
#[derive(Debug, Clone)]
pub struct Violation {
    /// When, from the beginning of the run.
    pub at: Duration,
    /// The version of the commit, or of the last one before it was noticed.
    pub version: u64,
    /// Which rule.
    pub rule: &'static str,
    /// What happened, with the rows involved.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, version, rule, detail } = self;
        write!(f, "rule `{rule}` broken at {:.3} s into the run, by commit {version}: {detail}", at.as_secs_f64())
    }
}

/// A rule and what breaks it.
struct Broken {
    rule: &'static str,
    detail: String,
}

type Checked = Result<(), Broken>;

fn broken(rule: &'static str, detail: impl Into<String>) -> Checked {
    Err(Broken { rule, detail: detail.into() })
}

fn ensure(holds: bool, rule: &'static str, detail: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { broken(rule, detail()) }
}

/// What the log did, in numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Seen {
    /// Commits.
    pub commits: u64,
    /// Jobs.
    pub jobs: u64,
    /// Executions that ended.
    pub ended: u64,
    /// Claims of one execution each.
    pub claimed: u64,
    /// Attempts that failed and are tried again.
    pub retried: u64,
    /// Executions taken from sessions that were over.
    pub lost: u64,
    /// Executions that lost too many workers.
    pub poisoned: u64,
    /// Executions given back by their holders.
    pub handed_back: u64,
    /// Executions that waited and were cancelled.
    pub cancelled: u64,
    /// Attempts that were told to stop.
    pub stopped: u64,
    /// Pauses of jobs.
    pub paused: u64,
    /// Resumes of jobs.
    pub resumed: u64,
    /// Edits of jobs.
    pub edited: u64,
    /// Deletions of jobs.
    pub deleted: u64,
    /// Planned slots that were taken back.
    pub withdrawn: u64,
    /// Executions that were asked for, outside of schedules.
    pub asked_for: u64,
    /// Schedulers that stood aside because of their clocks.
    pub stood_aside: u64,
    /// Owed slots that their jobs' schedules went on without.
    pub passed: u64,
    /// Planned slots that newer zone data moved.
    pub rezoned: u64,
    /// Runs that were to start at once when faults were over, and did.
    pub prompt: u64,
    /// Slots that were too late.
    pub skipped: u64,
    /// Those of them that went because newer ones ran, by the cap of their job.
    pub skipped_by_cap: u64,
    /// Those of jobs that run only the newest late one.
    pub skipped_by_latest: u64,
    /// Those of jobs that run no late one.
    pub skipped_by_skip: u64,
    /// Slots due later than at their instant.
    pub spread: u64,
    /// Jobs that had all their runs.
    pub used_up: u64,
    /// Retries earlier than without jitter.
    pub jittered: u64,
    /// Dead letters laid down.
    pub letters: u64,
    /// Dead letters dropped.
    pub dropped: u64,
    /// Executions that failed for good and ran again.
    pub redriven: u64,
    /// Those of them whose rows were gone by then.
    pub restored: u64,
    /// Failures that a task was told of.
    pub told: u64,
    /// Failures of such tasks, which nobody was told of.
    pub not_told_twice: u64,
    /// Executions that waited for others of their job.
    pub held: u64,
    /// Executions that were found late, and set aside.
    pub owed: u64,
    /// Of those: how many went to their lanes.
    pub paid: u64,
    /// Executions that were owed, and given back by who held them.
    pub owed_back: u64,
    /// Slots left out because of others.
    pub overlapped: u64,
    /// Attempts ended because another slot came.
    pub terminated: u64,
    /// Stretches of slots past their deadline.
    pub stretches: u64,
    /// Executions removed because their hour was old, or because their job had enough newer ones.
    pub removed: u64,
    /// Executions removed though others of their hour were open.
    pub removed_beside_open: u64,
    /// Jobs removed with all that was theirs.
    pub forgotten: u64,
}

/// The replay, up to the last commit that it was shown.
pub struct Oracle {
    world: Arc<World>,
    reader: Reader,
    executions: BTreeMap<ExecutionId, ExecutionRow>,
    places: Places,
    actors: Actors,
    /// The execution of each slot.
    by_slot: BTreeMap<(JobId, Timestamp), ExecutionId>,
    /// The newest slot planned of each job.
    newest: BTreeMap<JobId, Timestamp>,
    /// Executions that are PENDING, by job.
    pending: BTreeMap<JobId, BTreeSet<ExecutionId>>,
    /// Stretches that have no execution.
    stretches: BTreeMap<JobId, Vec<(Timestamp, Timestamp)>>,
    /// Jobs, as of the last commit.
    jobs: BTreeMap<JobId, Owned>,
    /// The executions that each key asked for, by their slots.
    asked_for: BTreeMap<String, BTreeMap<Timestamp, ExecutionId>>,
    /// Fences granted, with whose they are and when.
    granted: BTreeMap<Fence, (ExecutionId, SessionId, Instant)>,
    /// When a fence was over, and by what.
    over: BTreeMap<Fence, (Instant, Ending)>,
    /// When each execution that was cancelled was.
    cancelled: BTreeMap<ExecutionId, Instant>,
    /// What counts for the rules of jobs that limit how many executions are live.
    counted: BTreeMap<JobId, overlap::Counted>,
    /// What is known of schedules beyond the models.
    courses: BTreeMap<JobId, late::Course>,
    /// Dead letters.
    letters: letters::Letters,
    /// How many attempts each execution had when it last began anew.
    forgiven: BTreeMap<ExecutionId, usize>,
    /// When each execution was made to run again.
    redriven: BTreeMap<ExecutionId, Vec<Instant>>,
    /// Which request made which execution run again.
    redriven_by: BTreeSet<(usize, ExecutionId)>,
    /// What sessions are told to stop.
    stops: BTreeMap<(SessionId, ExecutionId), CancelRow>,
    open: BTreeMap<(ShardId, u32), i64>,
    /// Executions whose rows were removed. What they were is remembered with the others.
    removed: BTreeSet<ExecutionId>,
    /// The newest zone data that the store has seen.
    newest_zones: ZoneVersion,
    version: u64,
    digest: DefaultHasher,
    /// What the log did, in numbers.
    pub seen: Seen,
}

/// How the right to report on an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Reported,
    Lost,
    HandedBack,
}

/// A commit and when it landed.
struct Moment<'a> {
    landed: &'a Landed,
    /// What the clock shows that is ahead most.
    wall: Timestamp,
}

impl Oracle {
    /// An oracle that has seen nothing.
    pub fn new(world: Arc<World>) -> Self {
        Self {
            world,
            reader: Reader::default(),
            executions: BTreeMap::new(),
            places: Places::default(),
            actors: Actors::default(),
            by_slot: BTreeMap::new(),
            newest: BTreeMap::new(),
            pending: BTreeMap::new(),
            stretches: BTreeMap::new(),
            jobs: BTreeMap::new(),
            asked_for: BTreeMap::new(),
            granted: BTreeMap::new(),
            over: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            counted: BTreeMap::new(),
            courses: BTreeMap::new(),
            letters: letters::Letters::default(),
            forgiven: BTreeMap::new(),
            redriven: BTreeMap::new(),
            redriven_by: BTreeSet::new(),
            stops: BTreeMap::new(),
            open: BTreeMap::new(),
            removed: BTreeSet::new(),
            newest_zones: ZoneVersion::default(),
            version: 0,
            digest: DefaultHasher::new(),
            seen: Seen::default(),
        }
    }

    /// Replays what landed since the last call.
    pub fn replay(&mut self) -> Result<(), Violation> {
        for landed in self.world.hub.take_landed() {
            (landed.version, &landed.changes).hash(&mut self.digest);
            self.version = landed.version;
            let checked = self.step(&landed);
            checked.map_err(|broken| self.violation(broken, landed.at))?;
        }
        Ok(())
    }

    /// A hash of the log so far: two runs of one seed have the same.
    pub fn digest(&self) -> u64 {
        self.digest.finish()
    }

    /// The violation of a rule that is no commit's.
    pub fn broke(&self, rule: &'static str, detail: String, at: Instant) -> Violation {
        self.violation(Broken { rule, detail }, at)
    }

    fn violation(&self, Broken { rule, detail }: Broken, at: Instant) -> Violation {
        Violation { at: self.world.clock.into_run(at), version: self.version, rule, detail }
    }

    fn step(&mut self, landed: &Landed) -> Checked {
        let commit = self
            .reader
            .read(&landed.changes)
            .map_err(|error| Broken { rule: "readable", detail: error.to_string() })?;
        self.seen.commits += 1;
        let moment = Moment { landed, wall: self.world.clock.at(landed.at) + self.world.shape.ahead_max() };
        self.check_retention(&commit, &moment)?;
        self.check_jobs(&commit, &moment)?;
        self.check_zones(&commit)?;
        self.check_withdrawn(&commit)?;
        self.check_slots(&commit, &moment)?;
        for after in commit.executions.values() {
            match self.executions.get(&after.execution.id) {
                Some(before) => self.check_transition(&before.clone(), after, &commit, &moment)?,
                None => self.check_birth(after, &commit)?,
            }
        }
        self.check_actors(&commit, &moment)?;
        self.check_letters(&commit, landed.at)?;
        self.count_starts(&commit)?;
        self.take_over(&commit, landed.at);
        self.check_after(&commit)
    }

    /// Makes the commit's rows the model's own.
    fn take_over(&mut self, commit: &Commit, at: Instant) {
        for (session, execution, row) in &commit.stops {
            match row {
                Some(row) => self.stops.insert((*session, *execution), *row),
                None => self.stops.remove(&(*session, *execution)),
            };
        }
        self.places.change(commit);
        for (id, row) in &commit.executions {
            let execution = &row.execution;
            let pending = self.pending.entry(execution.job).or_default();
            let planned = matches!(
                execution.state,
                State::Pending { .. } | State::Owed(Owed { again: false, passed: false, .. })
            );
            if planned && execution.cause == Cause::Schedule {
                pending.insert(*id);
            } else {
                pending.remove(id);
            }
            let was_open = self.executions.get(id).is_some_and(|before| !before.execution.state.is_terminal());
            let is_open = !execution.state.is_terminal();
            *self.open.entry((id.shard(), id.bucket_hour())).or_default() += i64::from(is_open) - i64::from(was_open);
            self.seen.ended += u64::from(!is_open);
            if let State::Cancelled { .. } = execution.state {
                self.cancelled.insert(*id, at);
            }
            self.executions.insert(*id, row.clone());
        }
        self.count(commit);
    }

    fn check_after(&self, commit: &Commit) -> Checked {
        self.check_next_planned(commit)?;
        self.check_owed_room(commit)?;
        self.check_counted(commit)?;
        self.check_stops(commit)?;
        let touched = commit.executions.keys().copied();
        let moved = commit.placed.iter().chain(&commit.taken).map(rows::Place::execution);
        for id in touched.chain(moved).collect::<BTreeSet<_>>() {
            self.places.check(id, self.executions.get(&id))?;
        }
        for (shard, hour, stored) in &commit.open {
            let counted = self.open.get(&(*shard, *hour)).copied().unwrap_or(0);
            ensure(counted == *stored, "counters", || {
                format!("shard {} hour {hour} is said to have {stored} open executions, and has {counted}", shard.0)
            })?;
        }
        for row in commit.executions.values() {
            let key = (row.execution.id.shard(), row.execution.id.bucket_hour());
            let counted = self.open.get(&key).copied().unwrap_or(0);
            ensure(self.places.stored_open(key) == counted, "counters", || {
                format!("{} changed without its bucket's counter: {counted} are open", row.execution.id)
            })?;
        }
        Ok(())
    }
}
