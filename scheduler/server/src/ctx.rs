//! What every pass needs: the store and what holds for all of it, the clock, and parsed jobs.

use std::collections::HashMap;
use std::iter;
use std::sync::{Arc, Weak};

use compline_core::Timestamp;
use compline_core::ids::{JobId, ShardCount};
use compline_core::job::Job;
use compline_core::schedule::zone::ZoneData;
use compline_core::schedule::{Schedule, ScheduleError, ScheduleKind, ScheduleSpec};
use compline_core::timetable::Timetable;
use compline_store::tables::job::JobRow;
use compline_store::tables::meta::{self, Meta};
use compline_store::{Store, StoreError};
use parking_lot::Mutex;

use crate::env::Env;
use crate::fleet::Fleet;
use crate::metrics::{Metrics, STRETCH_COUNTED_MAX};
use crate::passes::owed::OwedRoom;
use crate::passes::retain::Retention;
use crate::passes::rezone::Newer;

/// How many shards a new store gets.
pub const SHARDS_DEFAULT: u16 = 16;
/// How many parts each lane of a new store gets.
pub const PARTITIONS_DEFAULT: u8 = 8;

/// What every pass needs. Shared by all loops of a node.
#[derive(Debug)]
pub struct Ctx {
    /// The store.
    pub store: Store,
    /// Clock and randomness.
    pub env: Env,
    /// How many shards the store has.
    pub shards: ShardCount,
    /// How many parts each lane has.
    pub partitions: u8,
    /// The store's incarnation: what leads every fence.
    pub incarnation: u32,
    /// Parsed definitions.
    pub jobs: JobCache,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How long history is kept.
    pub retention: Retention,
    /// What is known of zone data that is newer than this node's.
    pub newer_zones: Newer,
    /// What this process sees of all nodes.
    pub fleet: Fleet,
    /// The room that lanes have for what is owed.
    pub owed_room: OwedRoom,
}

impl Ctx {
    /// Reads what the store says of itself, or, at its first start, writes it.
    pub async fn open(store: Store, env: Env, metrics: Arc<Metrics>) -> Result<Self, StoreError> {
        let first =
            Meta { layout: meta::LAYOUT, shards: SHARDS_DEFAULT, partitions: PARTITIONS_DEFAULT, incarnation: 1 };
        let first = &first;
        let jobs = JobCache::by(env.zones().clone());
        let counted = metrics.clone();
        let store = store.telling_of_unreadable(Arc::new(move |table| counted.unreadable(table)));
        let meta = store.transact(|tx| async move { meta::get_or_init(&tx, first).await }).await?.value;
        Ok(Self {
            store,
            env,
            shards: ShardCount::new(meta.shards),
            partitions: meta.partitions.max(1),
            incarnation: meta.incarnation,
            jobs,
            metrics,
            retention: Retention::default(),
            newer_zones: Newer::default(),
            fleet: Fleet::default(),
            owed_room: OwedRoom::default(),
        })
    }

    /// The same, keeping history for another time.
    #[must_use]
    pub fn keeping(self, retention: Retention) -> Self {
        Self { retention, ..self }
    }

    /// A definition, ready for use here.
    pub fn parse(&self, job: Job) -> Result<ParsedJob, ScheduleError> {
        let schedule = Arc::new(job.schedule.parse_by(self.env.zones())?);
        Ok(ParsedJob { job, schedule })
    }

    /// A row, unless it cannot be read: then it stops itself, not its neighbours, and is counted.
    pub(crate) fn readable<T>(&self, row: Result<T, StoreError>) -> Option<T> {
        row.inspect_err(|error| {
            tracing::error!(%error, "a row cannot be read and is left alone");
            let table = if let StoreError::Unreadable { table, .. } = error { table } else { "unknown" };
            self.metrics.unreadable(table);
        })
        .ok()
    }

    /// The same of a read that stands for one row: `None` if that cannot be read. Other errors go on.
    pub(crate) fn if_readable<T>(&self, read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
        match read {
            Err(error @ StoreError::Unreadable { .. }) => Ok(self.readable(Err(error))),
            other => other.map(Some),
        }
    }
}

/// A definition, ready for use.
#[derive(Debug)]
pub struct ParsedJob {
    /// The definition.
    pub job: Job,
    /// Its schedule, parsed.
    pub schedule: Arc<Schedule>,
}

impl ParsedJob {
    /// Parses what needs it, by the zone data that is built in.
    pub fn new(job: Job) -> Result<Self, ScheduleError> {
        let schedule = Arc::new(Schedule::try_from(job.schedule.clone())?);
        Ok(Self { job, schedule })
    }

    /// How many slots lie in `from..until`, up to [`STRETCH_COUNTED_MAX`].
    pub fn slots_between(&self, from: Timestamp, until: Timestamp) -> u64 {
        let slots = iter::successors(self.timetable().at_or_after(from), |slot| self.timetable().after(*slot));
        slots.take_while(|slot| *slot < until).take(STRETCH_COUNTED_MAX).count() as u64
    }

