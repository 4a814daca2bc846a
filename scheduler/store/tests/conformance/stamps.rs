//! Versionstamps.

use compline_store::backend::{Read, Transaction};
use compline_store::{Stamp, StoreError, Versionstamp};

use crate::fixture::{Fixture, key, pairs, query, scan, stamp};

/// A row whose key is `prefix`, the stamp and the index.
fn stamped_row(tx: &dyn Transaction, prefix: &str, index: u16, value: &str) {
    let row = [prefix.as_bytes(), &Stamp::unset(index).0].concat();
    tx.set_stamped_key(row, prefix.len(), key(value));
}

pub async fn order_of_transactions(fixture: &Fixture) {
    let mut last = Versionstamp::new(0, 0);
    for round in 0..20 {
        let tx = fixture.begin();
        stamped_row(&*tx, "q", 0, &round.to_string());
        let stamp = stamp(tx.commit().await);
        assert!(last < stamp);
        last = stamp;
    }
    let values: Vec<_> = fixture.dump().await.into_iter().map(|(_, value)| value).collect();
    let expected: Vec<_> = (0..20).map(|round| round.to_string()).collect();
    assert_eq!(values, expected);

    // Commits that are in flight together have different stamps too.
    let transactions: Vec<_> = (0..20).map(|_| fixture.begin()).collect();
    for tx in &transactions {
        stamped_row(&**tx, "r", 0, "1");
    }
    let commits = futures::future::join_all(transactions.iter().map(|tx| tx.commit())).await;
    let mut stamps: Vec<_> = commits.into_iter().map(stamp).collect();
    stamps.sort();
    stamps.dedup();
    assert_eq!(stamps.len(), 20);
    assert!(last < stamps[0]);
}

pub async fn keys_and_values_agree(fixture: &Fixture) {
    let tx = fixture.begin();
    stamped_row(&*tx, "q", 3, "row");
    let value = [b"<<".as_slice(), &Stamp::unset(9).0, b">>"].concat();
    tx.set_stamped_value(key("value"), value, 2);
    let stamp = stamp(tx.commit().await);
    let rows = fixture.begin().range(&query("q", "r", 9, false)).await.expect("the scan succeeds");
    assert_eq!(rows[0].key, [b"q".as_slice(), &stamp.with_index(3).0].concat());
    let value = fixture.value("value").await.expect("the value is stored");
    assert_eq!(value, [b"<<".as_slice(), &stamp.with_index(9).0, b">>"].concat());
}

pub async fn rows_of_one_commit(fixture: &Fixture) {
    let tx = fixture.begin();
    for index in [2, 0, 1] {
        stamped_row(&*tx, "q", index, &index.to_string());
    }
    let stamp = stamp(tx.commit().await);
    let rows = fixture.begin().range(&query("q", "r", 9, false)).await.expect("the scan succeeds");
    let expected: Vec<_> = (0..3).map(|index| [b"q".as_slice(), &stamp.with_index(index).0].concat()).collect();
    assert_eq!(rows.iter().map(|row| row.key.to_vec()).collect::<Vec<_>>(), expected, "they share the stamp, all stay");
    assert_eq!(rows.iter().map(|row| row.value.clone()).collect::<Vec<_>>(), [key("0"), key("1"), key("2")]);
}

pub async fn own_stamps_are_unreadable(fixture: &Fixture) {
    let tx = fixture.begin();
    tx.set_stamped_value(key("value"), Stamp::unset(0).0.to_vec(), 0);
    stamped_row(&*tx, "q", 0, "row");
    let own = [b"q".as_slice(), &Stamp::unset(0).0].concat();
    for name in [key("value"), own.into()] {
        let read = tx.get_many(&[name], Read::Snapshot).await;
        let error = read.expect_err("its bytes are not known");
        assert!(matches!(error, StoreError::StampedUnread { .. }) && !error.is_retryable(), "{error}");
    }
    for reverse in [false, true] {
        let scan = tx.range(&query("q", "r", 9, reverse)).await;
        assert!(matches!(scan, Err(StoreError::StampedUnread { .. })));
        let scan = tx.range(&query("v", "w", 9, reverse)).await;
        assert!(matches!(scan, Err(StoreError::StampedUnread { .. })));
    }
    assert!(scan(&*tx, "a", "q", 9, false).await.is_empty(), "what lies aside can be read");
}

pub async fn scans_up_to_own_stamps(fixture: &Fixture) {
    let tx = fixture.begin();
    stamped_row(&*tx, "q", 0, "1");
    stamped_row(&*tx, "q", 1, "2");
    stamp(tx.commit().await);
    let tx = fixture.begin();
    stamped_row(&*tx, "q", 0, "3");
    let rows = tx.range(&query("q", "r", 2, false)).await.expect("earlier rows come before the own one");
    assert_eq!(rows.len(), 2);
    let more = tx.range(&query("q", "r", 3, false)).await;
    assert!(matches!(more, Err(StoreError::StampedUnread { .. })));
    tx.set(key("zz"), key("1"));
    assert_eq!(scan(&*tx, "q", "zzz", 1, true).await, pairs(&[("zz", "1")]));
    let more = tx.range(&query("q", "zzz", 2, true)).await;
    assert!(matches!(more, Err(StoreError::StampedUnread { .. })));
}

pub async fn cleared_stamps(fixture: &Fixture) {
    let tx = fixture.begin();
    stamped_row(&*tx, "q", 0, "cleared");
    tx.set_stamped_value(key("qq"), Stamp::unset(0).0.to_vec(), 0);
    tx.clear_range(key("q"), key("r"));
    stamped_row(&*tx, "q", 1, "kept");
    stamp(tx.commit().await);
    let rows = fixture.dump().await;
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].1, "kept");
}
