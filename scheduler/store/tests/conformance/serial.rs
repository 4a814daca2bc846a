//! Strict serializability: concurrent transactions have the outcome of some serial order, and it is the order of their stamps.

use bytes::Bytes;
use compline_store::backend::{RangeQuery, Read};
use compline_store::{Stamp, Store, StoreError, Tx, Versionstamp};

use crate::fixture::{Fixture, key};

const KEYS: u8 = 5;
const WORKERS: u64 = 8;
const ROUNDS: usize = 40;

fn cell(index: u8) -> Bytes {
    key(&format!("cell {index}"))
}

fn cells(read: Read) -> RangeQuery {
    RangeQuery { begin: key("cell "), end: key("cell~"), limit: usize::MAX, reverse: false, read }
}

/// What a transaction saw of the cells (255: not looked at) and what it made of them (255: left alone, 254: removed).
type Record = [[u8; KEYS as usize]; 2];

const NOTHING: u8 = 255;
const ABSENT: u8 = 254;

async fn look(tx: &Tx, plan: u64, seen: &mut [u8; KEYS as usize]) -> Result<(), StoreError> {
    if plan.is_multiple_of(3) {
        seen.fill(ABSENT);
        for pair in tx.range(&cells(Read::Serializable)).await? {
            let index = usize::from(pair.key[5] - b'0');
            seen[index] = pair.value[0];
        }
        return Ok(());
    }
    for index in [(plan / 7 % 5) as u8, (plan / 35 % 5) as u8] {
        let value = tx.get(cell(index), Read::Serializable).await?;
        seen[usize::from(index)] = value.map_or(ABSENT, |value| value[0]);
    }
    Ok(())
}

async fn random_transaction(store: &Store, plan: u64) -> Versionstamp {
    let committed = store.transact(|tx| async move {
        let mut record: Record = [[NOTHING; KEYS as usize]; 2];
        look(&tx, plan, &mut record[0]).await?;
        // Somebody else gets a chance between the reads and the commit.
        tokio::task::yield_now().await;
        let sum = record[0].iter().fold(plan as u8, |sum, value| sum.wrapping_mul(31).wrapping_add(*value)) % 200;
        for index in [(plan / 175 % 5) as u8, (plan / 875 % 5) as u8] {
            record[1][usize::from(index)] = if sum.is_multiple_of(7) { ABSENT } else { sum };
            if sum.is_multiple_of(7) {
                tx.clear(cell(index));
            } else {
                tx.set(cell(index), Bytes::copy_from_slice(&[sum]));
            }
        }
        let row = [b"log ".as_slice(), &Stamp::unset(tx.next_stamp_index()).0].concat();
        tx.set_stamped_key(row, 4, Bytes::from(record.concat()));
        Ok(())
    });
    committed.await.expect("it commits in the end").stamp.expect("it wrote")
}

pub async fn random_transactions_have_a_serial_order(fixture: &Fixture) {
    let store = fixture.store();
    let workers = (0..WORKERS).map(|worker| {
        let store = store.clone();
        async move {
            let mut plans = fastrand::Rng::with_seed(worker);
            let mut last = Versionstamp::new(0, 0);
            for _ in 0..ROUNDS {
                let stamp = random_transaction(&store, plans.u64(..)).await;
                assert!(stamp > last, "a later transaction has a later stamp");
                last = stamp;
            }
        }
    });
    futures::future::join_all(workers).await;
    assert!(store.cost().conflicts > 0, "the transactions met");

    let log = RangeQuery { begin: key("log "), end: key("log~"), ..cells(Read::Snapshot) };
    let rows = fixture.begin().range(&log).await.expect("the scan succeeds");
    assert_eq!(rows.len(), WORKERS as usize * ROUNDS);
    let mut state = [ABSENT; KEYS as usize];
    for row in rows {
        let (seen, made) = row.value.split_at(KEYS.into());
        for index in 0..usize::from(KEYS) {
            assert!(
                seen[index] == NOTHING || seen[index] == state[index],
                "{row:?} read {seen:?}, but it was {state:?}"
            );
            if made[index] != NOTHING {
                state[index] = made[index];
            }
        }
    }
    let mut found = [ABSENT; KEYS as usize];
    for pair in fixture.begin().range(&cells(Read::Snapshot)).await.expect("the scan succeeds") {
        found[usize::from(pair.key[5] - b'0')] = pair.value[0];
    }
    assert_eq!(found, state);
}

pub async fn transfers_keep_their_sum(fixture: &Fixture) {
    let store = fixture.store();
    let number = |value: &[u8]| i64::from_le_bytes(value.try_into().expect("a counter has 8 bytes"));
    let setup = fixture.begin();
    for index in 0..KEYS {
        setup.set(cell(index), Bytes::copy_from_slice(&100_i64.to_le_bytes()));
    }
    setup.commit().await.expect("it commits");
    let workers = (0..WORKERS).map(|worker| {
        let store = store.clone();
        async move {
            let mut plans = fastrand::Rng::with_seed(worker);
            for _ in 0..ROUNDS {
                let (from, to) = (plans.u8(..KEYS), plans.u8(..KEYS));
                let transfer = store.transact(|tx| async move {
                    tx.add(cell(from), -1);
                    tokio::task::yield_now().await;
                    tx.add(cell(to), 1);
                    Ok(())
                });
                transfer.await.expect("it commits");
                let total = store.transact(|tx| async move { tx.range(&cells(Read::Snapshot)).await });
                let pairs = total.await.expect("it reads").value;
                assert_eq!(pairs.iter().map(|pair| number(&pair.value)).sum::<i64>(), 500, "no half transfer is seen");
            }
        }
    });
    futures::future::join_all(workers).await;
}
