//! Scans.

use crate::fixture::{Fixture, key, pairs, scan, stamp};

pub async fn order_and_limits(fixture: &Fixture) {
    fixture.put(&[("b", "2"), ("a", "1"), ("c", "3"), ("ab", "1.5"), ("d", "4")]).await;
    let tx = fixture.begin();
    let forward = pairs(&[("a", "1"), ("ab", "1.5"), ("b", "2"), ("c", "3")]);
    let backward: Vec<_> = forward.iter().rev().cloned().collect();
    for limit in 1..6 {
        let kept = limit.min(4);
        assert_eq!(scan(&*tx, "a", "d", limit, false).await, forward[..kept]);
        assert_eq!(scan(&*tx, "a", "d", limit, true).await, backward[..kept]);
    }
    assert!(scan(&*tx, "a", "d", 0, false).await.is_empty());
}

pub async fn own_writes_are_merged(fixture: &Fixture) {
    fixture.put(&[("a", "1"), ("c", "1"), ("e", "1"), ("g", "1")]).await;
    let tx = fixture.begin();
    tx.set(key("b"), key("2"));
    tx.set(key("c"), key("2"));
    tx.clear(key("a"));
    tx.clear_range(key("d"), key("f"));
    tx.set(key("ee"), key("2"));
    let expected = pairs(&[("b", "2"), ("c", "2"), ("ee", "2"), ("g", "1")]);
    assert_eq!(scan(&*tx, "a", "z", 10, false).await, expected);
    assert_eq!(scan(&*tx, "a", "z", 2, false).await, expected[..2]);
    let backward: Vec<_> = expected.iter().rev().cloned().collect();
    assert_eq!(scan(&*tx, "a", "z", 10, true).await, backward);
    assert_eq!(scan(&*tx, "a", "z", 3, true).await, backward[..3]);
    stamp(tx.commit().await);
    assert_eq!(fixture.dump().await, expected);
}

pub async fn empty_spans(fixture: &Fixture) {
    fixture.put(&[("b", "1")]).await;
    let tx = fixture.begin();
    assert!(scan(&*tx, "b", "b", 10, false).await.is_empty());
    assert!(scan(&*tx, "c", "a", 10, true).await.is_empty());
    tx.clear_range(key("c"), key("a"));
    tx.clear_range(key("b"), key("b"));
    tx.set(key("x"), key("1"));
    fixture.put(&[("b", "2")]).await;
    stamp(tx.commit().await);
    assert_eq!(fixture.dump().await, pairs(&[("b", "2"), ("x", "1")]));
}
