//! Watches. They are hints, but a backend without faults keeps them.

use futures::FutureExt;

use crate::fixture::{Fixture, get, key, soon, stamp};

pub async fn change_after_arming(fixture: &Fixture) {
    fixture.put(&[("a", "0")]).await;
    let watch = fixture.store().watch(key("a")).await.expect("it arms");
    fixture.put(&[("a", "1")]).await;
    soon(watch).await;
}

pub async fn change_before_arming(fixture: &Fixture) {
    fixture.put(&[("a", "0")]).await;
    let tx = fixture.begin();
    get(&*tx, "a").await;
    let watch = tx.watch(key("a"));
    fixture.put(&[("a", "1")]).await;
    assert_eq!(tx.commit().await.expect("a read-only transaction commits"), None);
    soon(watch).await;
}

pub async fn no_change(fixture: &Fixture) {
    fixture.put(&[("a", "0")]).await;
    let mut watch = fixture.store().watch(key("a")).await.expect("it arms");
    fixture.put(&[("b", "1"), ("a\0", "1")]).await;
    assert_eq!(fixture.value("b").await, Some(key("1")));
    assert!((&mut watch).now_or_never().is_none(), "only another key changed");
    fixture.remove("a").await;
    soon(watch).await;
}

pub async fn own_change(fixture: &Fixture) {
    let tx = fixture.begin();
    let mut watch = tx.watch(key("a"));
    tx.set(key("a"), key("1"));
    stamp(tx.commit().await);
    assert!((&mut watch).now_or_never().is_none(), "it sees its own write");
    fixture.put(&[("a", "2")]).await;
    soon(watch).await;
}

pub async fn cleared_span(fixture: &Fixture) {
    fixture.put(&[("b", "0")]).await;
    let watch = fixture.store().watch(key("b")).await.expect("it arms");
    let tx = fixture.begin();
    tx.clear_range(key("a"), key("c"));
    stamp(tx.commit().await);
    soon(watch).await;
}
