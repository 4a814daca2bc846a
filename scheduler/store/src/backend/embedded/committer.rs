//! The one thread that commits: it takes what has queued up, checks it, writes it, syncs once, and only then lets anyone see it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Shared;
use super::database::{Data, DurableView};
use super::durable::DurableMark;
use super::group::Group;
use crate::backend::occ::ConflictWindow;
use crate::backend::transaction::CommitRequest;
use crate::backend::watches::{Arm, Watches};
use crate::{StoreError, Versionstamp};

/// How many transactions share an fsync at the most. Their sizes are bounded, so this bounds a group's memory too.
const GROUP_MAX: usize = 64;

type Answer = oneshot::Sender<Result<Versionstamp, StoreError>>;

/// What the committer is asked to do.
pub(super) enum Job {
    Commit(CommitRequest, Answer),
    Arm(Vec<Arm>),
    /// Commit what is queued, make it durable, release the files, and end.
    Close(oneshot::Sender<Result<(), StoreError>>),
}

pub(super) struct Committer {
    pub shared: Arc<Shared>,
    pub data: Arc<Data>,
    pub mark: DurableMark,
    pub window: ConflictWindow,
    pub watches: Watches,
}

impl Committer {
    /// Works until it is asked to close. It sleeps while there is nothing to do.
    pub fn run(mut self, jobs: &Receiver<Job>) {
        let mut commits = Vec::new();
        while let Ok(job) = jobs.recv() {
            let mut next = Some(job);
            let mut closing = None;
            while let Some(job) = next {
                match job {
                    Job::Commit(request, answer) => commits.push((request, answer)),
                    Job::Arm(watches) => watches.into_iter().for_each(|watch| self.watches.arm(watch, &self.window)),
                    Job::Close(answer) => closing = Some(answer),
                }
                let is_full = commits.len() >= GROUP_MAX || closing.is_some();
                next = if is_full { None } else { jobs.try_recv().ok() };
            }
            self.commit_group(commits.drain(..));
            if let Some(answer) = closing {
                let _ = answer.send(self.close());
                return;
            }
        }
    }

    fn commit_group(&mut self, commits: impl Iterator<Item = (CommitRequest, Answer)>) {
        let now = Instant::now();
        let data = self.data.clone();
        let base: Arc<DurableView> = self.shared.view.read().clone();
        let mut group = Group::new(&data, &base);
        let mut answers = Vec::new();
        self.window.prune(now);
        for (request, answer) in commits {
            let result = match self.shared.failure() {
                Some(failure) => Err(failure),
                None => group.admit(request, &mut self.window, now),
            };
            answers.push((answer, result));
        }
        let written = if group.is_empty() { Ok(()) } else { self.write(group) };
        if written.is_err() {
            // Nothing will change any more: waiting for it ends.
            self.watches = Watches::default();
        }
        // Refusals wait too: a conflict with a commit that can't be seen yet would only be met again.
        for (answer, result) in answers {
            let result = match (&written, result) {
                (Err(failure), Ok(_)) => Err(StoreError::CommitUnknown(failure.to_string())),
                (_, result) => result,
            };
            let _ = answer.send(result);
        }
    }

    /// Makes a group durable, then visible.
    fn write(&mut self, group: Group<'_>) -> Result<(), StoreError> {
        let version = group.version();
        let spans = group.spans.clone();
        let changes = group.into_changes();
        self.shared.note_written(version, &changes);
        let watched = self.watches.among(changes.iter().map(|(key, _)| key));
        let written = self.data.write(changes, version);
        let view = written.map_err(|error| self.shared.fail(format!("writing to the journal failed ({error:?})")))?;
        self.mark.advance(version).map_err(|error| self.shared.fail(format!("writing `durable` failed ({error})")))?;
        self.shared.publish(view);
        self.watches.fire(watched.iter(), &spans);
        Ok(())
    }

    /// Releases everything. The database closes with the last reader that is under way.
    fn close(self) -> Result<(), StoreError> {
        let Self { shared, data, mut mark, .. } = self;
        let synced = match shared.failure() {
            Some(failure) => Err(failure),
            None => data
                .sync()
                .map_err(|error| shared.fail(format!("the last sync failed ({error:?})")))
                .and_then(|()| mark.sync().map_err(|error| shared.fail(format!("the last sync failed ({error})")))),
        };
        shared.fail("it was closed".into());
        shared.release_data();
        drop(data);
        synced
    }
}
