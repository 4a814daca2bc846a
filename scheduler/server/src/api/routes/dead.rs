//! Dead letters: looking at them, and letting them run again or go.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};
use compline_core::ids::{ExecutionId, JobId};
use compline_store::tables::dead;

use crate::api::body::read_json;
use crate::api::dto::{DeadLetterView, DeadOutcome, DeadRefusal, DeadSelection, ExecutionView, Page, instant};
use crate::api::problem::{ApiError, Kind, Problem};
use crate::api::query::{Params, Segment};
use crate::api::{ApiState, cursor, views};
use crate::ops::dead::{Done, Filter, drop_all, list as list_letters, redrive_spread};
use crate::passes::redrive::{ATTEMPTS_MAX, Answer};
use crate::refusal::{Refusal, quoted};
use crate::words;

/// How many executions one request may name.
const NAMED_MAX: usize = 1_000;
/// How many dead letters one request handles unless it says otherwise, and at the most.
const BULK_DEFAULT: u32 = 1_000;
const BULK_MAX: u32 = 10_000;
/// How many of a bulk become due in a second unless the request says otherwise, and at the most.
const PER_SECOND_DEFAULT: u32 = 100;
const PER_SECOND_MAX: u32 = 10_000;

/// Executions that failed for good and were neither redriven nor dropped: lane after lane, oldest first.
#[utoipa::path(
    get,
    path = "/v1/dead",
    tag = "executions",
    params(
        ("lane" = Option<String>, Query, description = "Only those of this lane"),
        ("job" = Option<String>, Query, description = "Only those of this job"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "The length of a page, from 1 to 1,000; 50 unless given")
    ),
    responses(
        (status = 200, body = Page<DeadLetterView>),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "A bad cursor")
    )
)]
pub async fn list(State(state): State<ApiState>, uri: Uri) -> Result<Json<Page<DeadLetterView>>, ApiError> {
    let params = Params::read(&uri, &["lane", "job", "cursor", "limit"])?;
    let lane = params.one("lane")?;
    let job = params.one("job")?.map(read_job).transpose()?;
    let behind = match params.one("cursor")? {
        None => None,
        Some(text) => {
            let position = cursor::decode(cursor::Listing::Dead, text)?;
            if !dead::contains(lane, &position) {
                return Err(ApiError::new(Kind::BadCursor, "this cursor belongs to another listing")
                    .field("cursor")
                    .hint("keep `lane` as it was on the page before"));
            }
            Some(position.into())
        }
    };
    let filter = Filter { tenant: &state.tenant, lane, job };
    let found = list_letters(&state.ctx, filter, behind, params.limit()?).await?;
    let next_cursor = found.next.map(|position| cursor::encode(cursor::Listing::Dead, &position));
    Ok(Json(Page { items: found.items.iter().map(views::dead_letter).collect(), next_cursor }))
}

