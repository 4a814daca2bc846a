//! `compline task`.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use tokio_util::io::ReaderStream;

use super::args::{OutputFormat, Paging, TaskCommand};
use super::out::Out;
use super::{CliError, listing, local};
use crate::api::dto::{Page, TaskView};
use crate::client::{Client, Reply};
use crate::refusal::Refusal;
use crate::words;

/// How often a push that still compiles is asked after.
const POLL: Duration = Duration::from_millis(500);
const CHUNK_BYTES: usize = 64 << 10;

/// Runs the command. Only what needs a server makes a client.
pub async fn command(
    command: TaskCommand,
    client: impl Fn() -> Result<Client, CliError>,
    out: &Out,
) -> Result<(), CliError> {
    match command {
        TaskCommand::Push { file, name, tags } => push(&file, &name, &tags, &client()?, out).await,
        TaskCommand::List(paging) => list(&paging, &client()?, out).await,
        TaskCommand::Show { reference } => show(&reference, &client()?, out).await,
        TaskCommand::Run(args) => local::run(*args, client, out).await,
    }
}

async fn push(file: &Path, name: &str, tags: &[String], client: &Client, out: &Out) -> Result<(), CliError> {
    words::task_name("--name", name)?;
    tags.iter().try_for_each(|tag| words::tag("--tag", tag))?;
    let unreadable = |error: std::io::Error| {
        CliError::usage(Refusal::new("FILE", format!("{} can't be read: {error}", file.display())))
    };
    let opened = tokio::fs::File::open(file).await.map_err(unreadable)?;
    let metadata = opened.metadata().await.map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Refusal::new("FILE", format!("{} is not a file", file.display())).into());
    }
    let bar = out.bytes_bar(name, metadata.len());
    let counted = bar.clone();
    let body = ReaderStream::with_capacity(opened, CHUNK_BYTES).inspect_ok(move |chunk: &Bytes| {
        counted.inc(chunk.len() as u64);
    });
    let mut query = vec![("name", name.to_owned())];
    query.extend(tags.iter().map(|tag| ("tag", tag.clone())));
    let reply: Result<Reply<TaskView>, CliError> = client.push(&query, metadata.len(), body).await;
    bar.finish_and_clear();
    let mut reply = reply?;
    if reply.value.status == "compiling" {
        reply = wait_until_compiled(&reply.value.digest, client, out).await?;
    }
    if reply.value.status == "refused" {
        let reason = reply.value.reason.unwrap_or_default();
        return Err(CliError::failed(format!("the component was refused: {reason}")));
    }
    print(&reply, out)
}

async fn wait_until_compiled(digest: &str, client: &Client, out: &Out) -> Result<Reply<TaskView>, CliError> {
    out.detail("the server still compiles it");
    let spinner = out.spinner("compiling");
    loop {
        tokio::time::sleep(POLL).await;
        let reply: Reply<TaskView> = client.get(&["v1", "tasks", digest], &[]).await?;
        if reply.value.status != "compiling" {
            spinner.finish_and_clear();
            return Ok(reply);
        }
    }
}

async fn show(reference: &str, client: &Client, out: &Out) -> Result<(), CliError> {
    print(&client.get(&["v1", "tasks", reference], &[]).await?, out)
}

fn print(reply: &Reply<TaskView>, out: &Out) -> Result<(), CliError> {
    if out.format() != OutputFormat::Table {
        return out.line(&reply.text);
    }
    let task = &reply.value;
    let schema = task.parameters_schema.as_ref().map(|schema| schema.get().to_owned());
    let none_needed = || "none".to_owned();
    out.fields(&[
        ("name", task.name.clone().unwrap_or_default()),
        ("digest", task.digest.clone()),
        ("status", task.status.clone()),
        ("tags", task.tags.join(", ")),
        ("size", format!("{} bytes", task.size_bytes)),
        ("kind", task.kind.clone()),
        ("imports", task.imports.join(", ")),
        ("exports", task.exports.join(", ")),
        ("grants", if task.grants.is_empty() { none_needed() } else { task.grants.join(", ") }),
        ("pushed", task.pushed_at.clone().unwrap_or_default()),
        ("schema", schema.unwrap_or_default()),
    ])?;
    if task.versions.len() > 1 {
        let rows = task
            .versions
            .iter()
            .map(|version| vec![version.digest.clone(), version.tags.join(", "), version.pushed_at.clone()]);
        out.line("")?;
        out.table(&["VERSION", "TAGS", "PUSHED"], rows.collect(), "")?;
    }
    Ok(())
}

async fn list(paging: &Paging, client: &Client, out: &Out) -> Result<(), CliError> {
    let reply: Reply<Page<TaskView>> = client.get(&["v1", "tasks"], &paging.query()).await?;
    let row = |task: &TaskView| {
        vec![
            task.name.clone().unwrap_or_default(),
            short(&task.digest),
            task.tags.join(", "),
            task.size_bytes.to_string(),
            task.pushed_at.clone().unwrap_or_default(),
        ]
    };
    listing(out, &reply, &["NAME", "DIGEST", "TAGS", "BYTES", "PUSHED"], row, "there are no tasks")
}

/// The beginning of a digest: enough to tell versions apart by eye.
fn short(digest: &str) -> String {
    digest.chars().take("sha256:".len() + 12).collect()
}

impl Paging {
    /// The part of a query that asks for this page.
    pub fn query(&self) -> Vec<(&'static str, String)> {
        let limit = self.limit.map(|limit| ("limit", limit.to_string()));
        let cursor = self.cursor.clone().map(|cursor| ("cursor", cursor));
        limit.into_iter().chain(cursor).collect()
    }
}
