//! The retry loop, over a real backend.

use std::sync::atomic::{AtomicU32, Ordering};

use compline_store::backend::Read;
use compline_store::{StoreError, TransactOptions};

use crate::fixture::{Fixture, key, stamp};

/// Makes whatever is reading `name` conflict.
async fn disturb(fixture: &Fixture, name: &str) {
    let tx = fixture.begin();
    tx.add(key(name), 1);
    stamp(tx.commit().await);
}

pub async fn conflicts_max(fixture: &Fixture) {
    let runs = AtomicU32::new(0);
    let (fixture, runs) = (&fixture, &runs);
    let options = TransactOptions { conflicts_max: Some(3) };
    let store = fixture.store();
    let result = store.transact_with(options, |tx| async move {
        runs.fetch_add(1, Ordering::SeqCst);
        tx.get(key("n"), Read::Serializable).await?;
        disturb(fixture, "n").await;
        tx.set(key("x"), key("1"));
        Ok(())
    });
    assert!(matches!(result.await, Err(StoreError::Conflict)));
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    assert_eq!(fixture.value("x").await, None);
}

pub async fn retried_until_it_commits(fixture: &Fixture) {
    let runs = AtomicU32::new(0);
    let (fixture, runs) = (&fixture, &runs);
    let store = fixture.store();
    let committed = store.transact(|tx| async move {
        let run = runs.fetch_add(1, Ordering::SeqCst);
        let seen = tx.get(key("n"), Read::Serializable).await?;
        if run < 4 {
            tx.set(key(&format!("run {run}")), key("1"));
            disturb(fixture, "n").await;
        }
        assert!(!tx.maybe_committed(), "a conflict is a certain result");
        tx.set(key("x"), key("1"));
        Ok(seen)
    });
    let committed = committed.await.expect("it commits in the end");
    assert_eq!(committed.value.as_deref(), Some(&4_i64.to_le_bytes()[..]), "each run reads anew");
    assert!(committed.stamp.is_some());
    assert_eq!(store.cost().conflicts, 4);
    let names: Vec<_> = fixture.dump().await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["n", "x"], "nothing is left of the runs that failed");
}

pub async fn refusals_of_the_body(fixture: &Fixture) {
    let store = fixture.store();
    let refused = store.transact(|tx| async move {
        if tx.get(key("missing"), Read::Serializable).await?.is_none() {
            return Ok(Err("it is not there"));
        }
        tx.set(key("x"), key("1"));
        Ok(Ok(()))
    });
    let committed = refused.await.expect("a refusal is a value");
    assert_eq!((committed.value, committed.stamp), (Err("it is not there"), None));
}

pub async fn permanent_errors(fixture: &Fixture) {
    let runs = AtomicU32::new(0);
    let runs = &runs;
    let store = fixture.store();
    let failed = store.transact(|tx| async move {
        runs.fetch_add(1, Ordering::SeqCst);
        tx.set(key("x"), key("1"));
        Err::<(), _>(StoreError::unreadable("job", b"k", "test"))
    });
    assert!(matches!(failed.await, Err(StoreError::Unreadable { .. })));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(fixture.dump().await.is_empty());
}