    /// Its slots.
    pub fn timetable(&self) -> Timetable<'_> {
        let Job { id, bounds, splay, .. } = self.job;
        Timetable { job: id, schedule: &self.schedule, bounds, splay, taken: &[] }
    }
}

/// Parsed cron schedules, each once for all jobs that spell it alike: text, zone and rules at clock changes.
#[derive(Debug, Default)]
struct Schedules {
    zones: ZoneData,
    known: HashMap<ScheduleSpec, Weak<Schedule>>,
    /// When so many are known, those that no job uses any more are forgotten.
    sweep_at: usize,
}

const SCHEDULES_SWEEP_MIN: usize = 1_024;

impl Schedules {
    fn parsed(&mut self, spec: &ScheduleSpec) -> Result<Arc<Schedule>, ScheduleError> {
        // The others hold an instant of their own, and nothing that it would pay to share.
        if spec.kind != ScheduleKind::Cron {
            return spec.parse_by(&self.zones).map(Arc::new);
        }
        if let Some(known) = self.known.get(spec).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let schedule = Arc::new(spec.parse_by(&self.zones)?);
        if self.known.len() >= self.sweep_at.max(SCHEDULES_SWEEP_MIN) {
            self.known.retain(|_, schedule| schedule.strong_count() > 0);
            self.sweep_at = self.known.len() * 2;
        }
        self.known.insert(spec.clone(), Arc::downgrade(&schedule));
        Ok(schedule)
    }
}

/// Parsed definitions by job, each for one revision. Two generations: when the young one is full it becomes the old one and what was in the
/// old one and not asked for since is forgotten.
#[derive(Debug, Default)]
pub struct JobCache {
    generations: Mutex<Generations>,
    schedules: Mutex<Schedules>,
}

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<JobId, (u64, Arc<ParsedJob>)>,
    old: HashMap<JobId, (u64, Arc<ParsedJob>)>,
}

const GENERATION_JOBS_MAX: usize = 50_000;

impl JobCache {
    /// A cache that reads schedules by this zone data.
    pub fn by(zones: ZoneData) -> Self {
        Self { generations: Mutex::default(), schedules: Mutex::new(Schedules { zones, ..Schedules::default() }) }
    }

    /// The parsed definition of a row, from the cache if it has this revision.
    pub fn parsed(&self, id: JobId, row: &JobRow) -> Result<Arc<ParsedJob>, StoreError> {
        if let Some(parsed) = self.lookup(id, row.revision) {
            return Ok(parsed);
        }
        let job = row.definition()?;
        let schedule = self.schedules.lock().parsed(&job.schedule);
        let schedule = schedule.map_err(|error| StoreError::unreadable("job", id.as_bytes(), error))?;
        let parsed = Arc::new(ParsedJob { job, schedule });
        self.insert(id, row.revision, parsed.clone());
        Ok(parsed)
    }

    fn lookup(&self, id: JobId, revision: u64) -> Option<Arc<ParsedJob>> {
        let mut generations = self.generations.lock();
        if let Some((known, parsed)) = generations.young.get(&id) {
            return (*known == revision).then(|| parsed.clone());
        }
        let (known, parsed) = generations.old.remove(&id)?;
        let found = (known == revision).then(|| parsed.clone());
        generations.insert(id, known, parsed);
        found
    }

    fn insert(&self, id: JobId, revision: u64, parsed: Arc<ParsedJob>) {
        self.generations.lock().insert(id, revision, parsed);
    }
}

impl Generations {
    fn insert(&mut self, id: JobId, revision: u64, parsed: Arc<ParsedJob>) {
        if self.young.len() >= GENERATION_JOBS_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, (revision, parsed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_spell_a_schedule_alike_share_it_while_one_uses_it() {
        let mut schedules = Schedules::default();
        let spec = |zone: &str| ScheduleSpec { time_zone: Some(zone.to_owned()), ..ScheduleSpec::cron("30 2 * * *") };
        let first = schedules.parsed(&spec("Europe/Berlin")).unwrap();
        assert!(Arc::ptr_eq(&first, &schedules.parsed(&spec("Europe/Berlin")).unwrap()));
        assert!(!Arc::ptr_eq(&first, &schedules.parsed(&spec("Europe/Paris")).unwrap()));
        assert!(schedules.parsed(&spec("Europe/Atlantis")).is_err());
        for minute in 0..SCHEDULES_SWEEP_MIN * 3 {
            let text = format!("{} {} * * *", minute % 60, minute / 60 % 24);
            schedules
                .parsed(&ScheduleSpec { fold: None, ..ScheduleSpec::cron(format!("{} {text}", minute % 60)) })
                .unwrap();
        }
        assert!(schedules.known.len() <= SCHEDULES_SWEEP_MIN, "unused ones are forgotten: {}", schedules.known.len());
        assert!(Arc::ptr_eq(&first, &schedules.parsed(&spec("Europe/Berlin")).unwrap()));
    }
}
