//! Identifiers. Each is a newtype, each has one text form, and those that sort do so by time.

use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

use data_encoding::{Encoding, Specification};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::Timestamp;

/// Crockford's base 32 in lower case: its digits sort as their values do, and none looks like another.
static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str("0123456789abcdefghjkmnpqrstvwxyz");
    specification.encoding().expect("a valid alphabet")
});

/// Text that is not the identifier it should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseIdError {
    text: String,
    expected: &'static str,
}

fn parse<const N: usize>(text: &str, prefix: &str, expected: &'static str) -> Result<[u8; N], ParseIdError> {
    let error = || ParseIdError { text: text.chars().take(80).collect(), expected };
    let digits = text.strip_prefix(prefix).ok_or_else(error)?;
    let mut padded = digits.to_owned();
    // 128 bits are 26 digits less two bits: the encoding wants whole bytes, and refuses bits that are set past them.
    if padded.len() != (N * 8).div_ceil(5) {
        return Err(error());
    }
    let bytes = BASE32.decode(std::mem::take(&mut padded).as_bytes()).map_err(|_| error())?;
    bytes.try_into().map_err(|_| error())
}

macro_rules! byte_id {
    ($(#[$doc:meta])* $name:ident, $bytes:literal, $prefix:literal, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name([u8; $bytes]);

        impl $name {
            /// The length in bytes.
            pub const BYTES: usize = $bytes;

            /// The identifier with these bytes, as a row holds it.
            pub const fn from_bytes(bytes: [u8; $bytes]) -> Self {
                Self(bytes)
            }

            /// Its bytes, in an order that sorts as the identifier does.
            pub fn as_bytes(&self) -> &[u8; $bytes] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}{}", $prefix, BASE32.encode(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                parse(text, $prefix, $expected).map(Self)
            }
        }
    };
}

byte_id!(
    /// A job: 48 bits of milliseconds, then 80 random bits, so that newer jobs sort last.
    JobId, 16, "job_", "a job id (`job_` and 26 letters or digits)"
);
byte_id!(
    /// An execution: the second of its bucket time (5 bytes), its job's shard (2), and a hash (13) of job, slot and request.
    ///
    /// It is a function of what it stands for, so inserting the same one twice is one row, and it says where that row is.
    ExecutionId, 20, "exec_", "an execution id (`exec_` and 32 letters or digits)"
);
byte_id!(
    /// One life of a node, from its start (or its return from the dead) to its end.
    SessionId, 16, "sess_", "a session id (`sess_` and 26 letters or digits)"
);
byte_id!(
    /// One attempt to claim work, the same over all retries of its transaction.
    ClaimId, 16, "claim_", "a claim id (`claim_` and 26 letters or digits)"
);
byte_id!(
    /// One request that makes an execution outside the schedule (a trigger, a backfill).
    RequestId, 16, "req_", "a request id (`req_` and 26 letters or digits)"
);

impl JobId {
    /// A new identifier, from the time of its creation and 80 random bits.
    pub fn new(created: Timestamp, random: u128) -> Self {
        let milliseconds = created.timestamp_millis().max(0) as u64;
        let mut bytes = random.to_be_bytes();
        bytes[..6].copy_from_slice(&milliseconds.to_be_bytes()[2..]);
        Self(bytes)
    }

    /// The shard that this job's work belongs to.
    pub fn shard(&self, shards: ShardCount) -> ShardId {
        let hash = Sha256::digest(self.0);
        ShardId(u16::from_be_bytes([hash[0], hash[1]]) % shards.0)
    }
}

/// A part of the due work and of the keyspace: `hash(job id) mod S`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId(pub u16);

/// How many shards a store has. Fixed when the store is first started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardCount(u16);

impl ShardCount {
    /// So many shards; at least one.
    pub fn new(count: u16) -> Self {
        Self(count.max(1))
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }

    /// All shards.
    pub fn all(self) -> impl Iterator<Item = ShardId> {
        (0..self.0).map(ShardId)
    }
}

impl ExecutionId {
    /// The execution of a slot of a job's schedule. Its bucket is the slot's hour.
    pub fn of_slot(job: JobId, slot: Timestamp, shard: ShardId) -> Self {
        Self::build(job, slot, slot, shard, None)
    }

    /// The execution of a slot that was asked for by a request. Its bucket is the request's hour.
    pub fn of_request(job: JobId, slot: Timestamp, shard: ShardId, request: RequestId, requested: Timestamp) -> Self {
        Self::build(job, slot, requested, shard, Some(request))
    }

    fn build(job: JobId, slot: Timestamp, bucket: Timestamp, shard: ShardId, request: Option<RequestId>) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(job.0);
        hasher.update(slot.timestamp().to_be_bytes());
        hasher.update(slot.timestamp_subsec_nanos().to_be_bytes());
        if let Some(request) = request {
            hasher.update(request.0);
        }
        let mut bytes = [0; Self::BYTES];
        bytes[..5].copy_from_slice(&bucket.timestamp().max(0).to_be_bytes()[3..]);
        bytes[5..7].copy_from_slice(&shard.0.to_be_bytes());
        bytes[7..].copy_from_slice(&hasher.finalize()[..13]);
        Self(bytes)
    }

    /// The second that the identifier sorts by.
    pub fn bucket_second(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes[3..].copy_from_slice(&self.0[..5]);
        u64::from_be_bytes(bytes)
    }

    /// The hour since 1970 in whose bucket the row lies.
    pub fn bucket_hour(&self) -> u32 {
        (self.bucket_second() / 3_600) as u32
    }

    /// The shard that the row lies in.
    pub fn shard(&self) -> ShardId {
        ShardId(u16::from_be_bytes([self.0[5], self.0[6]]))
    }
}

