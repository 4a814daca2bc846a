//! `compline schedule`: needs no server.

use super::CliError;
use super::args::{OutputFormat, ScheduleCommand};
use super::out::Out;
use crate::api::dto::PreviewRequest;
use crate::env::Env;
use crate::preview::preview;

/// Runs the command.
pub fn command(command: ScheduleCommand, out: &Out) -> Result<(), CliError> {
    let ScheduleCommand::Preview { cron, tz, after, count, gap, fold } = command;
    let request = PreviewRequest {
        cron,
        time_zone: tz,
        after,
        count: Some(count),
        gap: gap.map(Into::into),
        fold: fold.map(Into::into),
    };
    let view = preview(request, Env::system().now().to_utc()).map_err(|mut refusal| {
        refusal.field = match refusal.field.as_str() {
            "time_zone" => "--tz".to_owned(),
            "count" => "-n".to_owned(),
            other => format!("--{other}"),
        };
        refusal
    })?;
    match out.format() {
        OutputFormat::Json => out.json(&view),
        OutputFormat::Jsonl => view.fires.iter().try_for_each(|fire| out.json(fire)),
        OutputFormat::Table => {
            out.detail(&format!("{} in {}, zone data {}", view.cron, view.time_zone, view.tzdb));
            let row = |fire: &crate::api::dto::FireView| {
                vec![fire.at.clone(), fire.local.clone(), fire.note.clone().unwrap_or_default()]
            };
            out.table(&["UTC", "LOCAL", "NOTE"], view.fires.iter().map(row).collect(), "it never fires again")
        }
    }
}
