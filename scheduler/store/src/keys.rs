//! Every key prefix of Compline, in one place. A prefix is never reused.
//!
//! ```text
//! prefix  table      key after the prefix                           value               written by             read by
//! ──────  ─────────  ─────────────────────────────────────────────  ──────────────────  ─────────────────────  ─────────────────────
//! 0x01    meta       name: store, starts, import                    per name            first start, import,   every start, export,
//!                                                                                       sessions' starts       import
//! 0x02    task       tenant 0 name                                  tags, versions      push                   create, api
//! 0x03    version    tenant 0 digest                                what it is          push                   create, executors, api
//! 0x04    blob       digest, chunk (u32)                            component bytes     push                   executors
//! 0x05    manifest   digest                                         size, chunks        push (last)            executors, push
//! 0x08    job        job id                                         revision, state,    create, edits          tick, claim, api
//!                                                                   definition
//! 0x09    job run    job id                                         next slot, starts   create, tick, edits    tick, edits, api
//! 0x0a    tenant job tenant 0 job id                                -                   create                 api
//! 0x0c    finished   hour (u32), job id                             -                   tick, edits, delete    retention
//! 0x0d    zones      none, or shard                                 newest zone data;    nodes' starts; rezone  tick, edits, rezone,
//!                                                                   how far followed    pass, edits            every node
//! 0x10    execution  shard, execution id                            the instance        create, trigger, tick, everybody
//!                                                                                       claim, complete, reap,
//!                                                                                       cancel, edits
//! 0x11    log        shard, execution id, attempt, chunk            lines               complete               api
//! 0x12    bucket     shard, hour                                    open rows (i64)     whoever makes or ends  retention
//!                                                                                       an execution
//! 0x13    dropping   shard, hour                                    -                   retention              retention, api
//! 0x14    trim       shard, job id                                  -                   create, trigger, tick  retention
//! 0x20    due        shard, due micros, execution id                job                 create, trigger, edits, tick
//!                                                                                       complete
//! 0x21    ready      lane 0 owed?, zone, partition, stamp           what to run         tick, reap             claim
//! 0x22    running    session, execution id                          fence, claim        claim                  beat, reap, claim
//! 0x23    session    node                                           session             start, reap, lease     claim, complete, beat,
//!                                                                                                              every node
//! 0x24    beat       node                                           counter, wall clock,beat                   every node
//!                                                                   what runs
//! 0x25    lease      shard                                          owner, fence        lease pass             tick
//! 0x26    bell       kind, number or lane                           counter (i64)       create, tick, complete,watches
//!                                                                                       lease
//! 0x27    cancel     session, execution id                          fence, claim        cancel                 executors, reap
//! 0x28    live       job id, 0, execution id                        -                   tick                   tick, complete, reap,
//!                    job id, 1, due micros, execution id            scheduled?                                 cancel
//! 0x29    owed       shard, lane 0 due micros, execution id          job                 tick                   tick
//! 0x30    history    job id, slot micros, execution id              -                   create, trigger, tick, sweep, api
//!                                                                                       edits
//! 0x31    all runs   tenant 0 execution id                          -                   the same               api
//! 0x32    failed     tenant 0 execution id                          -                   complete, reap         api
//! 0x33    job failed job id, execution id                           -                   complete, reap         api
//! 0x38    ledger     job id, micros, 0 | 1 revision                 stretch | change     tick, edits            api
//! 0x40    request    tenant 0 idempotency key                       body hash, result   requests with a key    the same
//! 0x41    request    micros, tenant 0 idempotency key               -                   create                 retention
//!         time
//! 0x48    dead       lane 0 failed micros, execution id             the whole of it      complete, reap         redrive, api
//! 0x49    dead place execution id                                   lane, failed micros  complete, reap         redrive, drop
//! ```
//!
//! An execution id begins with its bucket's second, so within a shard the rows of one hour lie side by side, and a bucket is dropped by
//! clearing ranges, in steps (`bucket.rs`).
//!
//! Names (tenant, task, lane, job) have no zero byte: they are checked where they come in.

use std::fmt;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::ids::{ExecutionId, JobId, SessionId, ShardId, TaskDigest, TenantId};

