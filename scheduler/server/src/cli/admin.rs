//! `compline admin`: what is done to a store itself, not through a server.

mod transfer;

use compline_store::Store;
use compline_store::check::{Report, check};
use serde_json::json;

use super::CliError;
use super::args::{AdminCommand, OutputFormat};
use super::fdb;
use super::out::Out;
use crate::config::StoreLocation;
use crate::stores;

/// Runs one of the commands.
pub async fn command(command: AdminCommand, out: &Out) -> Result<(), CliError> {
    match command {
        AdminCommand::Check { store } => check_store(&store, out).await,
        AdminCommand::Export(args) => transfer::export_store(&args, out).await,
        AdminCommand::Import(args) => transfer::import_store(&args, out).await,
        AdminCommand::RaiseIncarnation(args) => transfer::raise_store(&args, out).await,
    }
}

/// Opens a store that is there. A directory that holds none is refused, and stays as it is.
async fn open(location: &str) -> Result<Store, CliError> {
    let location = StoreLocation::parse(location)?;
    if let StoreLocation::Embedded(directory) = &location
        && !directory.join("db").is_dir()
    {
        return Err(CliError::failed(format!("there is no store in {}", directory.display()))
            .with_hint("name the directory that `compline serve --store` was given"));
    }
    open_or_create(&location).await
}

/// Opens a store, or makes one.
async fn open_or_create(location: &StoreLocation) -> Result<Store, CliError> {
    fdb::become_linked(location)?;
    stores::open(location).await.map_err(fdb::not_opened)
}

async fn check_store(location: &str, out: &Out) -> Result<(), CliError> {
    let store = open(location).await?;
    let spinner = out.spinner("checking");
    let checked = check(&store, |table, rows| spinner.set_message(format!("checking: {table}, {rows} rows"))).await;
    spinner.finish_and_clear();
    // What was read counts, however the store closes.
    let closed = store.close().await;
    let failed = |error| CliError::failed(format!("{:#}", anyhow::Error::from(error)));
    let report = checked.map_err(failed)?;
    closed.map_err(failed)?;
    // Even a store on which nothing was ever done says how many shards it has.
    if report.rows.iter().all(|(_, rows)| *rows == 0) {
        return Err(CliError::failed(format!("there is no store in {location}"))
            .with_hint("name it as `compline serve --store` was given it, on a cluster with its `?prefix=`"));
    }
    print(&report, out)?;
    match report.findings_total {
        0 => Ok(()),
        total => Err(CliError::failed(format!("{total} rows are not as they should be"))
            .with_hint("the findings name each row and what is wrong with it")
            .after_result()),
    }
}

fn print(report: &Report, out: &Out) -> Result<(), CliError> {
    match out.format() {
        OutputFormat::Json => out.json(&document(report)),
        OutputFormat::Jsonl => findings(report).iter().try_for_each(|finding| out.json(finding)),
        OutputFormat::Table => {
            let counts = report.rows.iter().map(|(table, rows)| vec![(*table).to_owned(), rows.to_string()]);
            out.table(&["TABLE", "ROWS"], counts.collect(), "")?;
            if report.busy_buckets > 0 {
                out.say(&format!("{} buckets changed too often to verify their counters", report.busy_buckets));
            }
            let row = |finding: &compline_store::check::Finding| {
                vec![
                    finding.kind.as_str().to_owned(),
                    finding.table.to_owned(),
                    finding.key.clone(),
                    finding.problem.clone(),
                ]
            };
            let rows: Vec<_> = report.findings.iter().map(row).collect();
            out.table(&["FINDING", "TABLE", "KEY", "PROBLEM"], rows, "nothing is wrong")
        }
    }
}

fn document(report: &Report) -> serde_json::Value {
    let rows: serde_json::Map<_, _> =
        report.rows.iter().map(|(table, rows)| ((*table).to_owned(), json!(rows))).collect();
    json!({
        "clean": report.findings_total == 0,
        "rows": rows,
        "findings_total": report.findings_total,
        "findings": findings(report),
        "busy_buckets": report.busy_buckets,
    })
}

fn findings(report: &Report) -> Vec<serde_json::Value> {
    let finding = |finding: &compline_store::check::Finding| {
        json!({
            "kind": finding.kind.as_str(),
            "table": finding.table,
            "key": finding.key,
            "problem": finding.problem,
        })
    };
    report.findings.iter().map(finding).collect()
}