impl SessionId {
    /// A session that nothing has: what rows refer to that belong to no node.
    pub const NONE: Self = Self([0; Self::BYTES]);

    /// A new session, from its start (so that later ones sort last) and random bits.
    pub fn new(started: Timestamp, random: u128) -> Self {
        Self(*JobId::new(started, random).as_bytes())
    }
}

impl ClaimId {
    /// A new claim, from random bits.
    pub fn new(random: u128) -> Self {
        Self(random.to_be_bytes())
    }
}

impl RequestId {
    /// A new request, from random bits.
    pub fn new(random: u128) -> Self {
        Self(random.to_be_bytes())
    }

    /// The request that a failure for good stands for: one per execution and number of attempts, so that a redriven one can fail again.
    pub fn of_failure(failed: ExecutionId, attempts: u32) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(failed.0);
        hasher.update(attempts.to_be_bytes());
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&hasher.finalize()[..Self::BYTES]);
        Self(bytes)
    }

    /// The request that an idempotency key stands for, so that a repeat is the same one.
    pub fn of_key(tenant: &TenantId, key: &str) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(tenant.as_str().as_bytes());
        hasher.update([0]);
        hasher.update(key.as_bytes());
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&hasher.finalize()[..Self::BYTES]);
        Self(bytes)
    }
}

/// Who owns jobs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TenantId(String);

impl TenantId {
    /// The tenant of a server without tenants.
    pub fn default_tenant() -> Self {
        Self("default".to_owned())
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The SHA-256 of a component's bytes: the version of a task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TaskDigest([u8; 32]);

impl TaskDigest {
    /// The digest with these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The digest of these bytes.
    pub fn of(component: &[u8]) -> Self {
        Self(Sha256::digest(component).into())
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for TaskDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", data_encoding::HEXLOWER.encode(&self.0))
    }
}

impl fmt::Debug for TaskDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for TaskDigest {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let error = || ParseIdError {
            text: text.chars().take(80).collect(),
            expected: "a digest (`sha256:` and 64 hexadecimal digits)",
        };
        let digits = text.strip_prefix("sha256:").ok_or_else(error)?;
        let bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(|_| error())?;
        bytes.try_into().map(Self).map_err(|_| error())
    }
}

/// The right to report on one attempt: a store incarnation and the stamp of the commit that granted it, compared as bytes.
/// A later grant is greater; a stale one is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Fence([u8; 16]);

impl Fence {
    /// Before the commit that grants it: the store puts the real one in its place.
    pub const UNSET: Self = Self([0xff; 16]);

    /// The fence granted by the commit with this stamp, in this incarnation of the store.
    pub fn new(incarnation: u32, stamp: [u8; 12]) -> Self {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&incarnation.to_be_bytes());
        bytes[4..].copy_from_slice(&stamp);
        Self(bytes)
    }

    /// The incarnation and the stamp that it is made of.
    pub fn parts(&self) -> (u32, [u8; 12]) {
        let (mut incarnation, mut stamp) = ([0; 4], [0; 12]);
        incarnation.copy_from_slice(&self.0[..4]);
        stamp.copy_from_slice(&self.0[4..]);
        (u32::from_be_bytes(incarnation), stamp)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = data_encoding::HEXLOWER.encode(&self.0);
        write!(f, "{}-{}", &digits[..8], &digits[8..])
    }
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_seconds(seconds)
    }

    #[test]
    fn text_round_trips_and_sorts_as_bytes_do() {
        let shards = ShardCount::new(16);
        let mut ids = Vec::new();
        for step in 0..200u32 {
            let job = JobId::new(at(1_700_000_000), u128::from(step) << 64 | 7);
            assert_eq!(job.to_string().parse::<JobId>(), Ok(job));
            ids.push(ExecutionId::of_slot(job, at(1_800_000_000 + i64::from(step / 3)), job.shard(shards)));
        }
        let mut by_text = ids.clone();
        ids.sort();
        by_text.sort_by_key(ExecutionId::to_string);
        assert_eq!(ids, by_text);
        for id in ids {
            assert_eq!(id.to_string().parse::<ExecutionId>(), Ok(id));
        }
    }

    #[test]
    fn an_execution_id_is_a_function_of_job_and_slot_and_says_where_its_row_is() {
        let job = JobId::new(at(1_700_000_000), 42);
        let shard = job.shard(ShardCount::new(16));
        let id = ExecutionId::of_slot(job, at(1_800_003_599), shard);
        assert_eq!(id, ExecutionId::of_slot(job, at(1_800_003_599), shard));
        assert_ne!(id, ExecutionId::of_slot(job, at(1_800_003_600), shard));
        assert_eq!((id.bucket_hour(), id.shard()), (1_800_003_599 / 3_600, shard));
        let asked = RequestId::new(1);
        let requested = ExecutionId::of_request(job, at(1_800_003_599), shard, asked, at(1_900_000_000));
        assert_ne!(id, requested);
        assert_eq!(requested.bucket_second(), 1_900_000_000);
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        for text in ["", "job_", "job_zzz", "exec_0000000000000000000000000", "job_uuuuuuuuuuuuuuuuuuuuuuuuuu", "job_é"]
        {
            assert!(text.parse::<JobId>().is_err(), "{text}");
        }
        let job = JobId::new(at(1), 1).to_string();
        assert!(job.to_uppercase().parse::<JobId>().is_err());
        assert!(job.parse::<ExecutionId>().is_err());
    }
}
