//! Atomic addition.

use bytes::Bytes;

use crate::fixture::{Fixture, get, key, scan, stamp};

fn number(value: Option<Bytes>) -> i64 {
    i64::from_le_bytes(value.expect("the counter exists")[..].try_into().expect("a counter has 8 bytes"))
}

pub async fn concurrent_additions(fixture: &Fixture) {
    let store = fixture.store();
    let adders = (1..=16).map(|delta| {
        let store = store.clone();
        async move {
            for _ in 0..10 {
                store
                    .transact(|tx| async move {
                        tx.add(key("n"), delta);
                        tx.add(key("n"), -1);
                        Ok(())
                    })
                    .await
                    .expect("an addition commits");
            }
        }
    });
    futures::future::join_all(adders).await;
    assert_eq!(number(fixture.value("n").await), 10 * (1..=16).sum::<i64>() - 160);
    assert_eq!(store.cost().conflicts, 0, "additions never conflict with each other");
}

pub async fn odd_values(fixture: &Fixture) {
    let tx = fixture.begin();
    tx.set(key("short"), Bytes::from_static(&[0xff, 0x01]));
    tx.set(key("long"), Bytes::from_static(&[1, 0, 0, 0, 0, 0, 0, 0, 9]));
    tx.set(key("most"), Bytes::copy_from_slice(&i64::MAX.to_le_bytes()));
    stamp(tx.commit().await);
    let tx = fixture.begin();
    for name in ["short", "long", "most", "missing"] {
        tx.add(key(name), 1);
    }
    stamp(tx.commit().await);
    assert_eq!(number(fixture.value("short").await), 0x0200);
    assert_eq!(number(fixture.value("long").await), 2);
    assert_eq!(number(fixture.value("most").await), i64::MIN);
    assert_eq!(number(fixture.value("missing").await), 1);
}

pub async fn own_additions(fixture: &Fixture) {
    let tx = fixture.begin();
    tx.add(key("n"), 40);
    stamp(tx.commit().await);
    let tx = fixture.begin();
    tx.add(key("n"), 1);
    tx.add(key("n"), 1);
    assert_eq!(number(get(&*tx, "n").await), 42);
    assert_eq!(scan(&*tx, "a", "z", 5, false).await[0].1, "*\\x00\\x00\\x00\\x00\\x00\\x00\\x00");
    tx.clear(key("n"));
    tx.add(key("n"), 5);
    assert_eq!(number(get(&*tx, "n").await), 5);
    tx.clear_range(key("a"), key("z"));
    tx.add(key("n"), 7);
    assert_eq!(number(get(&*tx, "n").await), 7);
    tx.set(key("m"), Bytes::copy_from_slice(&3_i64.to_le_bytes()));
    tx.add(key("m"), -4);
    stamp(tx.commit().await);
    assert_eq!(number(fixture.value("n").await), 7);
    assert_eq!(number(fixture.value("m").await), -1);
}
