//! Read-your-writes, in all combinations, against a plain map.

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;
use compline_store::backend::Transaction;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::fixture::{Fixture, get, key, query, stamp};

type Model = BTreeMap<Bytes, Bytes>;

#[derive(Debug, Clone)]
enum Step {
    Set(u8, u8),
    Clear(u8),
    ClearRange(u8, u8),
    Add(u8, i8),
    Get(u8),
    Range { begin: u8, end: u8, limit: usize, reverse: bool },
    Commit,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..12_u8;
    prop_oneof![
        4 => (name.clone(), any::<u8>()).prop_map(|(key, value)| Step::Set(key, value)),
        2 => name.clone().prop_map(Step::Clear),
        1 => (name.clone(), name.clone()).prop_map(|(begin, end)| Step::ClearRange(begin, end)),
        3 => (name.clone(), any::<i8>()).prop_map(|(key, delta)| Step::Add(key, delta)),
        3 => name.clone().prop_map(Step::Get),
        4 => (name.clone(), name, 1..8_usize, any::<bool>())
            .prop_map(|(begin, end, limit, reverse)| Step::Range { begin, end, limit, reverse }),
        1 => Just(Step::Commit),
    ]
}

fn name(index: u8) -> Bytes {
    key(&format!("k{index:02}"))
}

fn number(value: Option<&Bytes>) -> i64 {
    let mut bytes = [0; 8];
    if let Some(value) = value {
        let known = value.len().min(8);
        bytes[..known].copy_from_slice(&value[..known]);
    }
    i64::from_le_bytes(bytes)
}

fn inside(model: &Model, begin: u8, end: u8) -> Vec<(Bytes, Bytes)> {
    if begin >= end {
        return Vec::new();
    }
    let bounds = (Bound::Included(name(begin)), Bound::Excluded(name(end)));
    model.range(bounds).map(|(key, value)| (key.clone(), value.clone())).collect()
}

async fn apply(tx: &dyn Transaction, model: &mut Model, step: &Step) {
    match *step {
        Step::Set(key, value) => {
            let value = Bytes::from(vec![value; usize::from(value % 11)]);
            tx.set(name(key), value.clone());
            model.insert(name(key), value);
        }
        Step::Clear(key) => {
            tx.clear(name(key));
            model.remove(&name(key));
        }
        Step::ClearRange(begin, end) => {
            tx.clear_range(name(begin), name(end));
            model.retain(|key, _| !(name(begin) <= *key && *key < name(end)));
        }
        Step::Add(key, delta) => {
            tx.add(name(key), delta.into());
            let sum = number(model.get(&name(key))).wrapping_add(delta.into());
            model.insert(name(key), Bytes::copy_from_slice(&sum.to_le_bytes()));
        }
        Step::Get(key) => {
            let text = format!("k{key:02}");
            assert_eq!(get(tx, &text).await.as_ref(), model.get(&name(key)), "{text}");
        }
        Step::Range { begin, end, limit, reverse } => {
            let mut expected = inside(model, begin, end);
            if reverse {
                expected.reverse();
            }
            expected.truncate(limit);
            let mut asked = query("", "", limit, reverse);
            (asked.begin, asked.end) = (name(begin), name(end));
            let found = tx.range(&asked).await.expect("the scan succeeds");
            let found: Vec<_> = found.into_iter().map(|pair| (pair.key, pair.value)).collect();
            assert_eq!(found, expected, "{step:?}");
        }
        Step::Commit => {}
    }
}

pub async fn random_writes_agree_with_a_model(fixture: &Fixture) {
    let config = Config { rng_seed: RngSeed::Fixed(7), ..Config::default() };
    let mut runner = TestRunner::new(config);
    let scenario = proptest::collection::vec(step(), 1..60);
    let mut model = Model::new();
    for _ in 0..150 {
        let steps = scenario.new_tree(&mut runner).expect("a scenario is made").current();
        let mut tx = fixture.begin();
        for step in &steps {
            apply(&*tx, &mut model, step).await;
            if matches!(step, Step::Commit) {
                tx.commit().await.expect("nobody else writes");
                tx = fixture.begin();
            }
        }
        tx.commit().await.expect("nobody else writes");
        let all = fixture.begin().range(&query("", "~", usize::MAX, false)).await.expect("the scan succeeds");
        let all: Model = all.into_iter().map(|pair| (pair.key, pair.value)).collect();
        assert_eq!(all, model, "after {steps:?}");
    }
    let tx = fixture.begin();
    tx.clear_range(key(""), key("~"));
    stamp(tx.commit().await);
    assert!(fixture.dump().await.is_empty());
}
