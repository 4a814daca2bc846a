//! The store on a FoundationDB cluster: one database, many processes.
//!
//! FoundationDB gives the ordered keys, the read versions, the conflict checks, the versionstamps and the durability. A transaction's own
//! writes are held back and merged into its reads by the same code as on the other backends, and handed over when it commits, so that a rule
//! such as "a scan ends at the transaction's own stamped rows" exists once. FoundationDB's own read-your-writes is therefore off.
//!
//! Everything lies under one prefix of the database, so that a cluster can be shared. The client library has one network thread per process;
//! it is started with the first database and runs until the process ends.

mod cluster_file;
mod error;
mod handover;
mod network;
mod transaction;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::foundationdb as fdb;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tokio::time::timeout;

use self::cluster_file::ClusterFile;
use self::transaction::FoundationDbTransaction;
use super::{Backend, Transaction};
use crate::StoreError;

/// How long a read or a commit may take. Past it the store counts as away, and the transaction is run again.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// How long the cluster may take for its first answer before it is asked why. A cluster that lost a process recovers within a few seconds.
const FIRST_ANSWER_WITHIN: Duration = Duration::from_millis(3_900);

/// How long it may still take while its coordinators are asked. With what comes around it, an unreachable one is reported within 5 s.
const LAST_ANSWER_WITHIN: Duration = Duration::from_millis(600);

/// How long a coordinator may take to accept a connection, when it is asked why the cluster does not answer.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);

/// How to open a store on FoundationDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundationDbOptions {
    /// The cluster file. FoundationDB's client rewrites it when the coordinators change, so it should be writable.
    pub cluster_file: PathBuf,
    /// What all keys of this store begin with, at most [`FoundationDbOptions::PREFIX_BYTES_MAX`] bytes. Two stores on one cluster need
    /// prefixes of which neither begins with the other.
    pub prefix: Bytes,
}

impl FoundationDbOptions {
    /// The prefix of a store that was given none.
    pub const PREFIX_DEFAULT: &'static str = "compline/";
    /// The longest prefix: it must fit into a key beside the longest key of [`crate::limits`].
    pub const PREFIX_BYTES_MAX: usize = 64;

    /// The store of this cluster file, under the default prefix.
    pub fn new(cluster_file: impl Into<PathBuf>) -> Self {
        Self { cluster_file: cluster_file.into(), prefix: Bytes::from_static(Self::PREFIX_DEFAULT.as_bytes()) }
    }
}

/// Why a store on FoundationDB was not opened. Each says what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FoundationDbOpenError {
    /// What was asked for cannot be opened anywhere: a cluster file that is missing or is none, a prefix that no key may begin with, a client
    /// library that is too old.
    #[error("{0}")]
    Refused(String),
    /// The cluster does not answer.
    #[error("{0}")]
    Unreachable(String),
}

/// A store on a FoundationDB cluster.
pub struct FoundationDbBackend {
    shared: Arc<Shared>,
}

/// What the transactions of one store share.
struct Shared {
    /// Gone once the store is closed.
    database: RwLock<Option<Arc<fdb::Database>>>,
    prefix: Bytes,
    jitter: Mutex<fastrand::Rng>,
}

impl FoundationDbBackend {
    /// Opens the store and waits for a first answer of the cluster, so that what is missing is said at once: within 5 s.
    ///
    /// It may be called several times in a process, for one cluster or several.
    pub async fn open(options: FoundationDbOptions) -> Result<Arc<Self>, FoundationDbOpenError> {
        check_prefix(&options.prefix)?;
        let cluster = ClusterFile::read(&options.cluster_file)?;
        network::start()?;
        let path = options.cluster_file.to_str().ok_or_else(|| {
            FoundationDbOpenError::Refused(format!("the path of the cluster file {cluster} is not UTF-8: rename it"))
        })?;
        let database = fdb::Database::from_path(path).map_err(|error| {
            FoundationDbOpenError::Refused(format!("FoundationDB does not take the cluster file {cluster}: {error}"))
        })?;
        let version = first_read_version(&database, &cluster).await;
        network::end_at_exit();
        let version = version?;
        let shared = Shared {
            database: RwLock::new(Some(Arc::new(database))),
            prefix: options.prefix,
            jitter: Mutex::new(fastrand::Rng::with_seed(version.cast_unsigned())),
        };
        Ok(Arc::new(Self { shared: Arc::new(shared) }))
    }
}

