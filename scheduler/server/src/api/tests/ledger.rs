//! The ledger of a job, page by page.

use compline_core::Timestamp;
use compline_core::ids::JobId;
use compline_core::ledger::SkipReason;
use compline_core::time::instant;
use compline_store::tables::ledger;
use serde_json::Value;

use super::support::Server;

fn at(text: &str) -> Timestamp {
    instant::parse(text).unwrap().into()
}

#[tokio::test]
async fn the_ledger_is_told_in_pages_that_do_not_repeat_themselves() {
    let server = Server::with_echo().await;
    let id = server
        .job(r#"{"task":"echo","schedule":{"type":"CRON","value":"0 * * * *","time_zone":"Asia/Kolkata"}}"#)
        .await;
    let job: JobId = id.parse().unwrap();
    // From another part of the system: stretches that did not run.
    let stretches = [
        ("2026-11-30T13:30:00Z", "2026-11-30T15:30:00Z", SkipReason::Misfire),
        ("2026-11-30T15:30:00Z", "2026-11-30T16:30:00Z", SkipReason::Overlap),
        ("2026-11-30T16:30:00Z", "2026-11-30T19:00:00Z", SkipReason::Misfire),
    ];
    let written = server.ctx.store.transact(|tx| async move {
        stretches.iter().try_for_each(|(from, until, reason)| ledger::add_range(&tx, job, at(from), at(until), *reason))
    });
    written.await.unwrap();
    server.set_clock("2026-12-01T00:00:00Z");
    let all = server.get(&format!("/v1/jobs/{id}/ledger")).await.json();
    let items = all["items"].as_array().unwrap();
    let told: Vec<&str> = items.iter().map(|item| item["words"].as_str().unwrap()).collect();
    assert_eq!(
        told,
        [
            "2026-11-30T18:00:00+05:30 (2026-11-30T12:30:00Z): has not ended: PENDING",
            "2026-11-30T19:00:00+05:30 (2026-11-30T13:30:00Z) to 2026-11-30T20:00:00+05:30 (2026-11-30T14:30:00Z), 2 slots: did not run: too late for the job's misfire rule",
            "2026-11-30T21:00:00+05:30 (2026-11-30T15:30:00Z): did not run: an earlier execution of the job was still under way",
            "2026-11-30T22:00:00+05:30 (2026-11-30T16:30:00Z) to 2026-12-01T00:00:00+05:30 (2026-11-30T18:30:00Z), 3 slots: did not run: too late for the job's misfire rule",
        ]
    );
    assert_eq!((&items[1]["reason"], &items[1]["slots"]), (&"misfire".into(), &2.into()));
    assert_eq!(all["next_cursor"], Value::Null);

    let (mut path, mut paged) = (format!("/v1/jobs/{id}/ledger?limit=1"), Vec::new());
    loop {
        let page = server.get(&path).await.json();
        paged.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(cursor) = page["next_cursor"].as_str() else { break };
        path = format!("/v1/jobs/{id}/ledger?limit=1&cursor={cursor}");
        assert!(paged.len() <= items.len(), "{paged:?}");
    }
    assert_eq!(&paged, items);
    let part = format!("/v1/jobs/{id}/ledger?from=2026-11-30T14:00:00Z&to=2026-11-30T15:00:00Z");
    assert_eq!(server.get(&part).await.json()["items"][0]["slots"], 1);

    server.get(&format!("/v1/jobs/{id}/ledger?cursor=AAAA")).await.problem(400);
    server.get(&format!("/v1/jobs/{id}/ledger?form=x")).await.problem(422);
    server.get(&format!("/v1/jobs/{id}/ledger?from=2026-11-30")).await.problem(422);
    server.get("/v1/jobs/job_nothing/ledger").await.problem(404);
}
