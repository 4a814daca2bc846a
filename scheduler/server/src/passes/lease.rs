//! Leases: which scheduler ticks which shard. Spread evenly, taken over from the dead, given up by the living that hold too many.

use std::collections::{BTreeMap, BTreeSet};

use compline_core::ids::{SessionId, ShardId};
use compline_store::StoreError;
use compline_store::backend::Read;
use compline_store::tables::{lease, session};

use crate::ctx::Ctx;

/// Who takes part, as one scheduler sees it.
#[derive(Debug, Clone)]
pub struct Members {
    /// The scheduler that looks.
    pub node: String,
    /// Its session.
    pub session: SessionId,
    /// The sessions of all schedulers that seem alive, itself included.
    pub alive: BTreeSet<SessionId>,
}

/// Takes the shards that nobody alive holds, up to a fair share, and gives up what is over it. Returns what the session holds then.
/// `None`: the session is over.
pub async fn balance(ctx: &Ctx, members: &Members) -> Result<Option<BTreeSet<ShardId>>, StoreError> {
    let committed = ctx
        .store
        .transact(|tx| async move {
            if !session::is_current(&tx, &members.node, members.session).await? {
                return Ok(None);
            }
            let leases = lease::list(&tx, Read::Snapshot).await?;
            let owners: BTreeMap<ShardId, SessionId> =
                leases.iter().map(|(shard, lease)| (*shard, lease.owner)).collect();
            let mut mine: BTreeSet<ShardId> =
                owners.iter().filter(|(_, owner)| **owner == members.session).map(|(shard, _)| *shard).collect();
            let share = fair_share(ctx.shards.get() as usize, members);
            let free =
                ctx.shards.all().filter(|shard| owners.get(shard).is_none_or(|owner| !members.alive.contains(owner)));
            for shard in free {
                if mine.len() >= share {
                    break;
                }
                // Read again, serializably: of two that want it one wins, and the former owner's next tick conflicts.
                let current = lease::get(&tx, shard).await?;
                if current.is_none_or(|lease| !members.alive.contains(&lease.owner)) {
                    lease::grant(&tx, shard, members.session, ctx.incarnation);
                    mine.insert(shard);
                }
            }
            while mine.len() > share {
                let Some(shard) = mine.pop_last() else { break };
                if lease::get(&tx, shard).await?.is_some_and(|lease| lease.owner == members.session) {
                    lease::release(&tx, shard);
                }
            }
            Ok(Some(mine))
        })
        .await?;
    Ok(committed.value)
}

/// The shards divided by the schedulers; the first few, by session, take one more where it does not come out even.
fn fair_share(shards: usize, members: &Members) -> usize {
    let schedulers = members.alive.len().max(1);
    let rank = members.alive.iter().position(|session| *session == members.session).unwrap_or(0);
    shards / schedulers + usize::from(rank < shards % schedulers)
}

/// Gives up all shards of a session: a clean stop hands over at once.
pub async fn release_all(ctx: &Ctx, session: SessionId) -> Result<(), StoreError> {
    ctx.store
        .transact(|tx| async move {
            for (shard, lease) in lease::list(&tx, Read::Serializable).await? {
                if lease.owner == session {
                    lease::release(&tx, shard);
                }
            }
            Ok(())
        })
        .await?;
    Ok(())
}