impl Backend for FoundationDbBackend {
    fn name(&self) -> &'static str {
        "foundationdb"
    }

    fn begin(&self) -> Box<dyn Transaction> {
        Box::new(FoundationDbTransaction::new(self.shared.clone()))
    }

    fn close(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        // What was acknowledged is durable on the cluster. Transactions that are on their way keep the database until they end.
        self.shared.database.write().take();
        futures::future::ready(Ok(())).boxed()
    }
}

impl Shared {
    fn database(&self) -> Result<Arc<fdb::Database>, StoreError> {
        self.database.read().clone().ok_or_else(|| StoreError::Unavailable("it was closed".into()))
    }

    /// A key as it is on the cluster.
    fn prefixed(&self, key: &[u8]) -> Vec<u8> {
        [&self.prefix, key].concat()
    }
}

fn check_prefix(prefix: &[u8]) -> Result<(), FoundationDbOpenError> {
    let shown = prefix.escape_ascii();
    if prefix.len() > FoundationDbOptions::PREFIX_BYTES_MAX {
        let (bytes, max) = (prefix.len(), FoundationDbOptions::PREFIX_BYTES_MAX);
        return Err(FoundationDbOpenError::Refused(format!(
            "the key prefix {shown} has {bytes} bytes, and {max} is the most: shorten it"
        )));
    }
    if prefix.first() == Some(&0xff) {
        let refusal =
            format!("the key prefix {shown} lies in FoundationDB's own keys: let it begin with a byte below 0xff");
        return Err(FoundationDbOpenError::Refused(refusal));
    }
    Ok(())
}

async fn first_read_version(database: &fdb::Database, cluster: &ClusterFile) -> Result<i64, FoundationDbOpenError> {
    let mut asked = Box::pin(async { database.create_trx()?.get_read_version().await });
    let answer = match timeout(FIRST_ANSWER_WITHIN, &mut asked).await {
        Ok(answer) => answer,
        Err(_) => match tokio::join!(timeout(LAST_ANSWER_WITHIN, asked), why_silent(cluster)) {
            (Ok(answer), _) => answer,
            (Err(_), why) => return Err(FoundationDbOpenError::Unreachable(why)),
        },
    };
    answer.map_err(|error| {
        FoundationDbOpenError::Unreachable(format!("the cluster of {cluster} refused: {error} ({})", error.code()))
    })
}

/// Tells a cluster that is not there from one that is there and does not serve.
async fn why_silent(cluster: &ClusterFile) -> String {
    let attempts = cluster.coordinators().iter().map(|coordinator| async move {
        let connected = timeout(CONNECT_WITHIN, connect(coordinator)).await;
        connected.is_ok_and(|connected| connected.is_ok())
    });
    let listening = futures::future::join_all(attempts).await.into_iter().filter(|listens| *listens).count();
    let coordinators = cluster.coordinators().join(", ");
    let ask = format!("`fdbcli -C {} --exec status` says more", cluster.path().display());
    if listening == 0 {
        return format!(
            "no coordinator of the cluster file {cluster} accepts a connection ({coordinators}): is `fdbserver` running there, and is the \
             network open? Servers are in the package foundationdb-server. {ask}"
        );
    }
    let keys = if cluster.is_over_tls() { missing_keys() } else { String::new() };
    format!(
        "the cluster of {cluster} accepts connections ({listening} of {} coordinators) but does not serve. If it has just lost a \
         process it recovers within seconds: start this again. Otherwise: a new cluster must be configured once (`fdbcli -C {} --exec \
         'configure new single ssd'`), its version must be the client library's, 7.3, a majority of its coordinators must be up, and the `description:id` before the `@` must be the cluster's. {keys}{ask}",
        cluster.coordinators().len(),
        cluster.path().display()
    )
}

/// Where the client library looks for what it shows to a cluster that speaks TLS.
const TLS_FILES: [&str; 3] = ["FDB_TLS_CERTIFICATE_FILE", "FDB_TLS_KEY_FILE", "FDB_TLS_CA_FILE"];

fn missing_keys() -> String {
    let is_unset = |name: &&str| std::env::var_os(name).is_none_or(|path| path.is_empty());
    let unset: Vec<&str> = TLS_FILES.into_iter().filter(is_unset).collect();
    let which =
        if unset.is_empty() { "they are set here".to_owned() } else { format!("not set: {}", unset.join(", ")) };
    format!(
        "Its addresses end in `:tls`: the files that {} name must be of its certificate authority ({which}). ",
        TLS_FILES.join(", ")
    )
}

async fn connect(coordinator: &str) -> std::io::Result<()> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host(coordinator).await?.collect();
    tokio::net::TcpStream::connect(&addresses[..]).await.map(|_| ())
}
