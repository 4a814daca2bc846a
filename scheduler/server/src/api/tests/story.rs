//! `job explain` of a job that lived through a clock change, an outage and a pause: a real server on a socket, asked by the real program; only the
//! clock is the test's.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use compline_core::Timestamp;
use compline_core::execution::{Cost, Outcome};
use compline_core::ids::{ClaimId, JobId, SessionId};
use compline_core::ledger::SkipReason;
use compline_core::time::instant;
use compline_store::tables::queue::ByTime;
use compline_store::tables::session::Session;

use super::support::Server;
use crate::passes::beat;
use crate::passes::claim::{ClaimRequest, claim};
use crate::passes::complete::{Report, complete};
use crate::passes::lease::{Members, balance};
use crate::passes::parts::LaneParts;
use crate::passes::tick::{Ticked, tick};

const NODE: &str = "node";

fn at(text: &str) -> Timestamp {
    instant::parse(text).unwrap().into()
}

/// What the loops of a node do, one step at a time.
struct Worker<'a> {
    server: &'a Server,
    session: SessionId,
    job: JobId,
}

impl<'a> Worker<'a> {
    async fn of(server: &'a Server, job: &str) -> Self {
        let ctx = &server.ctx;
        let session = SessionId::new(ctx.env.now(), 1);
        let begun = Session { roles: vec!["scheduler".to_owned()], ..Session::new(session, ctx.env.now()) };
        assert!(beat::begin(ctx, NODE, &begun, None).await.unwrap());
        balance(ctx, &Members { node: NODE.to_owned(), session, silent: BTreeSet::new() }).await.unwrap();
        Self { server, session, job: job.parse().unwrap() }
    }

    async fn tick(&self) -> Ticked {
        let (ctx, shard) = (&self.server.ctx, self.job.shard(self.server.ctx.shards));
        let now = ctx.env.now();
        let until = now + Duration::from_micros(1);
        let read = ctx.store.transact(|tx| async move { ByTime::Due.first(&tx, shard, None, until, 100).await });
        let (rows, _) = read.await.unwrap().value;
        tick(ctx, self.session, shard, ByTime::Due, &rows, now).await.unwrap()
    }

    /// Lets a slot be queued and run, so long after it was due.
    async fn run(&self, slot: &str, late: Duration) {
        self.server.set_clock(slot);
        assert_eq!(self.tick().await.queued, 1, "{slot}");
        let ctx = &self.server.ctx;
        let began = at(slot) + late;
        self.server.set_clock(&instant::format(began.to_utc()));
        let lanes = [LaneParts { lane: "default".to_owned(), parts: (0..ctx.partitions).collect() }];
        let claim_id = ClaimId::new(ctx.env.random_u128());
        let request = ClaimRequest {
            node: NODE,
            session: self.session,
            lanes: &lanes,
            limit: 1,
            owed_max: 1,
            claim: claim_id,
            can_run: &|_| true,
        };
        let claimed = claim(ctx, &request).await.unwrap().claimed.remove(0);
        let report = Report {
            execution: claimed.execution.id,
            fence: claimed.fence,
            job: claimed.job,
            started_at: began,
            finished_at: began,
            outcome: Outcome::Ok,
            cost: Cost::default(),
            output: None,
            logs: Vec::new(),
            random: 0,
        };
        complete(ctx, NODE, self.session, &[report]).await.unwrap();
    }
}

/// The program, from where this test runs in the build directory.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.ancestors().nth(2).map(Path::to_path_buf).unwrap().join("compline");
    assert!(program.exists(), "{} is missing: run `cargo xtask test`, which builds it", program.display());
    program
}

