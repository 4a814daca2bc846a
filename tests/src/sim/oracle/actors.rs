//! Rules `lease`, `session` and `hasty`: who may act.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use compline_core::ids::{Fence, SessionId, ShardId};
use compline_server::fleet::clocks::ClockLimits;
use compline_store::tables::session::{Session, Standing};
use tokio::time::Instant;

use super::rows::Commit;
use super::{Broken, Checked, Moment, Oracle, ensure};
use crate::sim::backend::Author;

/// Sessions and leases, as of the last commit.
#[derive(Debug, Default)]
pub(super) struct Actors {
    /// The session of each node.
    current: BTreeMap<String, SessionId>,
    /// Every session that ever began.
    known: BTreeMap<SessionId, Life>,
    leases: BTreeMap<ShardId, (SessionId, Fence)>,
    lease_fences: BTreeSet<Fence>,
}

#[derive(Debug)]
struct Life {
    author: Author,
    node: String,
    counter: Bytes,
    moved: Instant,
}

impl Actors {
    /// Whether a session lasts.
    pub(super) fn is_current(&self, session: SessionId) -> bool {
        self.known.get(&session).is_some_and(|life| self.current.get(&life.node) == Some(&session))
    }

    /// Whether a session is this author's.
    pub(super) fn is_of(&self, session: SessionId, author: Author) -> bool {
        self.known.get(&session).is_some_and(|life| life.author == author)
    }

    /// The owner of a shard.
    pub(super) fn owner(&self, shard: ShardId) -> Option<SessionId> {
        self.leases.get(&shard).map(|(owner, _)| *owner)
    }

    /// The node of a session, for people.
    pub(super) fn node(&self, session: SessionId) -> Option<&str> {
        self.known.get(&session).map(|life| life.node.as_str())
    }
}

impl Oracle {
    pub(super) fn author(&self, commit: &Commit) -> Result<Author, Broken> {
        commit.author.ok_or_else(|| Broken { rule: "session", detail: "a commit without a signature".to_owned() })
    }

    /// The name of an author, for people.
    pub(super) fn name(&self, author: Author) -> String {
        self.world.record.lock().authors.get(author.0 as usize).cloned().unwrap_or_default()
    }

    /// What a session does, it does while it lasts, and its own node does it.
    pub(super) fn check_acts(&self, session: SessionId, commit: &Commit, rule: &'static str, what: &str) -> Checked {
        let author = self.author(commit)?;
        let actors = &self.actors;
        ensure(actors.is_current(session) && actors.is_of(session, author), rule, || {
            let state = if actors.is_current(session) { "lasts" } else { "is over" };
            let node = actors.node(session).unwrap_or("no node");
            format!("{what} in the name of {session} of {node}, which {state}, by {}", self.name(author))
        })
    }

    pub(super) fn check_actors(&mut self, commit: &Commit, moment: &Moment<'_>) -> Checked {
        for (shard, lease) in &commit.leases {
            match lease {
                Some(lease) => {
                    self.check_acts(lease.owner, commit, "session", &format!("shard {} was taken", shard.0))?;
                    let greatest = self.actors.lease_fences.last().copied();
                    ensure(greatest < Some(lease.fence), "lease", || {
                        format!("shard {} was granted under {}, after {greatest:?}", shard.0, lease.fence)
                    })?;
                    self.actors.leases.insert(*shard, (lease.owner, lease.fence));
                }
                None => {
                    self.actors.leases.remove(shard);
                }
            }
        }
        // Fences of one commit are told apart by their index, and may come in any order.
        self.actors.lease_fences.extend(commit.leases.iter().filter_map(|(_, lease)| lease.map(|lease| lease.fence)));
        self.check_sessions(commit, moment)
    }

    fn check_sessions(&mut self, commit: &Commit, moment: &Moment<'_>) -> Checked {
        for (node, session) in &commit.sessions {
            let author = self.author(commit)?;
            let before = self.actors.current.get(node).copied();
            let Some(session) = session else {
                if let Some(before) = before {
                    self.check_end(before, author, moment)?;
                }
                self.actors.current.remove(node);
                continue;
            };
            ensure(before == Some(session.id) || !self.actors.known.contains_key(&session.id), "session", || {
                format!("{} of {node}, which was over, came back by {}", session.id, self.name(author))
            })?;
            self.check_aside(node, session)?;
            self.actors.current.insert(node.clone(), session.id);
            // A session that changes what it says of itself has not moved by that.
            self.actors.known.entry(session.id).or_insert(Life {
                author,
                node: node.clone(),
                counter: Bytes::new(),
                moved: moment.landed.at,
            });
        }
        for (node, counter) in &commit.beats {
            let Some(session) = self.actors.current.get(node).copied() else {
                return super::broken("session", format!("{node} beat without a session"));
            };
            self.check_acts(session, commit, "session", &format!("{node} beat"))?;
            // A beat that is written again, after an unknown result, moves nothing.
            if let Some(life) = self.actors.known.get_mut(&session).filter(|life| life.counter != *counter) {
                life.counter = counter.clone();
                life.moved = moment.landed.at;
            }
        }
        Ok(())
    }

    /// Who stands aside has reason to, and has given up its shards.
    fn check_aside(&mut self, node: &str, session: &Session) -> Checked {
        if session.standing != Standing::Aside {
            return Ok(());
        }
        let clocks = &self.world.shape.nodes;
        let ahead = clocks.iter().find(|shape| shape.name == node).map_or(0, |shape| shape.ahead_micros);
        // In a run with a clock that is far off all others agree.
        let off = Duration::from_micros(ahead.unsigned_abs());
        ensure(off >= ClockLimits::default().aside, "aside", || {
            format!("{node} stands aside, and its clock is off by {off:?}")
        })?;
        let held: Vec<_> = self.actors.leases.iter().filter(|(_, (owner, _))| *owner == session.id).collect();
        ensure(held.is_empty(), "aside", || format!("{node} stands aside and holds {held:?}"))?;
        self.seen.stood_aside += 1;
        Ok(())
    }

    fn check_end(&self, session: SessionId, by: Author, moment: &Moment<'_>) -> Checked {
        let Some(life) = self.actors.known.get(&session) else { return Ok(()) };
        let still = moment.landed.at.duration_since(life.moved);
        ensure(life.author == by || still >= self.world.shape.session_ttl, "hasty", || {
            let ttl = self.world.shape.session_ttl;
            format!(
                "{session} of {} was ended by {} after {still:?} without a beat: it may take {ttl:?}",
                life.node,
                self.name(by)
            )
        })
    }
}
