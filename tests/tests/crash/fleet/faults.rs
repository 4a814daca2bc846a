//! What happens to the fleet, one after another.

use std::time::Duration;

use compline_fdb_cluster::Cluster;
use serde_json::Value;

use super::lag::{Excuses, now};
use super::nodes::{BEAT, Fleet, LEASE_TTL, SESSION_TTL, role};
use super::{TITLE, spin};
use crate::work::{self, Load, bounded};

/// Between two kills so many jobs are acknowledged.
const BETWEEN_KILLS: usize = 25;

/// How a node says that it was given up.
const SESSION_OVER: &str = "the session is over";

/// What happens to one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL; later it is started again.
    Kill,
    /// SIGSTOP until the others have given it up, then SIGCONT.
    Freeze,
    /// Nothing comes through to it until the others have given it up.
    Cut,
}

/// The fleet under load.
pub struct Trial {
    pub fleet: Fleet,
    pub load: Load,
    pub excuses: Excuses,
    /// So many slots each recurring job has had at least.
    pub slots_min: usize,
    /// Jobs of one slot that ran while an executor was killed.
    pub blinks: Vec<String>,
    began: chrono::DateTime<chrono::Utc>,
}

impl Trial {
    pub fn new(fleet: Fleet, load: Load) -> Self {
        Self { fleet, load, excuses: Excuses::default(), began: now(), slots_min: 0, blinks: Vec::new() }
    }

    /// A node suffers a fault, is given up by the others, and comes back.
    pub async fn suffers(&mut self, victim: &'static str, fault: Fault) {
        let began = now();
        let run = match role(victim) {
            "executor" => Some(spin::on(&self.fleet, "spin", victim).await),
            _ => None,
        };
        let said_before = self.fleet.server(victim).log_lines();
        let from = now();
        match fault {
            Fault::Kill => self.fleet.kill(victim).await,
            Fault::Freeze => self.fleet.server(victim).freeze(),
            Fault::Cut => self.fleet.wire(victim).expect("a wire").cut(),
        }
        self.excuse(victim, from);
        // Those that ask it meanwhile get no answer, and ask the other one.
        self.load.use_servers(&self.fleet.urls_but(victim));
        self.fleet.until_given_up(victim).await;
        let record = match &run {
            Some((job, _)) => Some(self.taken_over(victim, job).await),
            None => None,
        };
        match fault {
            Fault::Kill => self.fleet.begin(victim).await,
            Fault::Freeze => self.fleet.server(victim).thaw(),
            Fault::Cut => self.fleet.wire(victim).expect("a wire").mend(),
        }
        self.fleet.until_all_live().await;
        self.load.use_servers(&self.fleet.urls_but(""));
        self.load.acknowledged(BETWEEN_KILLS).await;
        if fault != Fault::Kill {
            self.says_once(victim, fault, said_before).await;
        }
        if let (Some((job, elsewhere)), Some(before)) = (&run, record) {
            let url = self.fleet.urls_but(victim)[0];
            assert_eq!(spin::done(url, job).await, before, "what came back changed nothing");
            for job in elsewhere {
                let attempts = spin::done(url, job).await["attempts"].as_array().map(Vec::len);
                assert_eq!(attempts, Some(1), "what ran elsewhere was left alone");
            }
        }
        eprintln!("{TITLE}: {victim}: {fault:?}: {:.1} s", (now() - began).as_seconds_f64());
    }

    /// Waits until what ran on a node that is gone is done elsewhere.
    async fn taken_over(&self, victim: &str, job: &str) -> Value {
        let execution = spin::done(self.fleet.urls_but(victim)[0], job).await;
        let attempts = execution["attempts"].as_array().expect("attempts");
        let ends: Vec<_> =
            attempts.iter().map(|attempt| attempt["outcome"]["kind"].as_str().expect("an end")).collect();
        assert_eq!(ends, ["worker-lost", "ok"], "{execution}");
        assert_eq!(attempts[0]["node"], victim, "{execution}");
        assert_ne!(attempts[1]["node"], victim, "{execution}");
        execution
    }

    /// What a node that came back says of what it had lost: once.
    async fn says_once(&self, victim: &str, fault: Fault, said_before: usize) {
        let server = self.fleet.server(victim);
        let said = |what: &str| server.said_since(said_before).iter().filter(|line| line.contains(what)).count();
        bounded("a node to find that its session is over", async {
            while said(SESSION_OVER) == 0 {
                tokio::time::sleep(BEAT / 4).await;
            }
        })
        .await;
        let log = server.said_since(said_before).join("\n");
        assert_eq!(said(SESSION_OVER), 1, "{victim}: {log}");
        assert!(said("reports were refused") <= 1, "{victim}: {log}");
        assert!(said("shards have another ticker now") <= 1, "{victim}: {log}");
        assert!(said("ERROR") <= 1, "{victim}: {log}");
        if fault == Fault::Cut {
            assert_eq!(said("this node stops its runs before others take them over"), 1, "{victim}: {log}");
        }
    }

