//! A fleet as processes on a real FoundationDB cluster of three processes: two schedulers, three executors and two API nodes. Each kind is killed,
//! frozen and thawed, cut off in a network namespace of its own, and restarted; a database process and the whole cluster die and come back; and
//! nodes are killed again and again under load. From outside, through the API: nothing acknowledged is lost, every slot has one execution, no
//! execution did its work twice on record, what comes back late changes nothing and says so once, and slots start in time again within the time
//! to live.
//!
//! `cargo xtask soak --kills N` makes the last part long.

mod faults;
mod lag;
mod nodes;
mod spin;
mod wire;

use compline_fdb_cluster::{Cluster, ClusterOptions, StorageEngine, TestCluster, report};
use faults::{Fault, Trial};
use nodes::Fleet;
use wire::Hub;

use super::MACHINE;
use super::work::{self, Load};

const TITLE: &str = "a fleet of seven processes";
const CLIENTS: usize = 2;
const CRON_JOBS: usize = 5;
const KILLS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_and_database_die_freeze_and_are_cut_off_and_nothing_is_lost() {
    let _machine = MACHINE.lock().await;
    let hub = Hub::new();
    let options = ClusterOptions::three(StorageEngine::Ssd);
    let options = hub.as_ref().map_or(options, |hub| options.on(hub.address()));
    let wanted = move || work::linked().and_then(|()| TestCluster::for_test(options));
    let cluster = tokio::task::spawn_blocking(wanted).await.expect("no panic");
    report(TITLE, cluster.as_ref().map_err(String::as_str));
    let Ok(mut cluster) = cluster else { return };
    // A cluster that was named is shared: each run has its keys for itself, and its processes are not to be killed.
    let store = format!("fdb:{}?prefix=compline-test/fleet-{}/", cluster.cluster_file().display(), std::process::id());
    let own: Option<&mut Cluster> = match &mut cluster {
        TestCluster::Own(cluster) => Some(cluster),
        TestCluster::Named(_) => None,
    };
    let hub = hub.and_then(|hub| match own {
        Some(_) => Ok(hub),
        None => Err("a cluster that was named cannot be reached from a namespace".to_owned()),
    });
    if let Err(why) = &hub {
        eprintln!("{TITLE}: nodes that are cut off in their own network namespace: SKIPPED: {why}");
    }

    let fleet = Fleet::start(store, hub.as_ref().ok()).await;
    let url = fleet.server("api-2").url.clone();
    work::push(&url, "invoice").await;
    spin::push(&url).await;
    let cron_jobs = work::create_cron_jobs(&url, CRON_JOBS).await;
    let load = Load::start(CLIENTS, &url);
    let mut trial = Trial::new(fleet, load);
    for fault in [Fault::Kill, Fault::Freeze, Fault::Cut] {
        for victim in ["scheduler-1", "executor-1", "api-1"] {
            if fault != Fault::Cut || hub.is_ok() {
                trial.suffers(victim, fault).await;
            }
        }
    }
    trial.restarts_one_by_one().await;
    let mut own = own;
    if let Some(cluster) = &mut own {
        trial.loses_a_database_process(cluster).await;
        trial.loses_the_database(cluster).await;
    }
    trial.is_killed_again_and_again(work::kills(KILLS), own).await;

    let mut created = trial.load.finish().await;
    created.extend(trial.blinks.drain(..).enumerate().map(|(number, job)| (format!("blink {number}"), job)));
    // The node that created fewer of them shows them.
    let other = trial.fleet.server("api-1").url.clone();
    let lost = work::check_one_off_jobs(&other, &created).await;
    let mut slots = Vec::new();
    for job in &cron_jobs {
        slots.extend(work::check_cron_job(&other, job, trial.slots_min).await);
    }
    trial.excuses.check(TITLE, &slots);
    eprintln!(
        "{TITLE}: {} one-off jobs, {lost} of them begun again after their worker, and {CRON_JOBS} recurring ones \
         survived",
        created.len()
    );
    trial.fleet.end().await;
}
