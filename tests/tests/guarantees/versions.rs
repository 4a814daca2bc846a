//! Two builds on one store: a row of a version that this build does not know is refused by its table with a sentence that says so, is never taken
//! for empty and never misread; and it stops itself, not its neighbours.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use compline_core::Timestamp;
use compline_core::execution::Outcome;
use compline_core::ids::{ExecutionId, SessionId, TaskDigest, TenantId};
use compline_core::ledger::SkipReason;
use compline_core::schedule::ScheduleSpec;
use compline_server::passes::beat::{self, Pulse};
use compline_server::passes::complete;
use compline_store::StoreError;
use compline_store::backend::{KeyValue, RangeQuery, Read};
use compline_store::keys::Table;
use compline_store::tables::execution::LogLine;
use compline_store::tables::live::{self, Waiting};
use compline_store::tables::queue::{self, Part};
use compline_store::tables::request::{Made, RequestRow};
use compline_store::tables::task::{Task, TaskVersion, load_component, store_component};
use compline_store::tables::{execution, job, lease, ledger, meta, request, running, session, task};

use crate::world::{World, report};

const UNKNOWN: u8 = 255;

/// What the rows belong to.
struct Ids {
    tenant: TenantId,
    digest: TaskDigest,
    ended: ExecutionId,
}

/// A store with a row in every table whose values carry a version.
async fn fill(world: &World) -> Ids {
    let (tenant, digest) = (TenantId::default_tenant(), TaskDigest::of(b"component"));
    let sessions = world.begin_sessions(1).await;
    let (node, session): &(String, SessionId) = &sessions[0];
    for _ in 0..3 {
        world.create(ScheduleSpec::now()).await;
    }
    world.create(ScheduleSpec::cron("0 0 1 1 *")).await;
    world.tick_all(*session).await;
    let claimed = world.claim(node, *session, 2).await.claimed;
    let ended = claimed[0].execution.id;
    let mut report = report(&world.ctx, &claimed[0], Outcome::Ok);
    report.logs = vec![LogLine { level: "info".to_owned(), message: "done".to_owned() }];
    complete::complete(&world.ctx, node, *session, &[report]).await.expect("a store");
    let pulse = Pulse { counter: 1, before_took: None, running: Vec::new() };
    assert!(beat::beat(&world.ctx, node, *session, &pulse).await.expect("a store"));
    store_component(&world.ctx.store, digest, &Bytes::from_static(b"component")).await.expect("a store");
    let at = Timestamp::from_unix_seconds(1_800_000_000);
    let row = &Task { name: "t".to_owned(), latest: digest, tags: Default::default(), versions: vec![(digest, at)] };
    let version = &TaskVersion {
        digest,
        size_bytes: 9,
        is_command: false,
        imports: Vec::new(),
        exports: Vec::new(),
        grants: Vec::new(),
        parameters_schema: None,
        pushed_at: at,
    };
    let (tenant_ref, job) = (&tenant, claimed[0].execution.job);
    let waiting = &Waiting { job, due: at, execution: ended, scheduled: true };
    let written = world.ctx.store.transact(|tx| async move {
        task::put(&tx, tenant_ref, row)?;
        task::put_version(&tx, tenant_ref, version)?;
        request::put(&tx, tenant_ref, "key", &RequestRow { body_hash: [1; 32], made: Made::Job(job), at })?;
        live::put_waiting(&tx, waiting);
        ledger::add_range(&tx, job, at, at + Duration::from_secs(1), SkipReason::Misfire)
    });
    written.await.expect("a store");
    Ids { tenant, digest, ended }
}

async fn all_rows(world: &World) -> Vec<KeyValue> {
    let query = &RangeQuery {
        begin: Bytes::from_static(&[1]),
        end: Bytes::from_static(&[0xfe]),
        limit: 10_000,
        reverse: false,
        read: Read::Snapshot,
    };
    world.ctx.store.transact(|tx| async move { tx.range(query).await }).await.expect("a store").value
}