/// The enum of tables, and the list of all its members, from one place: a table that is added to the one is in the other.
macro_rules! tables {
    ($($name:ident = $prefix:literal,)*) => {
        /// The tables, by their prefix byte.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        #[expect(missing_docs, reason = "the diagram above says what each is")]
        pub enum Table {
            $($name = $prefix,)*
        }

        impl Table {
            /// All tables, in the order of their keys.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

tables! {
    Meta = 0x01,
    Task = 0x02,
    Version = 0x03,
    Blob = 0x04,
    Manifest = 0x05,
    Job = 0x08,
    JobRun = 0x09,
    TenantJob = 0x0a,
    Finished = 0x0c,
    Zones = 0x0d,
    Execution = 0x10,
    Log = 0x11,
    Bucket = 0x12,
    Dropping = 0x13,
    Trim = 0x14,
    Due = 0x20,
    Ready = 0x21,
    Running = 0x22,
    Session = 0x23,
    Beat = 0x24,
    Lease = 0x25,
    Bell = 0x26,
    Cancel = 0x27,
    Live = 0x28,
    Owed = 0x29,
    History = 0x30,
    AllRuns = 0x31,
    Failed = 0x32,
    JobFailed = 0x33,
    Ledger = 0x38,
    Request = 0x40,
    RequestTime = 0x41,
    Dead = 0x48,
    DeadPlace = 0x49,
}

impl Table {
    /// The table that a key belongs to, if this build knows it.
    pub fn of(key: &[u8]) -> Option<Self> {
        let prefix = *key.first()?;
        Self::ALL.iter().copied().find(|table| *table as u8 == prefix)
    }

    /// The range of all its keys.
    pub(crate) fn range(self) -> (Bytes, Bytes) {
        KeyBuilder::new(self).prefix()
    }

    /// Its name in the diagram above, in messages and in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Task => "task",
            Self::Version => "version",
            Self::Blob => "blob",
            Self::Manifest => "manifest",
            Self::Job => "job",
            Self::JobRun => "job run",
            Self::TenantJob => "tenant job",
            Self::Finished => "finished",
            Self::Zones => "zones",
            Self::Execution => "execution",
            Self::Log => "log",
            Self::Bucket => "bucket",
            Self::Dropping => "dropping",
            Self::Trim => "trim",
            Self::Due => "due",
            Self::Ready => "ready",
            Self::Running => "running",
            Self::Session => "session",
            Self::Beat => "beat",
            Self::Lease => "lease",
            Self::Bell => "bell",
            Self::Cancel => "cancel",
            Self::Live => "live",
            Self::Owed => "owed",
            Self::History => "history",
            Self::AllRuns => "all runs",
            Self::Failed => "failed",
            Self::JobFailed => "job failed",
            Self::Ledger => "ledger",
            Self::Request => "request",
            Self::RequestTime => "request time",
            Self::Dead => "dead",
            Self::DeadPlace => "dead place",
        }
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A key under construction.
#[derive(Clone)]
pub(crate) struct KeyBuilder(Vec<u8>);

impl KeyBuilder {
    pub(crate) fn new(table: Table) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(table as u8);
        Self(bytes)
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    /// A name and the zero byte that ends it.
    pub(crate) fn name(self, name: &str) -> Self {
        debug_assert!(!name.as_bytes().contains(&0), "names with a zero byte are refused where they come in");
        self.bytes(name.as_bytes()).bytes(&[0])
    }

    pub(crate) fn tenant(self, tenant: &TenantId) -> Self {
        self.name(tenant.as_str())
    }

    pub(crate) fn u8(self, number: u8) -> Self {
        self.bytes(&[number])
    }

    pub(crate) fn u16(self, number: u16) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    pub(crate) fn u32(self, number: u32) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    /// An instant, so that bytes sort as time does, before 1970 too.
    pub(crate) fn micros(self, instant: Timestamp) -> Self {
        self.bytes(&sortable(instant.unix_micros_ceil()))
    }

    pub(crate) fn shard(self, shard: ShardId) -> Self {
        self.u16(shard.0)
    }

    pub(crate) fn job(self, job: JobId) -> Self {
        self.bytes(job.as_bytes())
    }

    pub(crate) fn execution(self, execution: ExecutionId) -> Self {
        self.bytes(execution.as_bytes())
    }

    pub(crate) fn session(self, session: SessionId) -> Self {
        self.bytes(session.as_bytes())
    }

    pub(crate) fn digest(self, digest: TaskDigest) -> Self {
        self.bytes(digest.as_bytes())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn build(self) -> Bytes {
        self.0.into()
    }

    /// The range of all keys that begin with this one.
    pub(crate) fn prefix(self) -> (Bytes, Bytes) {
        let end = prefix_end(&self.0);
        (self.build(), end)
    }
}

/// Sign flipped, so that big-endian bytes sort as the numbers do.
fn sortable(number: i64) -> [u8; 8] {
    ((number as u64) ^ (1 << 63)).to_be_bytes()
}

/// The number in sortable bytes.
pub(crate) fn from_sortable(bytes: [u8; 8]) -> i64 {
    (u64::from_be_bytes(bytes) ^ (1 << 63)) as i64
}

/// The first key after all keys that begin with `prefix`.
pub(crate) fn prefix_end(prefix: &[u8]) -> Bytes {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < 0xff {
            end.push(last + 1);
            return end.into();
        }
    }
    Bytes::from_static(&[0xff])
}

/// The first key after `key`.
pub(crate) fn after(key: &[u8]) -> Bytes {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next.into()
}

/// The length of the prefix within which this key is a place in a queue: keys are added at the back and removed at the front.
/// A backend uses it to begin scans behind what was removed.
pub fn fifo_prefix(key: &[u8]) -> Option<usize> {
    match *key.first()? {
        table if table == Table::Due as u8 => (key.len() >= 3).then_some(3),
        table if table == Table::Ready as u8 => {
            let lane = key.iter().position(|byte| *byte == 0)?;
            (key.len() >= lane + 4).then_some(lane + 4)
        }
        table if table == Table::Owed as u8 => {
            let lane = key.get(3..)?.iter().position(|byte| *byte == 0)?;
            Some(3 + lane + 1)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_sort_as_bytes_before_1970_too() {
        let seconds = [-62_000_000_000, -1, 0, 1, 1_800_000_000, 253_402_300_799];
        let keys: Vec<Bytes> =
            seconds.map(|s| KeyBuilder::new(Table::Due).micros(Timestamp::from_unix_seconds(s)).build()).to_vec();
        assert!(keys.is_sorted());
        for (key, second) in keys.iter().zip(seconds) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&key[1..9]);
            assert_eq!(from_sortable(bytes), second * 1_000_000);
        }
    }

    #[test]
    fn all_tables_are_listed_in_the_order_of_their_keys() {
        assert!(Table::ALL.is_sorted_by(|left, right| (*left as u8) < *right as u8));
        assert_eq!(Table::of(&[0x0a, 1]), Some(Table::TenantJob));
        assert_eq!((Table::of(&[0x06]), Table::of(&[])), (None, None));
        assert_eq!(Table::TenantJob.to_string(), "tenant job");
    }

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(prefix_end(b"a"), Bytes::from_static(b"b"));
        assert_eq!(prefix_end(&[1, 0xff]), Bytes::from_static(&[2]));
        assert_eq!(after(b"a"), Bytes::from_static(b"a\0"));
    }

    #[test]
    fn queues_are_the_due_rows_of_a_shard_and_the_ready_rows_of_a_partition() {
        let due = KeyBuilder::new(Table::Due).shard(ShardId(3)).micros(Timestamp::EPOCH).build();
        assert_eq!(fifo_prefix(&due), Some(3));
        let ready = KeyBuilder::new(Table::Ready).name("batch").u8(0).u8(0).u8(7).bytes(&[9; 12]).build();
        assert_eq!(fifo_prefix(&ready), Some(1 + 6 + 3));
        let owed = KeyBuilder::new(Table::Owed).shard(ShardId(3)).name("batch").micros(Timestamp::EPOCH).build();
        assert_eq!(fifo_prefix(&owed), Some(3 + 6));
        assert_eq!(fifo_prefix(&KeyBuilder::new(Table::Job).bytes(&[0; 16]).build()), None);
        assert_eq!(fifo_prefix(&[]), None);
    }
}
