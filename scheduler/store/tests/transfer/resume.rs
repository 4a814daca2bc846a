//! Killed at any point: what is left is refused by servers and finished by the same import.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use compline_store::tables::meta;
use compline_store::{Store, StoreError};

use crate::contents::{META, dump, embedded, export_to, fill, import_from, memory, meta_of, work};

/// Drives a future for so many polls, then drops it where it stands: `None`.
async fn for_polls<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

/// Whether a server is refused because the import is not finished.
async fn is_refused(store: &Store) -> bool {
    // Before the first batch there is nothing that an import would have begun, and looking must not change that.
    let looked = store.transact(|tx| async move {
        meta::get_or_init(&tx, &META).await.map(|_| ())?;
        Err::<(), _>(StoreError::Unavailable("only looking".to_owned()))
    });
    match looked.await {
        Err(StoreError::Unavailable(reason)) => reason.contains("run the same `compline admin import` again"),
        _ => false,
    }
}

async fn starts(store: &Store) -> Result<(), StoreError> {
    store.transact(|tx| async move { meta::get_or_init(&tx, &META).await }).await.map(|_| ())
}

#[tokio::test]
async fn an_import_that_is_killed_anywhere_is_finished_by_the_next() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    let source = memory();
    let meant = fill(&source, 21, 600).await;
    let (exported, _) = export_to(&source, &file).await.expect("an export");
    let expected = work(&dump(&source).await).0.len();
    let (mut unfinished, mut resumed) = (0, 0);
    // The embedded store commits on another thread, so a dropped import leaves a commit under way.
    for polls in 1.. {
        let path = directory.path().join(format!("store-{polls}"));
        let mut store = embedded(&path);
        let done = for_polls(polls, import_from(&store, &file)).await;
        let was_done = done.is_some();
        let imported = match done {
            Some(imported) => imported,
            None => {
                unfinished += usize::from(is_refused(&store).await);
                if polls % 2 == 0 {
                    store.close().await.expect("it closes");
                    store = embedded(&path);
                }
                import_from(&store, &file).await
            }
        };
        let imported = imported.expect("an import");
        resumed += usize::from(imported.resumed_at > 0);
        assert_eq!(imported.tally, exported, "after {polls} polls");
        let (executions, lanes) = work(&dump(&store).await);
        assert_eq!((executions.len(), &lanes), (expected, &meant.lanes), "after {polls} polls");
        assert_eq!(meta_of(&store).await.map(|meta| meta.incarnation), Some(META.incarnation + 1));
        starts(&store).await.expect("a server starts on it");
        store.close().await.expect("it closes");
        std::fs::remove_dir_all(path).expect("it is removed");
        if was_done {
            break;
        }
    }
    assert!(unfinished > 8 && resumed > 4, "{unfinished} {resumed}");
}
