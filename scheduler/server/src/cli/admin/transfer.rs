//! `compline admin export`, `import` and `raise-incarnation`: a whole store, moved or brought back, with no node running.

use std::time::Duration;

use compline_store::Store;
use compline_store::keys::Table;
use compline_store::transfer::{
    ExportOptions, Findings, Phase, Progress, Quiet, TableTally, Tally, TransferError, export, import,
    raise_incarnation,
};
use indicatif::ProgressBar;
use serde_json::json;

use crate::api::read_duration;
use crate::cli::CliError;
use crate::cli::args::{OutputFormat, QuietArgs, TransferArgs};
use crate::cli::out::Out;
use crate::config::StoreLocation;
use crate::env::Env;
use crate::ops::transfer::{Proof, quiet};

/// How much of a digest a table shows; `-o json` has all of it.
const DIGEST_CHARS: usize = 16;

/// Writes a store into a file.
pub async fn export_store(args: &TransferArgs, out: &Out) -> Result<(), CliError> {
    let opened = Opened::existing(&args.quiet, out).await?;
    let options = ExportOptions { now: Env::system().now(), build: env!("CARGO_PKG_VERSION").to_owned() };
    let mut bar = Bar::new(out);
    let exported = export(&opened.store, &args.file, &options, opened.quiet, &mut |progress| bar.show(progress)).await;
    bar.end();
    let (tally, findings) = opened.close(exported).await?;
    if out.format() == OutputFormat::Json {
        return out.json(&json!({
            "file": args.file.display().to_string(),
            "rows": tally.rows(),
            "tables": tables(&tally),
            "findings": findings_document(&findings),
        }));
    }
    print_tables(&tally, out)?;
    tell(&findings, out);
    out.say(&format!("exported {} rows to {}", tally.rows(), args.file.display()));
    Ok(())
}

/// Writes a file into an empty store.
pub async fn import_store(args: &TransferArgs, out: &Out) -> Result<(), CliError> {
    // A file that is none must not leave a new store behind.
    std::fs::metadata(&args.file)
        .map_err(|error| CliError::failed(format!("{} can't be read: {error}", args.file.display())))?;
    let opened = Opened::any(&args.quiet, out).await?;
    let mut bar = Bar::new(out);
    let imported = import(&opened.store, &args.file, opened.quiet, &mut |progress| bar.show(progress)).await;
    bar.end();
    let imported = opened.close(imported).await?;
    if out.format() == OutputFormat::Json {
        return out.json(&json!({
            "file": args.file.display().to_string(),
            "rows": imported.tally.rows(),
            "resumed_at": imported.resumed_at,
            "incarnation": imported.incarnation,
            "exported": { "at": imported.header.begun.to_string(), "by": imported.header.build,
                "from": imported.header.backend },
            "tables": tables(&imported.tally),
        }));
    }
    print_tables(&imported.tally, out)?;
    if imported.resumed_at > 0 {
        out.say(&format!("went on after {} rows of an interrupted run", imported.resumed_at));
    }
    let (rows, incarnation) = (imported.tally.rows(), imported.incarnation);
    out.say(&format!("imported and verified {rows} rows; the store's incarnation is {incarnation} now"));
    Ok(())
}

/// Makes a store that was brought back from a backup safe to start on.
pub async fn raise_store(args: &QuietArgs, out: &Out) -> Result<(), CliError> {
    let opened = Opened::existing(args, out).await?;
    let spinner = out.spinner("stamping anew what waits");
    let restored = raise_incarnation(&opened.store, opened.quiet).await;
    spinner.finish_and_clear();
    let restored = opened.close(restored).await?;
    if out.format() != OutputFormat::Table {
        return out.json(&json!({ "incarnation": restored.incarnation, "requeued": restored.requeued }));
    }
    out.fields(&[("incarnation", restored.incarnation.to_string()), ("requeued", restored.requeued.to_string())])
}

/// A store that no node uses.
struct Opened {
    store: Store,
    quiet: Quiet,
}

impl Opened {
    async fn existing(args: &QuietArgs, out: &Out) -> Result<Self, CliError> {
        Self::of(super::open(&args.store).await?, args, out).await
    }

    async fn any(args: &QuietArgs, out: &Out) -> Result<Self, CliError> {
        Self::of(super::open_or_create(&StoreLocation::parse(&args.store)?).await?, args, out).await
    }

