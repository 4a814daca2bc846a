//! Stores that may not be read or written now.

use bytes::Bytes;
use compline_store::Store;
use compline_store::tables::session;
use compline_store::transfer::{ExportOptions, Quiet, Seen, TransferError, export, import, raise_incarnation};

use crate::contents::{beat, dump, embedded, export_to, fill, import_from, memory, node, now, quiet};

async fn set(store: &Store, key: &[u8]) {
    let key = &Bytes::copy_from_slice(key);
    let set = store.transact(|tx| async move {
        tx.set(key.clone(), Bytes::new());
        Ok(())
    });
    set.await.expect("a store");
}

#[tokio::test]
async fn a_target_that_holds_something_is_refused_and_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let (one, two) = (directory.path().join("one"), directory.path().join("two"));
    let source = memory();
    fill(&source, 1, 50).await;
    export_to(&source, &one).await.expect("an export");
    set(&source, b"\x30 another row of history").await;
    export_to(&source, &two).await.expect("an export");

    let target = memory();
    set(&target, b"\x38 a row of the ledger").await;
    let before = dump(&target).await;
    let refused = import_from(&target, &one).await.expect_err("a target that is not empty");
    assert!(refused.to_string().contains("`ledger`"), "{refused}");
    assert_eq!(dump(&target).await, before);

    // Another import's part.
    let target = embedded(&directory.path().join("store"));
    let quiet = quiet(&target).await;
    let mut ignore = |_| {};
    let mut half = Box::pin(import(&target, &one, quiet, &mut ignore));
    for _ in 0..6 {
        let _ = futures::poll!(half.as_mut());
        tokio::task::yield_now().await;
    }
    drop(half);
    let refused = import_from(&target, &two).await.expect_err("a part of another export");
    assert!(matches!(refused, TransferError::OtherImport { .. }), "{refused}");
    assert!(matches!(export_to(&target, &directory.path().join("three")).await, Err(TransferError::SourceUnfinished)));
    assert!(matches!(raise_incarnation(&target, quiet).await, Err(TransferError::SourceUnfinished)));

    // The same import, twice; and once more when a node has started on it.
    import_from(&target, &one).await.expect("an import");
    import_from(&target, &one).await.expect("a repeat changes nothing");
    node(&target, "n").await;
    assert!(matches!(import_from(&target, &one).await, Err(TransferError::TargetNotEmpty { .. })));
}

#[tokio::test]
async fn nodes_that_live_or_begin_are_noticed() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = memory();
    fill(&store, 2, 20).await;
    // A counter that moves, and a node that begins, between two looks.
    for name in ["dead-node", "another"] {
        let seen = Seen::look(&store).await.expect("a store");
        assert_eq!(seen.nodes().collect::<Vec<_>>(), ["dead-node"]);
        let second = &beat(2);
        let beat = store.transact(|tx| async move { session::put_beat(&tx, "dead-node", second) });
        match name {
            "another" => node(&store, name).await,
            _ => drop(beat.await.expect("a store")),
        }
        match Quiet::establish(&store, &seen).await {
            Err(TransferError::NodeAlive { node }) => assert_eq!(node, name),
            other => panic!("{other:?}"),
        }
    }
    // One that begins, and even ends, while the store is read.
    let quiet = quiet(&store).await;
    assert!(Seen::look(&store).await.expect("a store").is_empty());
    node(&store, "short").await;
    let ended = store.transact(|tx| async move {
        compline_store::tables::session::clear(&tx, "short");
        Ok(())
    });
    ended.await.expect("a store");
    let options = ExportOptions { now: now(), build: String::new() };
    let path = directory.path().join("file");
    let refused = export(&store, &path, &options, quiet, &mut |_| {}).await.expect_err("a node was started");
    assert!(matches!(refused, TransferError::NodeStarted), "{refused}");
    assert!(!path.exists(), "the file never got its name");
    assert!(matches!(raise_incarnation(&store, quiet).await, Err(TransferError::NodeStarted)));
}

#[tokio::test]
async fn unknown_tables_and_stores_that_were_never_started_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("file");
    let empty = memory();
    assert!(matches!(export_to(&empty, &path).await, Err(TransferError::NeverStarted)));
    for prefix in [0x00, 0x06, 0x2f, 0xfe] {
        let store = memory();
        fill(&store, 3, 5).await;
        set(&store, &[prefix, 1]).await;
        match export_to(&store, &path).await {
            Err(TransferError::UnknownTable { prefix: found }) => assert_eq!(found, prefix),
            other => panic!("{other:?}"),
        }
        let source = memory();
        fill(&source, 4, 5).await;
        let file = directory.path().join(format!("file-{prefix}"));
        export_to(&source, &file).await.expect("an export");
        let target = memory();
        set(&target, &[prefix, 1]).await;
        assert!(matches!(import_from(&target, &file).await, Err(TransferError::UnknownTable { .. })));
        assert!(matches!(export_to(&source, &file).await, Err(TransferError::FileExists { .. })));
    }
}
