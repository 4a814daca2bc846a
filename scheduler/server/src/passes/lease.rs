//! Leases: which scheduler ticks which shard. Spread evenly, taken over from the dead, and taken by those who hold too few from those who hold
//! too many.
//!
//! What is durable: one row per shard, with its owner and a fence. Safety: a tick's commit depends on the row, so whoever takes a shard makes
//! the former owner's commits conflict, whatever that one believes. Liveness: owners that are over, or that stood still for the TTL under the
//! taker's eyes, lose their shards. A shard goes from one living owner to the other in one commit, so that it is never without one; nobody gives
//! up a shard for another who might not come.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use compline_core::ids::{SessionId, ShardId};
use compline_store::backend::Read;
use compline_store::tables::bell::Bell;
use compline_store::tables::lease::Lease;
use compline_store::tables::session::{Session, Standing};
use compline_store::tables::{lease, session};
use compline_store::{StoreError, Tx};

use crate::ctx::Ctx;

/// Who takes part, as one scheduler sees it.
#[derive(Debug, Clone)]
pub struct Members {
    /// The scheduler that looks.
    pub node: String,
    /// Its session.
    pub session: SessionId,
    /// The sessions whose counters have stood still for too long under its eyes.
    pub silent: BTreeSet<SessionId>,
}

/// Takes shards up to a fair share: first those that nobody alive holds, then those that others hold beyond theirs. Returns what the session
/// holds then. `None`: the session is over.
pub async fn balance(ctx: &Ctx, members: &Members) -> Result<Option<BTreeSet<ShardId>>, StoreError> {
    let committed = ctx.store.transact(|tx| async move { balance_in(ctx, &tx, members).await }).await?;
    Ok(committed.value)
}

async fn balance_in(ctx: &Ctx, tx: &Tx, members: &Members) -> Result<Option<BTreeSet<ShardId>>, StoreError> {
    let me = members.session;
    let Some(own) = session::get(tx, &members.node, Read::Serializable).await?.filter(|own| own.id == me) else {
        return Ok(None);
    };
    let sessions = Sessions::read(ctx, tx, &own, members).await?;
    let leases = Leases::read(ctx, tx).await?;
    let mut mine = leases.held.get(&me).cloned().unwrap_or_default();
    if own.standing != Standing::Active {
        return Ok(Some(mine));
    }
    let shards = usize::from(ctx.shards.get());
    let wanted = sessions.share(me, shards).saturating_sub(mine.len());
    let free = ctx.shards.all().filter(|shard| leases.is_free(*shard, &sessions));
    let surplus =
        leases.held.iter().filter(|(owner, _)| sessions.scheduling.contains(owner)).flat_map(|(owner, held)| {
            let over = held.len().saturating_sub(sessions.share(*owner, shards));
            held.iter().rev().copied().take(over)
        });
    for shard in free.chain(surplus).take(wanted) {
        // Read again, serializably: of two that want it one wins, and the former owner's next tick conflicts.
        if lease::get(tx, shard).await? == leases.of.get(&shard).copied() {
            lease::grant(tx, shard, me, ctx.incarnation);
            mine.insert(shard);
        }
    }
    Ok(Some(mine))
}

/// The sessions that last, at the moment of the transaction.
struct Sessions {
    /// Those that this build can read.
    known: BTreeSet<SessionId>,
    /// Those that tick shards: those with the newest zone data, since the others may not tick all jobs.
    scheduling: BTreeSet<SessionId>,
    /// Whether there are others, of which nothing is known: some other version's.
    others: bool,
    silent: BTreeSet<SessionId>,
}

impl Sessions {
    async fn read(ctx: &Ctx, tx: &Tx, own: &Session, members: &Members) -> Result<Self, StoreError> {
        let mut newest = String::new();
        let silent = members.silent.iter().copied().filter(|session| *session != own.id).collect();
        let mut sessions = Self { known: BTreeSet::new(), scheduling: BTreeSet::new(), others: false, silent };
        for row in session::list(tx, Read::Snapshot).await? {
            let Some(session) = ctx.readable(row.session) else {
                sessions.others = true;
                continue;
            };
            sessions.known.insert(session.id);
            let schedules = session.has_role("scheduler") && session.standing == Standing::Active;
            if schedules && !sessions.silent.contains(&session.id) {
                // Versions sort as they were published. Whose zone data is older takes no part while another's is newer.
                match session.versions.zones.cmp(&newest) {
                    Ordering::Less => continue,
                    Ordering::Equal => {}
                    Ordering::Greater => sessions.scheduling.clear(),
                }
                sessions.scheduling.insert(session.id);
                newest = session.versions.zones;
            }
        }
        Ok(sessions)
    }

    /// The shards divided by the schedulers; the first few, by age, hold one more where it does not come out even.
    fn share(&self, session: SessionId, shards: usize) -> usize {
        let Some(rank) = self.scheduling.iter().position(|other| *other == session) else { return 0 };
        shards / self.scheduling.len() + usize::from(rank < shards % self.scheduling.len())
    }
}

/// Who holds what, at the moment of the transaction.
struct Leases {
    of: BTreeMap<ShardId, Lease>,
    held: BTreeMap<SessionId, BTreeSet<ShardId>>,
    /// Shards whose row cannot be read: they are left alone.
    unreadable: BTreeSet<ShardId>,
}

impl Leases {
    async fn read(ctx: &Ctx, tx: &Tx) -> Result<Self, StoreError> {
        let mut leases = Self { of: BTreeMap::new(), held: BTreeMap::new(), unreadable: BTreeSet::new() };
        for (shard, row) in lease::list(tx, Read::Snapshot).await? {
            match ctx.readable(row) {
                Some(lease) => {
                    leases.of.insert(shard, lease);
                    leases.held.entry(lease.owner).or_default().insert(shard);
                }
                None => drop(leases.unreadable.insert(shard)),
            }
        }
        Ok(leases)
    }

    /// Whether nobody ticks a shard who may still do so. A session that this build cannot read may be the owner: as long as there is one, only
    /// those are taken from that are known not to.
    fn is_free(&self, shard: ShardId, sessions: &Sessions) -> bool {
        let Some(Lease { owner, .. }) = self.of.get(&shard) else { return !self.unreadable.contains(&shard) };
        !sessions.scheduling.contains(owner)
            && (!sessions.others || sessions.known.contains(owner) || sessions.silent.contains(owner))
    }
}

/// Changes whether a session takes part in scheduling. One that does not gives up all of its shards in the same commit, so that others take them
/// at once: a clean stop hands over at once. `false`: the session is over.
pub async fn stand(ctx: &Ctx, node: &str, session: SessionId, standing: Standing) -> Result<bool, StoreError> {
    let committed = ctx
        .store
        .transact(|tx| async move {
            let Some(own) = session::get(&tx, node, Read::Serializable).await?.filter(|own| own.id == session) else {
                return Ok(false);
            };
            if own.standing != standing {
                session::put(&tx, node, &Session { standing, ..own })?;
            }
            if standing != Standing::Active {
                for (shard, row) in lease::list(&tx, Read::Serializable).await? {
                    if row.is_ok_and(|lease| lease.owner == session) {
                        lease::release(&tx, shard);
                    }
                }
                Bell::Fleet.ring(&tx);
            }
            Ok(true)
        })
        .await?;
    Ok(committed.value)
}
