//! A job's ledger: why each slot ran, was late, or did not run.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::Uri;
use compline_core::Timestamp;

use super::executions::read_instant;
use super::jobs;
use crate::api::dto::{LedgerItem, Page};
use crate::api::problem::{ApiError, Kind, Problem};
use crate::api::query::{Params, Segment};
use crate::api::{ApiState, cursor};
use crate::ops::ledger;

/// How far back the ledger goes unless it is said.
const DAY: Duration = Duration::from_secs(86_400);

/// Why a job's slots did or did not run, oldest first. Consecutive slots of one verdict are one item.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/ledger",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("from" = Option<String>, Query, description = "From this instant on; a day before `to` unless given"),
        ("to" = Option<String>, Query, description = "Up to this instant; now unless given"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "The length of a page, from 1 to 1,000; 50 unless given. A page looks at a bounded number \
            of executions, so that it may be short and still have a next one")
    ),
    responses(
        (status = 200, body = Page<LedgerItem>),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "A bad cursor"),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn of_job(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
) -> Result<Json<Page<LedgerItem>>, ApiError> {
    let params = Params::read(&uri, &["from", "to", "cursor", "limit"])?;
    let (from, to) = (read_instant(&params, "from")?, read_instant(&params, "to")?);
    let limit = params.limit()?;
    let job = jobs::find(&state, &id).await?;
    let (from, to) = match params.one("cursor")? {
        Some(text) => read_cursor(text)?,
        None => {
            let to = to.unwrap_or_else(|| state.ctx.env.now());
            (from.unwrap_or_else(|| to.saturating_sub(DAY)), to)
        }
    };
    let story = ledger::story(&state.ctx, &job, from, to, limit).await?;
    let items = story.lines.iter().map(|line| LedgerItem::of(line, &job.parsed.schedule)).collect();
    Ok(Json(Page { items, next_cursor: story.next.map(|next| write_cursor(next, to)) }))
}

/// Where the next page begins, and where the last one ends: "now" stays what it was when the first page was asked for.
fn write_cursor(next: Timestamp, to: Timestamp) -> String {
    let position = [next, to].map(|at| at.unix_micros_ceil().to_be_bytes()).concat();
    cursor::encode(cursor::Listing::Ledger, &position)
}

fn read_cursor(text: &str) -> Result<(Timestamp, Timestamp), ApiError> {
    let position = cursor::decode(cursor::Listing::Ledger, text)?;
    let instant = |at: usize| {
        let micros: [u8; 8] = position.get(at..at + 8)?.try_into().ok()?;
        Timestamp::from_unix_micros(i64::from_be_bytes(micros))
    };
    let both = instant(0).zip(instant(8)).filter(|_| position.len() == 16);
    both.ok_or_else(|| ApiError::new(Kind::BadCursor, "this cursor was not given out by this listing").field("cursor"))
}