    /// While a scheduler is away its shards are not ticked, until the others may take them.
    fn excuse(&mut self, victim: &str, from: chrono::DateTime<chrono::Utc>) {
        if role(victim) == "scheduler" {
            self.excuses.add(victim, from, from + LEASE_TTL);
        }
    }

    /// All nodes are told to end and started again, one by one: nothing is even late.
    pub async fn restarts_one_by_one(&mut self) {
        let names: Vec<_> = self.fleet.names().collect();
        for name in names {
            let urls = self.fleet.urls_but(name);
            let run = match role(name) {
                "executor" => Some(spin::on(&self.fleet, "spin", name).await),
                _ => None,
            };
            self.load.use_servers(&urls);
            self.fleet.stop(name).await;
            if let Some((job, _)) = run {
                let execution = spin::done(self.fleet.urls_but(name)[0], &job).await;
                assert_eq!(execution["attempts"].as_array().map(Vec::len), Some(1), "it was finished: {execution}");
            }
            self.fleet.begin(name).await;
            self.fleet.until_all_live().await;
            self.load.use_servers(&self.fleet.urls_but(""));
            self.load.acknowledged(BETWEEN_KILLS).await;
        }
        eprintln!("{TITLE}: all were restarted, one by one");
    }

    /// One of the database's processes dies, and is started again.
    pub async fn loses_a_database_process(&mut self, cluster: &mut Cluster) {
        let from = now();
        cluster.kill(1).expect("a process that dies");
        self.until_the_database_serves(cluster, "a database process is killed", from).await;
        self.load.acknowledged(BETWEEN_KILLS).await;
        let from = now();
        cluster.restart(1).expect("a process that starts");
        self.until_the_database_serves(cluster, "it is started again", from).await;
        self.fleet.until_all_live().await;
    }

    /// All of the database's processes die at once, and are started again.
    pub async fn loses_the_database(&mut self, cluster: &mut Cluster) {
        let from = now();
        cluster.kill_all().expect("processes that die");
        // Nothing happens meanwhile that could be waited for: this is how long the fault lasts, longer than any session.
        tokio::time::sleep(SESSION_TTL + Duration::from_secs(1)).await;
        cluster.start_all().expect("processes that start");
        self.until_the_database_serves(cluster, "the whole database was away", from).await;
        self.fleet.until_all_live().await;
        self.load.acknowledged(BETWEEN_KILLS).await;
    }

    /// So many kills, soon after each other: mostly of one executor, now and then of somebody else.
    pub async fn is_killed_again_and_again(&mut self, kills: usize, mut cluster: Option<&mut Cluster>) {
        let mut random = work::random(TITLE);
        for kill in 1..=kills {
            let victim = match random.usize(0..10) {
                0 => "scheduler-1",
                1 => "scheduler-2",
                2 => "api-1",
                3 => "api-2",
                4 => "a database process",
                _ => "executor-1",
            };
            match &mut cluster {
                Some(cluster) if role(victim) == "a database process" => {
                    let index = random.usize(0..cluster.processes());
                    let from = now();
                    cluster.kill(index).expect("a process that dies");
                    tokio::task::block_in_place(|| cluster.until_it_serves()).expect("it recovers");
                    cluster.restart(index).expect("a process that starts");
                    self.until_the_database_serves(cluster, victim, from).await;
                }
                None if role(victim) == "a database process" => continue,
                _ => self.is_killed(victim).await,
            }
            let acknowledged = self.load.acknowledged(random.usize(1..2 * BETWEEN_KILLS)).await;
            eprintln!("{TITLE}: kill {kill}: {victim}, after {acknowledged} acknowledged jobs");
        }
        self.fleet.until_all_live().await;
        // What was due is over: the last slots are judged too.
        self.load.acknowledged(BETWEEN_KILLS).await;
        self.slots_min = usize::try_from((now() - self.began).num_seconds() - 5).unwrap_or(0);
    }

    async fn is_killed(&mut self, victim: &'static str) {
        let session = self.fleet.session_of(victim).await;
        if role(victim) == "executor" {
            // The kill meets it at work.
            let (job, elsewhere) = spin::on(&self.fleet, "blink", victim).await;
            self.blinks.extend(elsewhere.into_iter().chain([job]));
        }
        let from = now();
        self.fleet.kill(victim).await;
        self.excuse(victim, from);
        self.load.use_servers(&self.fleet.urls_but(victim));
        self.fleet.begin(victim).await;
        self.load.use_servers(&self.fleet.urls_but(""));
        // The next kill meets nodes that are at work.
        match role(victim) {
            "scheduler" => self.fleet.until_all_live().await,
            _ => {
                bounded("a session after the kill", async { while self.fleet.session_of(victim).await == session {} })
                    .await
            }
        }
    }

    async fn until_the_database_serves(&mut self, cluster: &Cluster, what: &str, from: chrono::DateTime<chrono::Utc>) {
        let served = tokio::task::block_in_place(|| cluster.until_it_settles()).expect("it recovers");
        // Who could not beat meanwhile begins a session anew, and takes its shards when the old one has been silent for long enough.
        self.excuses.add(what, from, now() - served + LEASE_TTL);
        eprintln!("{TITLE}: {what}: it served after {:.1} s", (now() - served - from).as_seconds_f64());
    }
}