/// Reads a row as the code does that needs it; `None`: the table's values carry no version.
async fn read(world: &World, ids: &Ids, key: &Bytes, value: &Bytes) -> Option<Result<(), StoreError>> {
    let store = &world.ctx.store;
    Some(match Table::of(key)? {
        Table::Meta if key[1..] == *b"store" => {
            store.transact(|tx| async move { meta::get(&tx).await.map(drop) }).await.map(drop)
        }
        Table::Task => {
            store.transact(|tx| async move { task::get(&tx, &ids.tenant, "t", Read::Snapshot).await }).await.map(drop)
        }
        Table::Version => {
            let read =
                store.transact(|tx| async move { task::version(&tx, &ids.tenant, ids.digest, Read::Snapshot).await });
            read.await.map(drop)
        }
        Table::Manifest => load_component(store, ids.digest).await.map(drop),
        Table::Request => {
            store.transact(|tx| async move { request::get(&tx, &ids.tenant, "key").await }).await.map(drop)
        }
        Table::Log => store.transact(|tx| async move { execution::log(&tx, ids.ended).await }).await.map(drop),
        Table::Job => job::decode_row(key, value).map(drop),
        Table::JobRun => job::decode_run(key, value).map(drop),
        Table::Execution => execution::decode(key, value).map(drop),
        Table::Due => queue::decode_due(key, value).map(drop),
        Table::Ready => Part::decode(key, value).map(drop),
        Table::Running => running::decode(key, value).map(drop),
        Table::Session => session::decode(key, value).map(drop),
        Table::Beat => session::decode_beat(key, value).map(drop),
        Table::Lease => lease::decode(key, value).map(drop),
        Table::Ledger => ledger::decode(key, value).map(drop),
        Table::Live if !value.is_empty() => live::decode(key, value).map(drop),
        _ => return None,
    })
}

#[tokio::test(start_paused = true)]
async fn an_unknown_row_version_is_refused_with_a_clear_error_in_every_table() {
    let world = World::memory().await;
    let ids = fill(&world).await;
    let mut tables = BTreeSet::new();
    for KeyValue { key, value } in all_rows(&world).await {
        let Some(known) = read(&world, &ids, &key, &value).await else { continue };
        known.unwrap_or_else(|error| panic!("{key:?}: {error}"));
        let mut unknown = value.to_vec();
        unknown[0] = UNKNOWN;
        let unknown = Bytes::from(unknown);
        world.swap(&key, unknown.clone()).await;
        let refused = read(&world, &ids, &key, &unknown).await.expect("a versioned table");
        let error = refused.expect_err("an unknown version was read");
        let text = error.to_string();
        assert!(matches!(error, StoreError::Unreadable { .. }) && text.contains("version 255"), "{text}");
        assert!(text.contains("a newer one"), "it says what to do: {text}");
        world.swap(&key, value).await;
        tables.insert(key[0]);
    }
    assert_eq!(tables.len(), 17, "tables looked at: {tables:02x?}");
}

#[tokio::test(start_paused = true)]
async fn ready_rows_that_cannot_be_read_do_not_stand_in_the_way() {
    let world = World::memory().await;
    let sessions = world.begin_sessions(1).await;
    let (node, session) = &sessions[0];
    for _ in 0..40 {
        world.create(ScheduleSpec::now()).await;
    }
    world.tick_all(*session).await;
    let ready = all_rows(&world).await.into_iter().filter(|row| row.key[0] == Table::Ready as u8);
    let mut per_part: std::collections::BTreeMap<Vec<u8>, Vec<Bytes>> = std::collections::BTreeMap::new();
    for row in ready {
        per_part.entry(row.key[..row.key.len() - 12].to_vec()).or_default().push(row.key);
    }
    // All but the last one of each part are another version's.
    let mut good = 0;
    for keys in per_part.values() {
        good += 1;
        for key in &keys[..keys.len() - 1] {
            world.swap(key, Bytes::from_static(&[UNKNOWN, 1, 2, 3])).await;
        }
    }
    let mut claimed = 0;
    for _ in 0..good {
        claimed += world.claim(node, *session, 1).await.claimed.len();
    }
    assert_eq!(claimed, good, "one at a time, each behind rows that cannot be read");
    assert!(world.ctx.metrics.unreadable_in("ready") > 0);
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_run_again_leaves_alone_what_it_took_and_cannot_read() {
    let world = World::memory().await;
    let sessions = world.begin_sessions(1).await;
    let (node, session) = &sessions[0];
    let (bad, good) = (world.create(ScheduleSpec::now()).await, world.create(ScheduleSpec::now()).await);
    world.tick_all(*session).await;
    // It lands, and before it is run again the row of one of the jobs is another version's.
    let (key, store) = (job::key(world.execution(bad).await.job), world.ctx.store.clone());
    let spoil = async move {
        let key = &key;
        let spoilt = store.transact(|tx| async move {
            tx.set(key.clone(), Bytes::from_static(&[UNKNOWN, 1, 2]));
            Ok(())
        });
        spoilt.await.expect("a store");
    };
    let ctx = world.unanswered(Box::pin(spoil)).await;
    let claimed = world.claim_by(&ctx, node, *session, 2).await.claimed;
    assert_eq!(claimed.iter().map(|claimed| claimed.execution.id).collect::<Vec<_>>(), [good], "and takes no other");
    assert!(ctx.metrics.unreadable_in("job") > 0, "it is counted");
}
