//! The limits that hold on every backend, each at the limit and one past it.

use bytes::Bytes;
use compline_store::limits::{KEY_BYTES_MAX, TRANSACTION_BYTES_MAX, VALUE_BYTES_MAX};
use compline_store::{StoreError, Tx};

use crate::fixture::{Fixture, key};

async fn run(fixture: &Fixture, write: impl Fn(&Tx) + Send + Sync) -> Result<(), StoreError> {
    let write = &write;
    let store = fixture.store();
    let committed = store.transact(|tx| async move {
        write(&tx);
        Ok(())
    });
    committed.await.map(|_| ())
}

fn assert_too_large(result: Result<(), StoreError>, expected: &str, limit: usize) {
    let error = result.expect_err("it is refused");
    assert!(matches!(error, StoreError::TooLarge { what, .. } if what == expected), "{error}");
    assert!(error.to_string().contains(&limit.to_string()), "{error}");
}

pub async fn value_at_its_limit(fixture: &Fixture) {
    let most = Bytes::from(vec![7; VALUE_BYTES_MAX]);
    run(fixture, |tx| tx.set(key("a"), most.clone())).await.expect("a value at the limit is stored");
    assert_eq!(fixture.value("a").await, Some(most));
    let more = Bytes::from(vec![7; VALUE_BYTES_MAX + 1]);
    assert_too_large(run(fixture, |tx| tx.set(key("b"), more.clone())).await, "value", VALUE_BYTES_MAX);
    assert_eq!(fixture.value("b").await, None);
}

async fn set_key_of(fixture: &Fixture, bytes: usize) -> Result<(), StoreError> {
    let name = Bytes::from(vec![b'k'; bytes]);
    run(fixture, |tx| tx.set(name.clone(), key("1"))).await
}

pub async fn key_at_its_limit(fixture: &Fixture) {
    set_key_of(fixture, KEY_BYTES_MAX).await.expect("a key at the limit is stored");
    assert_too_large(set_key_of(fixture, KEY_BYTES_MAX + 1).await, "key", KEY_BYTES_MAX);
    assert_eq!(fixture.dump().await.len(), 1);
}

pub async fn transaction_at_its_limit(fixture: &Fixture) {
    let fill = |tx: &Tx, bytes: usize| {
        for index in 0..10 {
            let name = key(&format!("{index:08}"));
            let value = vec![1; (bytes / 10) - name.len()];
            tx.set(name, value.into());
        }
    };
    run(fixture, |tx| fill(tx, TRANSACTION_BYTES_MAX)).await.expect("a transaction at the limit commits");
    assert_eq!(fixture.dump().await.len(), 10);
    let over = run(fixture, |tx| {
        fill(tx, TRANSACTION_BYTES_MAX);
        tx.clear(key("x"));
    });
    assert_too_large(over.await, "transaction", TRANSACTION_BYTES_MAX);
}

pub async fn nothing_of_a_refused_transaction(fixture: &Fixture) {
    let refused = run(fixture, |tx| {
        tx.set(key("before"), key("1"));
        tx.set(key("large"), vec![0; VALUE_BYTES_MAX + 1].into());
        tx.set(key("after"), key("1"));
    });
    refused.await.expect_err("it is refused");
    assert!(fixture.dump().await.is_empty());
}
