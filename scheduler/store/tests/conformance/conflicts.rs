//! Which transactions may commit side by side.

use compline_store::backend::Read;

use crate::fixture::{Fixture, get, is_conflict, key, query, scan, stamp};

pub async fn lost_update(fixture: &Fixture) {
    fixture.put(&[("a", "0")]).await;
    let (first, second) = (fixture.begin(), fixture.begin());
    get(&*first, "a").await;
    get(&*second, "a").await;
    first.set(key("a"), key("1"));
    second.set(key("a"), key("2"));
    stamp(first.commit().await);
    assert!(is_conflict(&second.commit().await));
    assert_eq!(fixture.value("a").await, Some(key("1")));
}

pub async fn write_skew(fixture: &Fixture) {
    fixture.put(&[("a", "on"), ("b", "on")]).await;
    let (first, second) = (fixture.begin(), fixture.begin());
    for tx in [&first, &second] {
        get(&**tx, "a").await;
        get(&**tx, "b").await;
    }
    first.set(key("a"), key("off"));
    second.set(key("b"), key("off"));
    stamp(first.commit().await);
    assert!(is_conflict(&second.commit().await));
}

pub async fn phantom_insert(fixture: &Fixture) {
    fixture.put(&[("b", "1"), ("d", "1")]).await;
    let tx = fixture.begin();
    assert_eq!(scan(&*tx, "a", "m", 10, false).await.len(), 2);
    tx.set(key("count"), key("2"));
    fixture.put(&[("c", "1")]).await;
    assert!(is_conflict(&tx.commit().await));

    let tx = fixture.begin();
    scan(&*tx, "a", "m", 10, false).await;
    tx.set(key("x"), key("3"));
    fixture.put(&[("m", "1"), ("Z", "1")]).await;
    stamp(tx.commit().await);
}

pub async fn phantom_removal(fixture: &Fixture) {
    fixture.put(&[("b", "1"), ("d", "1")]).await;
    let tx = fixture.begin();
    scan(&*tx, "a", "m", 10, true).await;
    tx.set(key("x"), key("2"));
    fixture.remove("d").await;
    assert!(is_conflict(&tx.commit().await));
}

pub async fn insert_beyond_a_limited_scan(fixture: &Fixture) {
    fixture.put(&[("b", "1"), ("d", "1"), ("f", "1")]).await;
    let tx = fixture.begin();
    assert_eq!(scan(&*tx, "a", "m", 2, false).await.len(), 2);
    tx.set(key("x"), key("1"));
    fixture.put(&[("e", "1")]).await;
    stamp(tx.commit().await);

    for disturbing in ["a", "c", "d"] {
        let tx = fixture.begin();
        scan(&*tx, "a", "m", 2, false).await;
        tx.set(key("x"), key("1"));
        fixture.put(&[(disturbing, "2")]).await;
        assert!(is_conflict(&tx.commit().await), "{disturbing} lies within what was read");
        if disturbing != "d" {
            fixture.remove(disturbing).await;
        }
    }
}

pub async fn insert_before_a_limited_reverse_scan(fixture: &Fixture) {
    fixture.put(&[("b", "1"), ("d", "1"), ("f", "1")]).await;
    let tx = fixture.begin();
    assert_eq!(scan(&*tx, "a", "m", 2, true).await[1].0, "d");
    tx.set(key("x"), key("1"));
    fixture.put(&[("c", "1"), ("m", "1")]).await;
    stamp(tx.commit().await);

    let tx = fixture.begin();
    scan(&*tx, "a", "m", 2, true).await;
    tx.set(key("x"), key("1"));
    fixture.put(&[("g", "1")]).await;
    assert!(is_conflict(&tx.commit().await));
}

pub async fn snapshot_reads(fixture: &Fixture) {
    fixture.put(&[("a", "0"), ("b", "0")]).await;
    let tx = fixture.begin();
    let mut span = query("a", "c", 10, false);
    span.read = Read::Snapshot;
    assert_eq!(tx.range(&span).await.expect("the scan succeeds").len(), 2);
    tx.get_many(&[key("a")], Read::Snapshot).await.expect("the read succeeds");
    tx.set(key("x"), key("1"));
    fixture.put(&[("a", "1"), ("ab", "1")]).await;
    stamp(tx.commit().await);
}

pub async fn explicit_read_conflict(fixture: &Fixture) {
    for (written, conflicts) in [("b", true), ("b\0", false), ("a", false)] {
        let tx = fixture.begin();
        tx.get_many(&[key("a"), key("b")], Read::Snapshot).await.expect("the read succeeds");
        tx.add_read_conflict(key("b"), key("b\0"));
        tx.set(key("x"), key("1"));
        fixture.put(&[(written, "1")]).await;
        assert_eq!(is_conflict(&tx.commit().await), conflicts, "{written:?}");
    }
    let tx = fixture.begin();
    tx.get_many(&[key("a")], Read::Snapshot).await.expect("the read succeeds");
    tx.add_read_conflict(key("m"), key("p"));
    tx.set(key("x"), key("1"));
    fixture.put(&[("n", "1")]).await;
    assert!(is_conflict(&tx.commit().await));
}

