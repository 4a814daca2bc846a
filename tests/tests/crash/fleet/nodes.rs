//! Seven nodes as processes, and what is seen of them from outside.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::wire::{Hub, PORT, Wire};
use crate::server::{Server, ServerOptions};
use crate::work::{bounded, get, target};

/// Short, so that the test is; but on a machine that is busy with something else a commit can take a second or two, and no node dies of that.
pub const SESSION_TTL: Duration = Duration::from_secs(5);
pub const LEASE_TTL: Duration = Duration::from_secs(3);
pub const BEAT: Duration = Duration::from_millis(250);
const LIVENESS: [&str; 6] = ["--session-ttl", "5s", "--lease-ttl", "3s", "--beat", "250ms"];

const NAMES: [&str; 7] = ["scheduler-1", "scheduler-2", "executor-1", "executor-2", "executor-3", "api-1", "api-2"];
/// Those that get a network namespace of their own: one of each kind.
const WIRED: [&str; 3] = ["scheduler-1", "executor-1", "api-1"];
const SHARDS: u64 = 16;

struct Node {
    server: Option<Server>,
    wire: Option<Wire>,
    /// Where the wire's other end leads into the namespace, for a node with the role `api`.
    forwarded: Option<String>,
}

pub struct Fleet {
    store: String,
    nodes: BTreeMap<&'static str, Node>,
}

/// What a node does: its name without its number.
pub fn role(name: &str) -> &str {
    name.split('-').next().expect("a name")
}

impl Fleet {
    /// Starts all seven; with a hub some of them in namespaces.
    pub async fn start(store: String, hub: Option<&Hub>) -> Self {
        let mut fleet = Self { store, nodes: BTreeMap::new() };
        for name in NAMES {
            let number = WIRED.iter().position(|wired| *wired == name);
            let wire = hub.zip(number).map(|(hub, number)| hub.wire(number as u8 + 1).expect("a namespace"));
            let forwarded = match &wire {
                Some(wire) if role(name) == "api" => Some(format!("http://{}", wire.port_outside().await)),
                _ => None,
            };
            fleet.nodes.insert(name, Node { server: None, wire, forwarded });
            fleet.begin(name).await;
        }
        fleet.until_all_live().await;
        fleet
    }

    /// Starts a node that does not run, and waits until it says that it begins.
    pub async fn begin(&mut self, name: &str) {
        let node = self.nodes.get_mut(name).expect("a node");
        let is_api = role(name) == "api";
        let mut options = ServerOptions::on(&self.store)
            .with(["--node-name", name, "--roles", role(name), "--workers", "8"])
            .with(LIVENESS);
        options.awaited = if is_api { "" } else { "the node begins" };
        if let Some(wire) = &node.wire {
            options.by = wire.by();
            options.listen(&format!("127.0.0.1:{PORT}"));
        }
        let mut server = Server::start(&options).await;
        if let Some(forwarded) = &node.forwarded {
            server.url.clone_from(forwarded);
        }
        node.server = Some(server);
    }

    pub fn server(&self, name: &str) -> &Server {
        self.nodes[name].server.as_ref().expect("it runs")
    }

    pub fn wire(&self, name: &str) -> Option<&Wire> {
        self.nodes[name].wire.as_ref()
    }

    /// SIGKILL.
    pub async fn kill(&mut self, name: &str) {
        self.take(name).kill().await;
    }

    /// SIGTERM, and its end.
    pub async fn stop(&mut self, name: &str) {
        self.take(name).stop().await;
    }

    fn take(&mut self, name: &str) -> Server {
        self.nodes.get_mut(name).expect("a node").server.take().expect("it runs")
    }

    /// The names of all nodes, or of those of one role.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.nodes.keys().copied()
    }

    /// Where those API nodes can be reached that are not this one.
    pub fn urls_but(&self, victim: &str) -> Vec<&str> {
        let apis = self.nodes.iter().filter(|(name, _)| role(name) == "api" && **name != victim);
        apis.filter_map(|(_, node)| node.server.as_ref()).map(|server| server.url.as_str()).collect()
    }

    /// What an API node that is not this one says of all nodes.
    pub async fn seen_without(&self, victim: &str) -> BTreeMap<String, Value> {
        let answer = get(self.urls_but(victim)[0], "/v1/nodes").await;
        let items = answer["items"].as_array().expect("items");
        items.iter().map(|node| (node["name"].as_str().expect("a name").to_owned(), node.clone())).collect()
    }

    /// A node's session, as others see it.
    pub async fn session_of(&self, name: &str) -> Value {
        self.seen_without(name).await.get(name).map_or(Value::Null, |node| node["session"].clone())
    }

    /// Waits until all seven are live, and the shards are spread evenly over the schedulers.
    pub async fn until_all_live(&self) {
        bounded("seven live nodes that share the shards", async {
            loop {
                let mut all = true;
                // What both say: each looks for itself.
                for victim in ["api-1", "api-2"] {
                    let nodes = self.seen_without(victim).await;
                    let live = nodes.values().filter(|node| node["state"] == "live").count();
                    let share = |name| nodes.get(name).is_some_and(|node| node["shards"] == SHARDS / 2);
                    all &= live == NAMES.len() && share("scheduler-1") && share("scheduler-2");
                }
                if all {
                    return;
                }
                tokio::time::sleep(BEAT / 4).await;
            }
        })
        .await;
    }

    /// Waits until the others take a node for dead, and hold its shards.
    pub async fn until_given_up(&self, victim: &str) {
        bounded("a node to be given up", async {
            loop {
                let nodes = self.seen_without(victim).await;
                let state = nodes.get(victim).map_or("ended", |node| node["state"].as_str().expect("a state"));
                let live = nodes.values().filter(|node| node["state"] == "live");
                if state == "ended" && live.filter_map(|node| node["shards"].as_u64()).sum::<u64>() == SHARDS {
                    return;
                }
                tokio::time::sleep(BEAT / 4).await;
            }
        })
        .await;
    }

    /// Ends all nodes, each of which must end well, and proves that nothing stays behind that should not.
    pub async fn end(mut self) {
        for name in NAMES {
            self.stop(name).await;
        }
        let check = tokio::process::Command::new(target().join("debug").join("compline"))
            .args(["admin", "check", "--store", &self.store])
            .output();
        let check = bounded("`admin check`", check).await.expect("a program");
        let said = String::from_utf8_lossy(&check.stdout) + String::from_utf8_lossy(&check.stderr);
        assert!(check.status.success(), "`admin check`: {said}");
    }
}
