//! FoundationDB's cluster file: where the coordinators are. Read here first, since the client library reports a bad one late or never.

use std::fmt;
use std::path::{Path, PathBuf};

use super::FoundationDbOpenError;

/// What a cluster file looks like, for messages.
const SHAPE: &str = "it has one line such as `main:Xy12Ab@10.0.0.1:4500,10.0.0.2:4500`; copy it from a server of the cluster \
                     (/etc/foundationdb/fdb.cluster)";

/// How the address of a process ends that speaks TLS.
const TLS: &str = ":tls";

/// A cluster file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClusterFile {
    path: PathBuf,
    coordinators: Vec<String>,
    over_tls: bool,
}

impl ClusterFile {
    /// Reads and checks the file.
    pub fn read(path: &Path) -> Result<Self, FoundationDbOpenError> {
        let refuse = |what: String| {
            FoundationDbOpenError::Refused(format!("the cluster file {} {what}: {SHAPE}", path.display()))
        };
        let bytes = std::fs::read(path).map_err(|error| refuse(format!("can't be read ({error})")))?;
        let text = String::from_utf8(bytes).map_err(|_| refuse("is not text".to_owned()))?;
        let coordinators = coordinators(&text).map_err(|fault| refuse(format!("is not one ({fault})")))?;
        Ok(Self { path: path.to_owned(), coordinators, over_tls: text.contains(TLS) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is spoken to by mutual TLS.
    pub fn is_over_tls(&self) -> bool {
        self.over_tls
    }

    /// `host:port` of each coordinator.
    pub fn coordinators(&self) -> &[String] {
        &self.coordinators
    }
}

impl fmt::Display for ClusterFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

/// The coordinators of `description:id@host:port[:tls],…`. Lines that begin with `#` are comments.
fn coordinators(text: &str) -> Result<Vec<String>, String> {
    let lines: Vec<&str> =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).collect();
    let [line] = lines[..] else {
        return Err(format!("{} lines hold something, and one should", lines.len()));
    };
    let (name, addresses) = line.split_once('@').ok_or("there is no `@`")?;
    let (description, id) = name.split_once(':').ok_or("there is no `:` before the `@`")?;
    let is_word =
        |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_word(description) || !is_word(id) {
        return Err("description and id before the `@` are letters, digits and `_`".to_owned());
    }
    addresses.split(',').map(|address| coordinator(address.trim())).collect()
}

fn coordinator(address: &str) -> Result<String, String> {
    let plain = address.strip_suffix(TLS).unwrap_or(address);
    let port =
        plain.rsplit_once(':').filter(|(host, _)| !host.is_empty()).and_then(|(_, port)| port.parse::<u16>().ok());
    match port {
        Some(port) if port > 0 => Ok(plain.to_owned()),
        _ => Err(format!("`{}` is not a coordinator's host:port", address.escape_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_writes_is_read() {
        let text =
            "# DO NOT EDIT!\n# written by the server\nmain:Xy12@10.0.0.1:4500,[::1]:4501:tls,db-3.example:4502\n";
        assert_eq!(coordinators(text).unwrap(), ["10.0.0.1:4500", "[::1]:4501", "db-3.example:4502"]);
    }

    #[test]
    fn what_is_none_is_refused_with_its_fault() {
        for (text, fault) in [
            ("", "0 lines"),
            ("# nothing else\n", "0 lines"),
            ("a:b@1.2.3.4:1\na:b@1.2.3.4:2\n", "2 lines"),
            ("hello", "no `@`"),
            ("main@1.2.3.4:4500", "no `:`"),
            (":id@1.2.3.4:4500", "letters"),
            ("ma in:id@1.2.3.4:4500", "letters"),
            ("main:id@", "`` is not"),
            ("main:id@1.2.3.4", "`1.2.3.4` is not"),
            ("main:id@1.2.3.4:0", "is not"),
            ("main:id@1.2.3.4:4500,", "`` is not"),
            ("main:id@:4500", "`:4500` is not"),
        ] {
            let refused = coordinators(text).unwrap_err();
            assert!(refused.contains(fault), "{text:?}: {refused}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_used_says_what_one_looks_like() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fdb.cluster");
        let refusal = || ClusterFile::read(&path).unwrap_err().to_string();
        assert!(refusal().contains("can't be read") && refusal().contains("10.0.0.1:4500"), "{}", refusal());
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(refusal().contains("is not text"));
        std::fs::write(&path, "garbage").unwrap();
        assert!(refusal().contains("is not one"), "{}", refusal());
        std::fs::write(&path, "main:id@127.0.0.1:4500").unwrap();
        assert_eq!(ClusterFile::read(&path).unwrap().coordinators(), ["127.0.0.1:4500"]);
    }
}