pub async fn explicit_write_conflict(fixture: &Fixture) {
    fixture.put(&[("a", "0"), ("n", "0")]).await;
    for (begin, end, read) in [("a", "a\0", "a"), ("m", "p", "n")] {
        let reader = fixture.begin();
        get(&*reader, read).await;
        reader.set(key("x"), key("1"));
        let disturber = fixture.begin();
        disturber.add_write_conflict(key(begin), key(end));
        stamp(disturber.commit().await);
        assert!(is_conflict(&reader.commit().await), "{read} was disturbed");
        assert_eq!(fixture.value(read).await, Some(key("0")), "but did not change");
    }
}

pub async fn blind_writes(fixture: &Fixture) {
    let (first, second) = (fixture.begin(), fixture.begin());
    first.set(key("a"), key("1"));
    second.set(key("a"), key("2"));
    let earlier = stamp(second.commit().await);
    let later = stamp(first.commit().await);
    assert!(earlier < later);
    assert_eq!(fixture.value("a").await, Some(key("1")));
}

pub async fn own_writes_are_no_dependency(fixture: &Fixture) {
    let tx = fixture.begin();
    get(&*tx, "z").await;
    tx.set(key("a"), key("1"));
    assert_eq!(get(&*tx, "a").await, Some(key("1")));
    fixture.put(&[("a", "2")]).await;
    stamp(tx.commit().await);
    assert_eq!(fixture.value("a").await, Some(key("1")));
}

pub async fn cleared_spans_conflict(fixture: &Fixture) {
    fixture.put(&[("b", "1"), ("d", "1")]).await;
    let point = fixture.begin();
    get(&*point, "c").await;
    point.set(key("x"), key("1"));
    let span = fixture.begin();
    scan(&*span, "d", "z", 1, false).await;
    span.set(key("y"), key("1"));
    let aside = fixture.begin();
    get(&*aside, "e").await;
    aside.set(key("z"), key("1"));
    let clearing = fixture.begin();
    clearing.clear_range(key("a"), key("e"));
    stamp(clearing.commit().await);
    assert!(is_conflict(&point.commit().await), "a key inside, even one that is not there");
    assert!(is_conflict(&span.commit().await));
    stamp(aside.commit().await);
    assert_eq!(fixture.dump().await.len(), 1);
}

pub async fn cleared_span_against_insert(fixture: &Fixture) {
    // A clear decides at its commit point what it removes: a row that was inserted after the clearer began goes too.
    fixture.put(&[("b", "1")]).await;
    let clearing = fixture.begin();
    get(&*clearing, "z").await;
    clearing.clear_range(key("a"), key("m"));
    fixture.put(&[("c", "1")]).await;
    stamp(clearing.commit().await);
    assert!(fixture.dump().await.is_empty());
    fixture.put(&[("c", "2")]).await;
    assert_eq!(fixture.value("c").await, Some(key("2")));
}

pub async fn counters_conflict_with_readers(fixture: &Fixture) {
    let tx = fixture.begin();
    get(&*tx, "n").await;
    tx.set(key("x"), key("1"));
    let adding = fixture.begin();
    adding.add(key("n"), 1);
    stamp(adding.commit().await);
    assert!(is_conflict(&tx.commit().await));
}

pub async fn read_only(fixture: &Fixture) {
    fixture.put(&[("a", "0")]).await;
    let tx = fixture.begin();
    get(&*tx, "a").await;
    fixture.put(&[("a", "1")]).await;
    assert_eq!(tx.commit().await.expect("a read-only transaction commits"), None);
}

pub async fn repeatable_reads(fixture: &Fixture) {
    fixture.put(&[("a", "0"), ("b", "0")]).await;
    let tx = fixture.begin();
    assert_eq!(get(&*tx, "a").await, Some(key("0")));
    fixture.put(&[("a", "1"), ("b", "1"), ("c", "1")]).await;
    fixture.remove("a").await;
    assert_eq!(get(&*tx, "a").await, Some(key("0")));
    assert_eq!(scan(&*tx, "a", "z", 10, false).await, crate::fixture::pairs(&[("a", "0"), ("b", "0")]));
}

pub async fn acknowledged_commits_are_seen(fixture: &Fixture) {
    for round in 0..50 {
        let value = round.to_string();
        fixture.put(&[("a", &value)]).await;
        assert_eq!(fixture.value("a").await, Some(key(&value)));
    }
}

pub async fn a_key_written_twice(fixture: &Fixture) {
    let tx = fixture.begin();
    get(&*tx, "a").await;
    fixture.put(&[("a", "1")]).await;
    fixture.put(&[("b", "1")]).await;
    tx.set(key("a"), key("2"));
    assert!(is_conflict(&tx.commit().await), "the conflict is not the newest commit");
}