async fn explain(url: String, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::new(program());
    command.args(["--server", &url, "job", "explain"]).args(arguments).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(60), command.output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Every night at half past two in New York. The clocks go forward on March 14th, from 02:00 to 03:00.
const NIGHTLY: &str =
    r#"{"task":"echo","schedule":{"type":"CRON","value":"30 2 * * *","time_zone":"America/New_York"}}"#;

const STORY: &str = "\
2027-03-12T02:30:00-05:00 (2027-03-12T07:30:00Z): ran on time
2027-03-13T02:30:00-05:00 (2027-03-13T07:30:00Z): ran 5s late
2027-03-14T03:00:00-04:00 (2027-03-14T07:00:00Z): ran on time; 02:30 does not exist that day; runs right after the jump
2027-03-15T02:30:00-04:00 (2027-03-15T06:30:00Z) to 2027-03-18T02:30:00-04:00 (2027-03-18T06:30:00Z), 4 slots: did not run: too late for the job's misfire rule
2027-03-19T02:30:00-04:00 (2027-03-19T06:30:00Z): ran on time
2027-03-19T08:00:00-04:00 (2027-03-19T12:00:00Z): the job was paused
2027-03-20T02:30:00-04:00 (2027-03-20T06:30:00Z) to 2027-03-22T02:30:00-04:00 (2027-03-22T06:30:00Z), 3 slots: did not run: the job was paused
2027-03-22T08:00:00-04:00 (2027-03-22T12:00:00Z): the job was resumed
2027-03-23T02:30:00-04:00 (2027-03-23T06:30:00Z): ran on time
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c27_c30_a_job_tells_of_a_clock_change_an_outage_and_a_pause() {
    let server = Server::with_echo().await;
    server.set_clock("2027-03-11T12:00:00Z");
    let id = server.job(NIGHTLY).await;
    let worker = Worker::of(&server, &id).await;
    worker.run("2027-03-12T07:30:00Z", Duration::ZERO).await;
    worker.run("2027-03-13T07:30:00Z", Duration::from_secs(5)).await;
    worker.run("2027-03-14T07:00:00Z", Duration::ZERO).await;
    // Nothing runs for four days.
    server.set_clock("2027-03-18T12:00:00Z");
    let ticked = worker.tick().await;
    assert_eq!((ticked.queued, ticked.skipped), (0, [(SkipReason::Misfire, 4)].into()));
    worker.run("2027-03-19T06:30:00Z", Duration::ZERO).await;
    server.set_clock("2027-03-19T12:00:00Z");
    assert_eq!(server.post(&format!("/v1/jobs/{id}/pause"), "").await.status, 200);
    server.set_clock("2027-03-22T11:00:00Z");
    // While the pause lasts it is told from the first slot on that it leaves out.
    let items = server.get(&format!("/v1/jobs/{id}/ledger?from=2027-03-19T13:00:00Z")).await.json();
    assert_eq!((&items["items"][0]["reason"], &items["items"][0]["slots"]), (&"paused".into(), &3.into()), "{items}");
    server.set_clock("2027-03-22T12:00:00Z");
    assert_eq!(server.post(&format!("/v1/jobs/{id}/resume"), "").await.status, 200);
    worker.run("2027-03-23T06:30:00Z", Duration::ZERO).await;
    server.set_clock("2027-03-23T12:00:00Z");

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let serving = tokio::spawn({
        let router = server.router();
        async move { axum::serve(listener, router).await }
    });
    assert_eq!(explain(url, &[&id, "--from", "2027-03-11T12:00:00Z"]).await, STORY);
    serving.abort();

    let metrics = server.get("/metrics").await.text;
    for line in [
        "compline_slots_skipped_total{reason=\"misfire\"} 4",
        "compline_slots_skipped_total{reason=\"paused\"} 3",
        "compline_slots_skipped_total{reason=\"overlap\"} 0",
        "compline_slots_skipped_total{reason=\"zone_data\"} 0",
        "compline_executions_started_total{start=\"late\"} 0",
    ] {
        assert!(metrics.contains(line), "{line} is missing in\n{metrics}");
    }
}

#[tokio::test]
async fn c30_c31_each_reason_for_which_an_owner_leaves_slots_out_is_counted() {
    let server = Server::with_echo().await;
    let counted = |reason| server.ctx.metrics.skipped_for(reason);
    let hourly = r#"{"task":"echo","schedule":{"type":"CRON","value":"0 * * * *"},"misfire":{"deadline":"1d"}}"#;
    let (edited, deleted) = (server.job(hourly).await, server.job(hourly).await);
    // Their first slots, and those behind them, are over; no tick has decided about them.
    server.set_clock("2026-11-30T15:30:00Z");
    let patch = axum::http::Request::patch(format!("/v1/jobs/{edited}"))
        .header("content-type", "application/json")
        .body(axum::body::Body::from(r#"{"schedule":{"value":"30 * * * *"}}"#))
        .unwrap();
    assert_eq!(server.send(patch).await.status, 200);
    assert_eq!((counted(SkipReason::Edited), counted(SkipReason::Ended)), (3, 0));
    server.method(axum::http::Method::DELETE, &format!("/v1/jobs/{deleted}")).await;
    assert_eq!((counted(SkipReason::Edited), counted(SkipReason::Ended)), (3, 3));
    assert_eq!(SkipReason::ALL.into_iter().map(counted).sum::<u64>(), 6);
}

#[test]
fn a_first_start_is_on_time_or_late_and_another_is_neither() {
    let metrics = crate::metrics::Metrics::default();
    let late = compline_core::explain::LATE_FROM;
    metrics.started(Duration::ZERO, false, true);
    metrics.started(late, false, true);
    metrics.started(late + Duration::from_millis(1), false, true);
    metrics.started(late * 2, false, false);
    assert_eq!(metrics.first_starts(), (2, 1));
}