/// Lets dead letters run again. Each keeps its execution id and its history, and its attempts are counted anew. Those of a bulk are spread
/// over time. What is not a dead letter any more is refused, so that a repeat is harmless.
#[utoipa::path(
    post,
    path = "/v1/dead:redrive",
    tag = "executions",
    request_body = DeadSelection,
    responses(
        (status = 200, body = DeadOutcome),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn redrive(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<DeadOutcome>, ApiError> {
    let selection = selection(&uri, &headers, body).await?;
    let per_second = bounded("per_second", selection.per_second, PER_SECOND_DEFAULT, PER_SECOND_MAX)?;
    let selected = select(&state, &selection).await?;
    let done = redrive_spread(&state.ctx, &selected.ids, per_second).await?;
    Ok(Json(outcome(&done, selected.more)))
}

/// Drops dead letters. The executions stay `FAILED` in their histories, and can still be redriven one by one for as long as those last.
#[utoipa::path(
    post,
    path = "/v1/dead:drop",
    tag = "executions",
    request_body = DeadSelection,
    responses(
        (status = 200, body = DeadOutcome),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn drop(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<DeadOutcome>, ApiError> {
    let selection = selection(&uri, &headers, body).await?;
    if selection.per_second.is_some() {
        return Err(Refusal::new("per_second", "letters are dropped at once").hint("leave the field out").into());
    }
    let selected = select(&state, &selection).await?;
    let done = drop_all(&state.ctx, &selected.ids).await?;
    Ok(Json(outcome(&done, selected.more)))
}

/// Lets one execution that failed for good run again, at once. It keeps its id and its history, and its attempts are counted anew.
#[utoipa::path(
    post,
    path = "/v1/executions/{id}/redrive",
    tag = "executions",
    params(("id" = String, Path, description = "`exec_…`")),
    responses(
        (status = 200, body = ExecutionView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It has not failed for good")
    )
)]
pub async fn redrive_one(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
) -> Result<Json<ExecutionView>, ApiError> {
    Params::read(&uri, &[])?;
    let id: ExecutionId = id.parse().map_err(|_| super::executions::unknown(&id))?;
    let done = redrive_spread(&state.ctx, &[id], PER_SECOND_DEFAULT).await?;
    match done.answers.first() {
        Some((_, Answer::Done)) => {}
        Some((_, Answer::Unknown)) | None => return Err(super::executions::unknown(&id.to_string())),
        Some((_, answer)) => return Err(ApiError::new(Kind::WrongState, reason(*answer)).hint(HINT_REDRIVE)),
    }
    Ok(Json(views::execution(&super::executions::find(&state, &id.to_string()).await?)))
}

const HINT_REDRIVE: &str = "`compline run show` tells how it stands; `compline job trigger` runs its job anew";

/// What a request about dead letters says.
async fn selection(uri: &Uri, headers: &HeaderMap, body: Body) -> Result<DeadSelection, ApiError> {
    Params::read(uri, &[])?;
    Ok(read_json(headers, body).await?.0)
}

struct Selected {
    ids: Vec<ExecutionId>,
    more: bool,
}

async fn select(state: &ApiState, selection: &DeadSelection) -> Result<Selected, ApiError> {
    if let Some(named) = &selection.executions {
        let others = [
            ("lane", selection.lane.is_some()),
            ("job", selection.job.is_some()),
            ("all", selection.all.is_some()),
            ("limit", selection.limit.is_some()),
        ];
        if let Some((field, _)) = others.iter().find(|(_, given)| *given) {
            let detail = format!("`executions` names what is meant, and `{field}` has no meaning beside it");
            return Err(Refusal::new(*field, detail).hint("leave one of the two out").into());
        }
        if named.len() > NAMED_MAX {
            let detail = format!("{} executions are named, and at most {NAMED_MAX} may be", named.len());
            return Err(Refusal::new("executions", detail)
                .hint("send several requests, or use `lane` or `job`")
                .into());
        }
        let mut ids = Vec::with_capacity(named.len());
        for (index, text) in named.iter().enumerate() {
            ids.push(text.parse().map_err(|_| {
                Refusal::new(format!("executions[{index}]"), format!("{} is no execution id", quoted(text)))
                    .hint("an id is `exec_` and 32 letters or digits")
            })?);
        }
        let mut seen = std::collections::HashSet::new();
        ids.retain(|id| seen.insert(*id));
        return Ok(Selected { ids, more: false });
    }
    if selection.lane.is_none() && selection.job.is_none() && selection.all != Some(true) {
        return Err(Refusal::new("(body)", "nothing says which dead letters are meant")
            .hint("give `executions`, `lane`, `job`, or {\"all\":true}")
            .into());
    }
    if let Some(lane) = &selection.lane {
        words::lane("lane", lane)?;
    }
    let job = selection.job.as_deref().map(read_job).transpose()?;
    let limit = bounded("limit", selection.limit, BULK_DEFAULT, BULK_MAX)?;
    let filter = Filter { tenant: &state.tenant, lane: selection.lane.as_deref(), job };
    let found = list_letters(&state.ctx, filter, None, limit as usize).await?;
    let ids = found.items.iter().map(|letter| letter.letter.execution.id).collect();
    Ok(Selected { ids, more: found.next.is_some() })
}

fn outcome(done: &Done, more: bool) -> DeadOutcome {
    let refused = |(id, answer): &(ExecutionId, Answer)| {
        (*answer != Answer::Done)
            .then(|| DeadRefusal { execution_id: id.to_string(), reason: reason(*answer).to_owned() })
    };
    let refused: Vec<DeadRefusal> = done.answers.iter().filter_map(refused).collect();
    DeadOutcome {
        done: (done.answers.len() - refused.len()) as u32,
        refused,
        last_due_at: done.last_due.map(instant),
        more,
    }
}

fn reason(answer: Answer) -> String {
    match answer {
        Answer::Done => "done".to_owned(),
        Answer::Unknown => "there is no dead letter of it".to_owned(),
        Answer::NotFailed => "it has not failed for good, or runs again already".to_owned(),
        Answer::NoJob => "its job was deleted".to_owned(),
        Answer::TooOften => format!("it was attempted {ATTEMPTS_MAX} times"),
    }
}

fn read_job(text: &str) -> Result<JobId, ApiError> {
    text.parse().map_err(|_| {
        Refusal::new("job", format!("{} is no job id", quoted(text)))
            .hint("`compline job list` shows the jobs; an id begins with `job_`")
            .into()
    })
}

fn bounded(field: &str, given: Option<u32>, default: u32, max: u32) -> Result<u32, ApiError> {
    match given {
        None => Ok(default),
        Some(value) if (1..=max).contains(&value) => Ok(value),
        Some(value) => Err(Refusal::new(field, format!("{value} is not from 1 to {max}"))
            .hint(format!("leave it out for {default}"))
            .into()),
    }
}
