//! Zone names: exact ones count, and nothing is read as UTC; and the version of the data that they are read by.

use axum::body::Body;
use axum::http::{Request, header};
use compline_core::schedule::zone::tzdb_version;
use serde_json::{Value, json};

use super::support::{Reply, Server};

/// Names that no zone has, whatever other programs make of them.
const ODD: &[&str] = &[
    "",
    " ",
    "utc",
    "Utc",
    "z",
    "Z",
    "america/new_york",
    "AMERICA/NEW_YORK",
    "America/New York",
    " America/New_York",
    "America/New_York ",
    "America/New_York\n",
    "America/New_York\u{0}",
    "posix/Europe/Berlin",
    "right/Europe/Berlin",
    "posixrules",
    "Factory",
    "localtime",
    "Local",
    "local",
    "GMT+3",
    "UTC+2",
    "UTC+02:00",
    "+02:00",
    "-0500",
    "Etc/GMT-15",
    "Etc/GMT+13",
    "EST5EDT,M3.2.0,M11.1.0",
    "CEST",
    "PDT",
    "Europe/Berlin/",
    "/Europe/Berlin",
    "../Europe/Berlin",
    "/etc/localtime",
    ":Europe/Berlin",
    "Europe\\Berlin",
    "Еurope/Berlin",
];

/// Names that count: of the database, backward links among them.
const GOOD: &[(&str, &str)] = &[
    ("US/Eastern", "2026-11-30T14:00:00Z"),
    ("America/New_York", "2026-11-30T14:00:00Z"),
    ("Etc/GMT-14", "2026-11-30T19:00:00Z"),
    ("Etc/GMT+12", "2026-11-30T21:00:00Z"),
    ("GMT+0", "2026-12-01T09:00:00Z"),
    ("Asia/Calcutta", "2026-12-01T03:30:00Z"),
    ("Etc/UTC", "2026-12-01T09:00:00Z"),
    ("EST5EDT", "2026-11-30T14:00:00Z"),
    // C22: changes that data of a year ago does not have.
    ("America/Vancouver", "2026-11-30T16:00:00Z"),
    ("America/Edmonton", "2026-11-30T15:00:00Z"),
    ("America/Winnipeg", "2026-11-30T14:00:00Z"),
    ("America/Havana", "2026-11-30T13:00:00Z"),
    ("Africa/Casablanca", "2026-12-01T09:00:00Z"),
];

fn job(zone: &str) -> Value {
    json!({"task": "echo", "schedule": {"type": "CRON", "value": "0 9 * * *", "time_zone": zone}})
}

async fn patch(server: &Server, id: &str, body: &Value) -> Reply {
    let request = Request::patch(format!("/v1/jobs/{id}")).header(header::CONTENT_TYPE, "application/json");
    server.send(request.body(Body::from(body.to_string())).unwrap()).await
}

#[tokio::test]
async fn a_name_that_is_no_zones_is_refused_on_create_on_update_and_for_one_instant() {
    let server = Server::with_echo().await;
    let id = server.job(&job("Europe/Berlin").to_string()).await;
    let before = server.get(&format!("/v1/jobs/{id}")).await.json();
    for odd in ODD {
        let reply = server.post("/v1/jobs", job(odd).to_string()).await;
        assert_eq!(reply.problem(422)["field"], "schedule.time_zone", "{odd:?}: {}", reply.text);
        let reply = patch(&server, &id, &json!({"schedule": {"time_zone": odd}})).await;
        assert_eq!(reply.problem(422)["field"], "schedule.time_zone", "{odd:?}: {}", reply.text);
        let once = json!({"type": "ONCE", "value": "2026-12-01T09:00:00", "time_zone": odd});
        let reply = server.post("/v1/jobs", json!({"task": "echo", "schedule": once}).to_string()).await;
        assert_eq!(reply.problem(422)["field"], "schedule.time_zone", "{odd:?}: {}", reply.text);
        let reply = server.post("/v1/schedules:preview", json!({"cron": "0 9 * * *", "time_zone": odd}).to_string());
        assert_eq!(reply.await.problem(422)["field"], "time_zone", "{odd:?}");
    }
    assert_eq!(server.get(&format!("/v1/jobs/{id}")).await.json(), before, "what is refused changes nothing");
}

#[tokio::test]
async fn c22_exact_names_and_links_count_and_keep_their_spelling() {
    let server = Server::with_echo().await;
    let edited = server.job(&job("UTC").to_string()).await;
    for (zone, first) in GOOD {
        let id = server.job(&job(zone).to_string()).await;
        let reply = patch(&server, &edited, &json!({"schedule": {"time_zone": zone}})).await;
        assert_eq!(reply.status, 200, "{zone}: {}", reply.text);
        for id in [&id, &edited] {
            let job = server.get(&format!("/v1/jobs/{id}")).await.json();
            assert_eq!(
                (&job["definition"]["schedule"]["time_zone"], &job["next_fires"][0]),
                (&json!(zone), &json!(first))
            );
            assert_eq!(job["tzdb"], tzdb_version(), "the data that the slot was planned by: {job}");
        }
    }
    // What follows no zone is planned by no zone data.
    for schedule in
        [json!({"type": "CRON", "value": "0 9 * * *"}), json!({"type": "ONCE", "value": "2027-01-01T00:00:00Z"})]
    {
        let id = server.job(&json!({"task": "echo", "schedule": schedule}).to_string()).await;
        assert_eq!(server.get(&format!("/v1/jobs/{id}")).await.json().get("tzdb"), None);
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(server.get(path).await.json()["tzdb"], tzdb_version());
    }
}
