//! A fleet as processes on a real FoundationDB cluster of three processes: two schedulers, three executors and two API nodes do the demo's kind
//! of work. One executor is killed with SIGKILL, one database process is killed and started again. From outside, through both API nodes: nothing
//! acknowledged is lost, every slot has one execution, no execution did its work twice on record, and `node list` tells who lives.

#![expect(clippy::print_stderr, reason = "a test that takes its time says what it does")]

mod node;
#[path = "../crash/work.rs"]
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use compline_fdb_cluster::{ClusterOptions, StorageEngine, TestCluster, report};
use node::Node;
use serde_json::Value;
use tokio::sync::watch;
use work::{bounded, get};

const TITLE: &str = "a fleet of seven processes";
const CLIENTS: usize = 2;
const CRON_JOBS: usize = 3;
/// Between two blows so many jobs are acknowledged, and each recurring job has so many slots more.
const ACKNOWLEDGED: usize = 40;
const SLOTS: usize = 6;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_and_a_database_process_die_and_nothing_is_lost() {
    let wanted = || {
        Node::program()?;
        TestCluster::for_test(ClusterOptions::three(StorageEngine::Ssd))
    };
    let cluster = tokio::task::spawn_blocking(wanted).await.expect("no panic");
    report(TITLE, cluster.as_ref().map_err(String::as_str));
    let Ok(mut cluster) = cluster else { return };
    let mut fleet = Fleet::start(&cluster).await;
    fleet.until_all_live().await;
    eprintln!("{TITLE}: all nodes live");

    let url = fleet.apis[0].url.clone();
    work::push(&url, "invoice").await;
    let cron_jobs = work::create_cron_jobs(&url, CRON_JOBS).await;
    let (acknowledge, mut acknowledged) = watch::channel(0);
    let acknowledge = Arc::new(acknowledge);
    let (enough, done) = watch::channel(false);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (_, address) = watch::channel(fleet.apis[client % fleet.apis.len()].url.clone());
            tokio::spawn(work::create_jobs(client, address, acknowledge.clone(), done.clone()))
        })
        .collect();
    for blow in 0..4 {
        let until = *acknowledged.borrow() + ACKNOWLEDGED;
        bounded("acknowledged jobs", acknowledged.wait_for(|count| *count >= until)).await.expect("clients at work");
        let slots = (blow + 1) * SLOTS;
        bounded("slots of a recurring job", async {
            while work::executions(&url, &cron_jobs[0]).await.len() < slots {}
        })
        .await;
        match blow {
            0 => fleet.executors[0].kill().await,
            1 => kill_database_process(&mut cluster),
            2 => restart_database_process(&mut cluster),
            _ => {}
        }
    }
    enough.send_replace(true);
    let mut created = BTreeMap::new();
    for client in clients {
        created.extend(client.await.expect("a client"));
    }
    let jobs: BTreeSet<&String> = created.values().collect();
    assert_eq!(jobs.len(), created.len(), "two keys got one job");
    // The node that did not create them shows them.
    let other = fleet.apis[1].url.clone();
    work::check_one_off_jobs(&other, &created).await;
    for job in &cron_jobs {
        work::check_cron_job(&other, job, SLOTS).await;
    }
    fleet.check_nodes_after_the_kill().await;
    eprintln!("{TITLE}: {} one-off jobs and {CRON_JOBS} recurring ones survived", created.len());
    fleet.stop().await;
}

fn kill_database_process(cluster: &mut TestCluster) {
    if let TestCluster::Own(cluster) = cluster {
        cluster.kill(1).expect("a process that dies");
        eprintln!("{TITLE}: a database process is killed");
    }
}

fn restart_database_process(cluster: &mut TestCluster) {
    if let TestCluster::Own(cluster) = cluster {
        cluster.restart(1).expect("a process that starts");
        eprintln!("{TITLE}: it is started again");
    }
}

struct Fleet {
    schedulers: Vec<Node>,
    executors: Vec<Node>,
    apis: Vec<Node>,
}

impl Fleet {
    async fn start(cluster: &TestCluster) -> Self {
        // A cluster that was named is shared: each run has its keys for itself.
        let store =
            format!("fdb:{}?prefix=compline-test/fleet-{}/", cluster.cluster_file().display(), std::process::id());
        let mut apis = Vec::new();
        for name in ["api-1", "api-2"] {
            apis.push(Node::start(&store, name, "api").await);
        }
        let mut schedulers = Vec::new();
        for name in ["scheduler-1", "scheduler-2"] {
            schedulers.push(Node::start(&store, name, "scheduler").await);
        }
        let mut executors = Vec::new();
        for name in ["executor-1", "executor-2", "executor-3"] {
            executors.push(Node::start(&store, name, "executor").await);
        }
        Self { schedulers, executors, apis }
    }

    /// Waits until all seven are live and the shards are spread evenly.
    async fn until_all_live(&self) {
        bounded("seven live nodes", async {
            loop {
                let nodes = nodes(&self.apis[0].url).await;
                let live = nodes.values().filter(|node| node["state"] == "live").count();
                let shards: Vec<_> = ["scheduler-1", "scheduler-2"]
                    .map(|name| nodes.get(name).map(|node| node["shards"].clone()))
                    .into();
                if live == 7 && shards.iter().all(|held| *held == Some(Value::from(8))) {
                    return;
                }
            }
        })
        .await;
    }

    async fn check_nodes_after_the_kill(&self) {
        bounded("the dead executor to be given up", async {
            while nodes(&self.apis[0].url).await["executor-1"]["state"] != "ended" {}
        })
        .await;
        let nodes = nodes(&self.apis[1].url).await;
        for (name, node) in nodes.iter().filter(|(name, _)| *name != "executor-1") {
            assert_eq!(node["state"], "live", "{name}: {node}");
            assert!(node["clock"]["against"] == "majority", "six clocks of one machine agree: {node}");
            assert!(node["clock"]["offset_ms"].as_f64().is_some_and(|offset| offset.abs() < 1_000.0), "{node}");
        }
        let shards: i64 = nodes.values().filter_map(|node| node["shards"].as_i64()).sum();
        assert_eq!(shards, 16);
        let lanes = get(&self.apis[1].url, "/v1/lanes").await;
        assert_eq!(lanes["items"][0]["name"], "default", "{lanes}");
        assert_eq!(lanes["items"][0]["nodes"], 2, "{lanes}");
    }

    async fn stop(self) {
        for mut node in self.schedulers.into_iter().chain(self.executors).chain(self.apis) {
            node.stop().await;
        }
    }
}

async fn nodes(url: &str) -> BTreeMap<String, Value> {
    let answer = get(url, "/v1/nodes").await;
    let items = answer["items"].as_array().expect("items");
    items.iter().map(|node| (node["name"].as_str().expect("a name").to_owned(), node.clone())).collect()
}
