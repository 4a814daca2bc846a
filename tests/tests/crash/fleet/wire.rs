//! A network namespace for one node, with one wire to everybody else that can be cut.
//!
//! The namespace lives as long as a shell in it, which ends with this process in whatever way that ends; the wire goes with it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, setns};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

/// The port on which a node in a namespace listens: there it is alone.
pub const PORT: u16 = 7878;

/// This machine's own address in every namespace's eyes. The cluster listens on it.
pub struct Hub {
    net: [u8; 3],
}

impl Hub {
    /// `Err` says why there can be no namespaces here.
    pub fn new() -> Result<Self, String> {
        // From the range for benchmarks of networks (RFC 2544): nobody's address, and another one for each test that runs at the moment.
        let [.., third] = std::process::id().to_be_bytes();
        let hub = Self { net: [198, 18, third] };
        ip(&["address", "add", &hub.cidr(), "dev", "lo"])?;
        Ok(hub)
    }

    pub fn address(&self) -> Ipv4Addr {
        self.host(1)
    }

    fn host(&self, last: u8) -> Ipv4Addr {
        Ipv4Addr::new(self.net[0], self.net[1], self.net[2], last)
    }

    fn cidr(&self) -> String {
        format!("{}/32", self.address())
    }

    /// A namespace with a wire, the `number`th from 1.
    pub fn wire(&self, number: u8) -> Result<Wire, String> {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; read _"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("`unshare` could not be started: {error}"))?;
        let mut line = String::new();
        let said = holder.stdout.take().map(|output| BufReader::new(output).read_line(&mut line));
        if !matches!(said, Some(Ok(1))) {
            return Err("`unshare --net` failed: it needs root, or CAP_SYS_ADMIN".to_owned());
        }
        let link = format!("compline{}x{number}", std::process::id() % 100_000);
        let [outer, inner] = [number * 4 + 1, number * 4 + 2].map(|last| self.host(last));
        let wire = Wire { holder, link };
        let pid = wire.holder.id().to_string();
        ip(&["link", "add", &wire.link, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        ip(&["address", "add", &format!("{outer}/30"), "dev", &wire.link])?;
        ip(&["link", "set", &wire.link, "up"])?;
        let inside = |arguments: &[&str]| {
            let mut command = Command::new("nsenter");
            run(command.arg(wire.namespace()).arg("ip").args(arguments))
        };
        inside(&["link", "set", "lo", "up"])?;
        inside(&["address", "add", &format!("{inner}/30"), "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["route", "add", "default", "via", &outer.to_string()])?;
        Ok(wire)
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        // It is only an address more if it stays.
        let _ = ip(&["address", "del", &self.cidr(), "dev", "lo"]);
    }
}

/// The namespace, and its wire to the hub.
pub struct Wire {
    holder: Child,
    link: String,
}

impl Wire {
    /// What starts a program in the namespace, by becoming it.
    pub fn by(&self) -> Vec<OsString> {
        vec!["nsenter".into(), self.namespace().into()]
    }

    /// From here on nothing comes through: packets are lost, and nobody is told.
    pub fn cut(&self) {
        ip(&["link", "set", &self.link, "down"]).expect("a wire");
    }

    pub fn mend(&self) {
        ip(&["link", "set", &self.link, "up"]).expect("a wire");
    }

    /// An address outside that leads to [`PORT`] inside, whether the wire is cut or not: a node listens on loopback alone.
    pub async fn port_outside(&self) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let namespace = File::open(format!("/proc/{}/ns/net", self.holder.id())).expect("a namespace");
        std::thread::spawn(move || {
            // A socket belongs to the namespace in which its thread was when it was made: the listener outside, the connections inside.
            setns(namespace, CloneFlags::CLONE_NEWNET).expect("a namespace");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
            listener.set_nonblocking(true).expect("a socket");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a socket");
                while let Ok((mut outside, _)) = listener.accept().await {
                    tokio::spawn(async move {
                        // A connection that breaks is the client's to notice.
                        if let Ok(mut inside) = TcpStream::connect(("127.0.0.1", PORT)).await {
                            let _ = copy_bidirectional(&mut outside, &mut inside).await;
                        }
                    });
                }
            });
        });
        address
    }

    fn namespace(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.holder.id())
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run(Command::new("ip").args(arguments))
}

fn run(command: &mut Command) -> Result<(), String> {
    let shown = format!("{command:?}").replace('"', "");
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("`{shown}`: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("`{shown}`: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
