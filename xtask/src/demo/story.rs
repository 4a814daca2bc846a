//! What the demo does and what it checks.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::server::{Server, pause};
use super::{PATIENCE, Place, Printer};
use crate::workspace;

/// How many slots of the recurring job must have run before the kill, and how many after it.
const SLOTS_EACH: usize = 4;

struct Jobs {
    now: String,
    once: String,
    cron: String,
    flaky: String,
}

/// Runs the whole story and returns the verdict.
pub(crate) fn tell(print: &Printer, place: &Place) -> Result<String> {
    print.step("start a server on a fresh store and a free port");
    let server = Server::start(place)?;
    print.show(&format!("{} (log: {})", server.url, place.directory.join("server.log").display()));

    print.step("push the example tasks");
    for name in ["csv-report", "invoice", "thumbnail", "flaky"] {
        let component = workspace::target().join("guests").join(format!("{name}.wasm"));
        print.show(server.text(&["task", "push", &component.to_string_lossy(), "--name", name])?.trim_end());
    }

    print.step("create a NOW job, a ONCE job, a job that fails twice before it works, and a CRON job over the CSV, every second");
    let jobs = create(&server)?;
    print.show(server.text(&["job", "list"])?.trim_end());

    print.step(&format!("wait until {SLOTS_EACH} slots of the CRON job have run"));
    wait_for(print, "slots before the kill", || Ok(completed(&server, &jobs.cron)?.len() >= SLOTS_EACH))?;

    print.step("kill the server with SIGKILL, in the middle");
    server.kill()?;

    print.step("start it again on the same store");
    let server = Server::start(place)?;
    let before = completed(&server, &jobs.cron)?.len();
    ensure!(before >= SLOTS_EACH, "{before} runs were recorded before the kill that had {SLOTS_EACH}");
    print.show(&format!("{before} runs of the CRON job are on record from before the kill"));

    print.step(&format!("wait until everything has run, and {SLOTS_EACH} more slots of the CRON job"));
    wait_for(print, "slots after the kill", || Ok(completed(&server, &jobs.cron)?.len() >= before + SLOTS_EACH))?;
    for job in [&jobs.now, &jobs.once, &jobs.flaky] {
        wait_for(print, "the one-off jobs", || Ok(!completed(&server, job)?.is_empty()))?;
    }

    print.step("check: every slot has exactly one execution, all completed");
    print.show(server.text(&["run", "list", "--limit", "20"])?.trim_end());
    let mut runs = 0;
    for job in [&jobs.now, &jobs.once, &jobs.flaky] {
        let executions = executions(&server, job)?;
        ensure!(executions.len() == 1, "job {job} has one slot and {} executions", executions.len());
        runs += 1;
    }
    runs += check_cron(print, &server, &jobs.cron)?;
    Ok(format!("\ndemo: ok. {runs} slots, {runs} executions, all completed, one SIGKILL in between"))
}

fn create(server: &Server) -> Result<Jobs> {
    let id = |answer: Value| -> Result<String> {
        answer["job_id"].as_str().map(str::to_owned).with_context(|| format!("no job_id in {answer}"))
    };
    let lines = r#"{"customer":"Ada","currency":"EUR","items":[{"description":"hosting","quantity":3,"unit_price_cents":1999,"tax_basis_points":1900}]}"#;
    let now =
        server.json(&["job", "create", "--name", "invoice-now", "--task", "invoice", "--now", "--params", lines])?;
    let soon = in_three_seconds(server)?;
    let once = server.json(&[
        "job",
        "create",
        "--name",
        "thumbnail-once",
        "--task",
        "thumbnail",
        "--at",
        &soon,
        "--params",
        "{}",
    ])?;
    let flaky = server.json(&[
        "job",
        "create",
        "--name",
        "flaky-retries",
        "--task",
        "flaky",
        "--now",
        "--params",
        r#"{"fail_attempts":2}"#,
        "--retry-delays",
        "1s,2s",
    ])?;
    let cron = server.json(&[
        "job",
        "create",
        "--name",
        "report-every-second",
        "--task",
        "csv-report",
        "--cron",
        "* * * * * *",
        "--params",
        "{}",
    ])?;
    Ok(Jobs { now: id(now)?, once: id(once)?, cron: id(cron)?, flaky: id(flaky)? })
}

/// Three seconds from now, by the schedule preview: so that only one clock is asked.
fn in_three_seconds(server: &Server) -> Result<String> {
    let preview = server.json(&["schedule", "preview", "--cron", "* * * * * *", "-n", "4"])?;
    preview["fires"][3]["at"].as_str().map(str::to_owned).with_context(|| format!("no fourth fire in {preview}"))
}

fn wait_for(print: &Printer, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a person waits: there is no other clock here")]
    let until = Instant::now() + PATIENCE;
    while !done()? {
        #[expect(clippy::disallowed_methods, reason = "a person waits: there is no other clock here")]
        if Instant::now() > until {
            bail!("waited {PATIENCE:?} in vain for {what}");
        }
        print.dot();
        pause();
    }
    Ok(())
}

/// All executions of a job, page by page.
fn executions(server: &Server, job: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    let mut cursor: Option<String> = None;
    loop {
        let mut args = vec!["run", "list", "--job", job, "--limit", "100"];
        if let Some(cursor) = &cursor {
            args.extend(["--cursor", cursor]);
        }
        let page = server.json(&args)?;
        let items = page["items"].as_array().with_context(|| format!("no items in {page}"))?;
        all.extend(items.iter().cloned());
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

fn completed(server: &Server, job: &str) -> Result<Vec<Value>> {
    let mut all = executions(server, job)?;
    all.retain(|execution| execution["status"] == "COMPLETED");
    Ok(all)
}

/// Every second from the job's first slot to the last one that ran has one execution, and it is completed.
fn check_cron(print: &Printer, server: &Server, job: &str) -> Result<usize> {
    let mut by_slot: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for execution in executions(server, job)? {
        let slot = execution["slot"].as_str().context("an execution without a slot")?.to_owned();
        by_slot.entry(slot).or_default().push(execution);
    }
    for (slot, executions) in &by_slot {
        ensure!(executions.len() == 1, "slot {slot} has {} executions", executions.len());
    }
    // Slots newer than the newest completed one are planned, or run at this moment.
    let last =
        by_slot.iter().rposition(|(_, executions)| executions[0]["status"] == "COMPLETED").context("nothing ran")?;
    let (first_slot, last_slot) = (by_slot.keys().next(), by_slot.keys().nth(last));
    let (Some(first_slot), Some(last_slot)) = (first_slot, last_slot) else { bail!("nothing ran") };
    let planned = server.json(&[
        "schedule",
        "preview",
        "--cron",
        "* * * * * *",
        "--after",
        first_slot,
        "-n",
        &last.max(1).to_string(),
    ])?;
    let expected = std::iter::once(first_slot.as_str())
        .chain(planned["fires"].as_array().into_iter().flatten().filter_map(|fire| fire["at"].as_str()))
        .take(last + 1);
    let settled = by_slot.iter().take(last + 1);
    for (slot, (found, executions)) in expected.zip(settled) {
        ensure!(slot == found, "slot {slot} has no execution");
        ensure!(executions[0]["status"] == "COMPLETED", "slot {slot} is {}", executions[0]["status"]);
    }
    print.show(&format!(
        "CRON job: {} slots from {first_slot} to {last_slot}, one execution each, all completed",
        last + 1
    ));
    Ok(last + 1)
}