    async fn of(store: Store, args: &QuietArgs, out: &Out) -> Result<Self, CliError> {
        let ttl = read_duration("--session-ttl", &args.session_ttl)?;
        let is_exclusive = StoreLocation::parse(&args.store)?.is_exclusive();
        let proof = if is_exclusive { Proof::Exclusive } else { Proof::StoodStill(ttl) };
        let spinner = out.spinner("making sure that no node runs");
        let at_rest = quiet(&store, proof, |nodes| out.say(&waiting(nodes, ttl))).await;
        spinner.finish_and_clear();
        match at_rest {
            Ok(quiet) => Ok(Self { store, quiet }),
            Err(error) => {
                let failed = failed(error);
                // The refusal is what matters.
                let _ = store.close().await;
                Err(failed)
            }
        }
    }

    /// Closes the store, and says what went wrong first.
    async fn close<T>(self, result: Result<T, TransferError>) -> Result<T, CliError> {
        let closed = self.store.close().await;
        let value = result.map_err(failed)?;
        closed.map_err(|error| failed(error.into()))?;
        Ok(value)
    }
}

fn waiting(nodes: &[&str], ttl: Duration) -> String {
    let nodes = nodes.join(", ");
    format!("nodes {nodes} have left sessions behind: waiting {} s to be sure that they are dead", ttl.as_secs())
}

fn failed(error: TransferError) -> CliError {
    CliError::failed(format!("{:#}", anyhow::Error::from(error)))
}

/// How far it has come: one bar per phase.
struct Bar<'a> {
    out: &'a Out,
    shown: Option<(Phase, ProgressBar)>,
}

impl<'a> Bar<'a> {
    fn new(out: &'a Out) -> Self {
        Self { out, shown: None }
    }

    fn show(&mut self, progress: Progress) {
        if self.shown.as_ref().is_none_or(|(phase, _)| *phase != progress.phase) {
            self.end();
            let bar = self.out.rows_bar(word(progress.phase), progress.total);
            self.shown = Some((progress.phase, bar));
        }
        if let Some((_, bar)) = &self.shown {
            bar.set_position(progress.records);
        }
    }

    fn end(&mut self) {
        if let Some((_, bar)) = self.shown.take() {
            bar.finish_and_clear();
        }
    }
}

fn word(phase: Phase) -> &'static str {
    match phase {
        Phase::Export => "exporting",
        Phase::Check => "checking the file",
        Phase::Import => "importing",
        Phase::Verify => "verifying",
    }
}

fn tables(tally: &Tally) -> Vec<serde_json::Value> {
    let table = |(table, tally): (Table, TableTally)| json!({ "table": table.to_string(), "rows": tally.rows, "digest": tally.digest_text() });
    tally.tables().map(table).collect()
}

fn print_tables(tally: &Tally, out: &Out) -> Result<(), CliError> {
    if out.format() == OutputFormat::Jsonl {
        return tables(tally).iter().try_for_each(|table| out.json(table));
    }
    let row = |(table, tally): (Table, TableTally)| {
        vec![table.to_string(), tally.rows.to_string(), tally.digest_text().chars().take(DIGEST_CHARS).collect()]
    };
    out.table(&["TABLE", "ROWS", "DIGEST"], tally.tables().map(row).collect(), "there is nothing in it")
}

fn findings_document(findings: &Findings) -> serde_json::Value {
    json!({
        "handed_back": findings.handed_back,
        "unplaced": findings.unplaced,
        "stale_places": findings.stale_places,
        "unreadable": findings.unreadable,
        "stuck": findings.stuck,
    })
}

/// Says what was found amiss: none of it stops an export, and none of it is passed over in silence.
fn tell(findings: &Findings, out: &Out) {
    let Findings { handed_back, unplaced, stale_places, unreadable, stuck } = *findings;
    let lines = [
        (handed_back, "executions were running: in the file they wait in their lanes again"),
        (unplaced, "executions are queued and have no place in a lane: they went along, and nothing will run them"),
        (stale_places, "places in lanes have no execution that waits there: they were left behind"),
        (unreadable, "executions can't be read by this build: they went along as they are"),
        (stuck, "executions were running and their job can't be read: they went along as they are"),
    ];
    for (count, text) in lines.into_iter().filter(|(count, _)| *count > 0) {
        out.say(&format!("{count} {text}"));
    }
    if unplaced + stale_places + unreadable + stuck > 0 {
        out.say("`compline admin check` names the rows");
    }
}
