//! The real server under a wall clock that is set ahead and back, by libfaketime. Boot time stays what it is.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use compline_server::env::DISBELIEF;
use serde_json::{Value, json};

use super::MACHINE;
use super::server::{Server, ServerOptions};
use super::work::{bounded, create, definition, push};

/// What may lie between a slot and its run on a machine that is busy with other tests.
const LATE_MAX: TimeDelta = TimeDelta::seconds(30);

/// The library that fakes the wall clock of a process with threads.
fn library() -> Option<PathBuf> {
    let places =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"];
    places.iter().map(|place| Path::new(place).join("faketime/libfaketimeMT.so.1")).find(|library| library.exists())
}

struct Clock(PathBuf);

impl Clock {
    /// Sets the server's wall clock so far ahead. The file is replaced at once: a half-written one would be another time.
    fn set_ahead(&self, by: TimeDelta) {
        let next = self.0.with_extension("next");
        std::fs::write(&next, format!("+{}s\n", by.num_seconds())).expect("a file");
        std::fs::rename(next, &self.0).expect("a file");
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock that the server's is compared with")]
fn right_now() -> DateTime<Utc> {
    Utc::now()
}

/// The slots of a job that have run, each with how often it was seen.
async fn ran(server: &Server, job: &str) -> BTreeMap<DateTime<Utc>, u32> {
    let url = format!("{}/v1/jobs/{job}/executions?limit=1000&status=COMPLETED", server.url);
    let page: Value = reqwest::get(url).await.expect("an answer").json().await.expect("JSON");
    let mut slots = BTreeMap::new();
    for item in page["items"].as_array().expect("items") {
        let slot: DateTime<Utc> = item["slot"].as_str().expect("a slot").parse().expect("an instant");
        *slots.entry(slot).or_insert(0) += 1;
        assert_eq!(item["attempts"].as_array().map(Vec::len), Some(1), "{item}");
    }
    slots
}

/// Waits until so many slots more have run; none may be early by the clock that is right, and none is there twice.
async fn more(server: &Server, job: &str, count: usize) {
    let before = ran(server, job).await.len();
    bounded("more slots of the job of every second", async {
        loop {
            let slots = ran(server, job).await;
            let now = right_now();
            assert!(slots.values().all(|times| *times == 1), "{slots:?}");
            let newest = slots.keys().next_back().copied().unwrap_or(now);
            assert!(newest <= now, "the slot {newest} has run at {now}");
            if slots.len() >= before + count {
                assert!(now - newest < LATE_MAX, "the newest slot is {newest}, and it is {now}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
}

/// A server whose wall clock can be set, and the directory that all of it is in. `None`: this machine has no libfaketime.
async fn begin() -> Option<(Server, Clock, tempfile::TempDir)> {
    let Some(library) = library() else {
        eprintln!("SKIPPED: this test needs libfaketimeMT.so.1 (Debian: apt-get install libfaketime)");
        return None;
    };
    let directory = tempfile::tempdir().expect("a directory");
    let clock = Clock(directory.path().join("clock"));
    clock.set_ahead(TimeDelta::zero());
    let environment: [(&str, OsString); 4] = [
        ("LD_PRELOAD", library.into()),
        ("FAKETIME_TIMESTAMP_FILE", clock.0.clone().into()),
        ("FAKETIME_NO_CACHE", "1".into()),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1".into()),
    ];
    let store = format!("embedded:{}", directory.path().join("store").display());
    let options = ServerOptions { environment: environment.into(), ..ServerOptions::on(&store) };
    let server = Server::start(&options).await;
    push(&server.url, "invoice").await;
    Some((server, clock, directory))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_set_ahead_and_back_under_the_real_server_fires_nothing_early_or_twice() {
    let _machine = MACHINE.lock().await;
    let Some((server, clock, _directory)) = begin().await else { return };
    let every_second = create(&server.url, &definition(json!({"type": "CRON", "value": "* * * * * *"}), "clock")).await;
    let hour = (right_now() + TimeDelta::hours(1)).to_rfc3339();
    let in_an_hour = create(&server.url, &definition(json!({"type": "ONCE", "value": hour}), "clock")).await;
    more(&server, &every_second, 3).await;

    // The server really sees another wall: its own HTTP dates say so.
    clock.set_ahead(TimeDelta::hours(2));
    let answer = reqwest::get(format!("{}/healthz", server.url)).await.expect("an answer");
    let date = answer.headers()["date"].to_str().expect("a date");
    let date = DateTime::parse_from_rfc2822(date).expect("a date").to_utc();
    assert!(date - right_now() > TimeDelta::minutes(110), "the server's clock was not set: it says {date}");
    more(&server, &every_second, 8).await;
    assert_eq!(ran(&server, &in_an_hour).await.len(), 0, "a job an hour ahead ran");

    clock.set_ahead(TimeDelta::zero());
    more(&server, &every_second, 5).await;
    assert_eq!(ran(&server, &in_an_hour).await.len(), 0, "a job an hour ahead ran");
}

/// Waits until the newest slot that has run lies so far from the right time, or further. Meanwhile none is there twice, and none runs
/// before its time by a clock that is `STEP` ahead.
async fn until_newest(server: &Server, job: &str, what: &str, is: impl Fn(TimeDelta) -> bool) {
    bounded(what, async {
        loop {
            let slots = ran(server, job).await;
            let now = right_now();
            assert!(slots.values().all(|times| *times == 1), "{slots:?}");
            if let Some(newest) = slots.keys().next_back() {
                assert!(*newest <= now + STEP, "the slot {newest} has run at {now}");
                if is(*newest - now) {
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
}

/// More than is followed at once, and little enough to wait for.
const STEP: TimeDelta = TimeDelta::seconds(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wall_clock_that_stays_where_it_was_set_is_believed_after_a_minute() {
    let _machine = MACHINE.lock().await;
    let Some((server, clock, _directory)) = begin().await else { return };
    let every_second = create(&server.url, &definition(json!({"type": "CRON", "value": "* * * * * *"}), "clock")).await;
    more(&server, &every_second, 3).await;

    // For a minute all goes on as if nothing had been.
    clock.set_ahead(STEP);
    let set = tokio::time::Instant::now();
    more(&server, &every_second, 5).await;
    // Then the step is believed: slots up to it run, the ones between too.
    until_newest(&server, &every_second, "slots by the clock that was set", |ahead| ahead > STEP / 2).await;
    assert!(set.elapsed() >= DISBELIEF, "believed after {:?}", set.elapsed());

    // And back: after another minute nothing runs until the wall has passed the slots that ran already; then the next one does.
    clock.set_ahead(TimeDelta::zero());
    let set = tokio::time::Instant::now();
    until_newest(&server, &every_second, "slots by the clock that was set right", |ahead| ahead < TimeDelta::zero())
        .await;
    assert!(set.elapsed() >= DISBELIEF, "believed after {:?}", set.elapsed());
    more(&server, &every_second, 3).await;
    bounded("every slot on the way", async {
        loop {
            let slots: Vec<_> = ran(&server, &every_second).await.into_keys().collect();
            if slots.windows(2).all(|pair| pair[1] - pair[0] == TimeDelta::seconds(1)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    })
    .await;
}
