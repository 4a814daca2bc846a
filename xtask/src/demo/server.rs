//! The server of the demo, as a process of its own, and its command line.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::{PATIENCE, Place};
use crate::process::capture;
use crate::programs;

/// What a server prints when it can be reached.
const LISTENING: &str = "listening on ";

/// A running server. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
}

impl Server {
    /// Starts a server on this store and a free port, and waits until it can be reached.
    pub(crate) fn start(place: &Place) -> Result<Self> {
        let path = place.directory.join("server.log");
        let log = OpenOptions::new().create(true).append(true).open(&path)?;
        let begin = log.metadata()?.len();
        let child = Command::new(programs::path("compline"))
            .args(["serve", "--listen", "127.0.0.1:0", "--color", "never", "--store", &place.store])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("the server could not be started")?;
        let mut server = Self { child, url: String::new() };
        server.url = server.wait_for_address(&path, begin)?;
        Ok(server)
    }

    #[expect(clippy::disallowed_methods, reason = "a person waits: there is no other clock here")]
    fn wait_for_address(&mut self, log: &Path, begin: u64) -> Result<String> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(status) = self.child.try_wait()? {
                let mut said = String::new();
                read_from(log, begin)?.read_to_string(&mut said)?;
                bail!("the server ended at once ({status}):\n{}", said.trim_end());
            }
            let lines = BufReader::new(read_from(log, begin)?).lines();
            for line in lines.map_while(Result::ok) {
                if let Some((_, url)) = line.split_once(LISTENING) {
                    return Ok(url.trim().to_owned());
                }
            }
            pause();
        }
        bail!("the server did not say within {PATIENCE:?} where it listens")
    }

    /// Kills the server as a power cut would: nothing of its own runs any more.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Runs a command against the server and returns what it prints for people.
    pub(crate) fn text(&self, args: &[&str]) -> Result<String> {
        capture(Command::new(programs::path("compline")).args(["--server", &self.url, "--color", "never"]).args(args))
    }

    /// Runs a command against the server and returns what it prints for programs.
    pub(crate) fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.text(&[&["-o", "json", "-q"], args].concat())?;
        serde_json::from_str(&text).with_context(|| format!("`compline {}` did not print JSON: {text}", args.join(" ")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A short rest between two looks at something that another process does.
#[expect(clippy::disallowed_methods, reason = "another process has no clock that could be moved")]
pub(crate) fn pause() {
    std::thread::sleep(Duration::from_millis(100));
}

fn read_from(path: &Path, begin: u64) -> Result<File> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(begin))?;
    Ok(file)
}
