//! Executions: listings, one of them, and its log.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use compline_core::Timestamp;
use compline_core::execution::Execution;
use compline_core::ids::ExecutionId;
use compline_core::time;
use compline_store::tables::history::Listing;

use super::jobs;
use crate::api::define::one_of;
use crate::api::dto::{ExecutionView, LogLineView, Nothing, Page};
use crate::api::problem::{ApiError, Kind, Problem};
use crate::api::query::{Params, Segment};
use crate::api::{ApiState, action, cursor, views};
use crate::ops;
use crate::ops::cancel::{CancelError, CancelRequest};
use crate::ops::query::{self, ExecutionSeen, Window};
use crate::refusal::{Refusal, quoted};

const PARAMETERS: [&str; 5] = ["from", "to", "status", "cursor", "limit"];
const FAILED: &str = "FAILED";
/// Every status, and a word for those that are not over.
const STATUSES: [&str; 9] =
    ["PENDING", "QUEUED", "RUNNING", "RETRYING", "COMPLETED", FAILED, "CANCELLED", "SKIPPED", "OPEN"];

/// The executions of a job, newest slot first.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/executions",
    tag = "executions",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("from" = Option<String>, Query, description = "Only slots from this instant on"),
        ("to" = Option<String>, Query, description = "Only slots before this instant"),
        ("status" = Option<String>, Query, description = "Only executions with this status; `OPEN` stands for all that are not over"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "The length of a page, from 1 to 1,000; 50 unless given. A filter other than `FAILED` \
            looks at a bounded number of rows, so that a page may be short and still have a next one")
    ),
    responses(
        (status = 200, body = Page<ExecutionView>),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "A bad cursor"),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn of_job(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
) -> Result<Json<Page<ExecutionView>>, ApiError> {
    let filter = Filter::read(&uri)?;
    let job = jobs::find(&state, &id).await?;
    let listing = if filter.is_failed() { Listing::FailedOfJob(job.id) } else { Listing::OfJob(job.id) };
    page(&state, listing, cursor::Listing::JobExecutions, filter).await
}

/// The executions of all jobs, newest first: by their slot, or by the request that asked for them.
#[utoipa::path(
    get,
    path = "/v1/executions",
    tag = "executions",
    params(
        ("from" = Option<String>, Query, description = "Only executions from this instant on"),
        ("to" = Option<String>, Query, description = "Only executions before this instant"),
        ("status" = Option<String>, Query, description = "Only executions with this status; `OPEN` stands for all that are not over"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "The length of a page, from 1 to 1,000; 50 unless given. A filter other than `FAILED` \
            looks at a bounded number of rows, so that a page may be short and still have a next one")
    ),
    responses(
        (status = 200, body = Page<ExecutionView>),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "A bad cursor")
    )
)]
pub async fn list(State(state): State<ApiState>, uri: Uri) -> Result<Json<Page<ExecutionView>>, ApiError> {
    let filter = Filter::read(&uri)?;
    let tenant = &state.tenant;
    let listing = if filter.is_failed() { Listing::FailedOfTenant(tenant) } else { Listing::OfTenant(tenant) };
    page(&state, listing, cursor::Listing::Executions, filter).await
}

/// One execution with its attempts.
#[utoipa::path(
    get,
    path = "/v1/executions/{id}",
    tag = "executions",
    params(("id" = String, Path, description = "`exec_…`")),
    responses(
        (status = 200, body = ExecutionView),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn show(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
) -> Result<Json<ExecutionView>, ApiError> {
    Params::read(&uri, &[])?;
    Ok(Json(views::execution(&find(&state, &id).await?)))
}

/// What an execution's attempts logged, oldest line first.
#[utoipa::path(
    get,
    path = "/v1/executions/{id}/logs",
    tag = "executions",
    params(("id" = String, Path, description = "`exec_…`")),
    responses(
        (status = 200, body = Page<LogLineView>),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn logs(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
) -> Result<Json<Page<LogLineView>>, ApiError> {
    Params::read(&uri, &[])?;
    let seen = find(&state, &id).await?;
    let attempts = query::log(&state.ctx, seen.execution.id).await?;
    let lines = attempts.into_iter().flat_map(|(attempt, lines)| {
        lines.into_iter().map(move |line| LogLineView { attempt, level: line.level, message: line.message })
    });
    Ok(Json(Page { items: lines.collect(), next_cursor: None }))
}

pub(super) async fn find(state: &ApiState, id: &str) -> Result<ExecutionSeen, ApiError> {
    let parsed: ExecutionId = id.parse().map_err(|_| unknown(id))?;
    query::execution(&state.ctx, &state.tenant, parsed).await?.ok_or_else(|| unknown(id))
}

pub(super) fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("there is no execution {}", quoted(id)))
        .field("id")
        .hint("`compline run list` shows the executions; an id is `exec_` and 32 letters or digits")
}

/// Cancels an execution. What waits is over when this answers; what runs is told to stop, which takes at most a second, and is not tried again.
/// A job's schedule goes on.
#[utoipa::path(
    post,
    path = "/v1/executions/{id}/cancel",
    tag = "executions",
    params(
        ("id" = String, Path, description = "`exec_…`"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat recognisable for 24 hours")
    ),
    responses(
        (status = 200, body = ExecutionView, description = "It is cancelled"),
        (status = 202, body = ExecutionView, description = "It runs, and is told to stop"),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is over"),
        (status = 422, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn cancel(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    Params::read(&uri, &[])?;
    let key = action::idempotency_key(&headers)?;
    let (Nothing {}, bytes) = action::optional_json(&headers, body).await?;
    let idempotency = key.map(|key| action::idempotency(key, uri.path(), &bytes));
    let execution = id.parse().map_err(|_| unknown(&id))?;
    let request = CancelRequest { tenant: &state.tenant, id: execution, idempotency: idempotency.as_ref() };
    let cancelled = ops::cancel::cancel(&state.ctx, request).await.map_err(|error| match error {
        CancelError::Unknown => unknown(&id),
        CancelError::Crowded => {
            ApiError::new(Kind::WrongState, error.to_string()).hint("pause the job, edit its schedule, or let it end")
        }
        CancelError::KeyReused => action::key_reused(),
        CancelError::Store(error) => error.into(),
        CancelError::Over(seen) => {
            let status = seen.execution.state.name();
            ApiError::new(Kind::WrongState, format!("{execution} is {status}: there is nothing left to cancel"))
        }
    })?;
    let over = cancelled.seen.execution.state.is_terminal();
    let status = if over { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = (status, Json(views::execution(&cancelled.seen))).into_response();
    action::mark_replayed(&mut response, cancelled.replayed);
    Ok(response)
}

struct Filter {
    from: Option<Timestamp>,
    until: Option<Timestamp>,
    status: Option<&'static str>,
    cursor: Option<String>,
    limit: usize,
}

impl Filter {
    fn read(uri: &Uri) -> Result<Self, ApiError> {
        let params = Params::read(uri, &PARAMETERS)?;
        let status = params.one("status")?;
        Ok(Self {
            from: read_instant(&params, "from")?,
            until: read_instant(&params, "to")?,
            status: status.map(|text| one_of("status", &text.to_ascii_uppercase(), &STATUSES)).transpose()?,
            cursor: params.one("cursor")?.map(str::to_owned),
            limit: params.limit()?,
        })
    }

    fn is_failed(&self) -> bool {
        self.status == Some(FAILED)
    }

    fn keeps(&self, execution: &Execution) -> bool {
        match self.status {
            None => true,
            Some("OPEN") => !execution.state.is_terminal(),
            Some(status) => execution.state.name() == status,
        }
    }
}

pub(super) fn read_instant(params: &Params, name: &str) -> Result<Option<Timestamp>, ApiError> {
    let Some(text) = params.one(name)? else { return Ok(None) };
    let instant = time::instant::parse(text).map_err(|error| {
        let detail = format!("{} is not an instant: {}", quoted(&error.text), error.detail);
        // A plus sign in a query string is a blank, so offsets are often lost on the way.
        Refusal::new(name, detail).hint(format!("{}; in an address a `+` is written %2B", error.hint))
    })?;
    Ok(Some(instant.into()))
}

async fn page(
    state: &ApiState,
    listing: Listing<'_>,
    name: cursor::Listing,
    filter: Filter,
) -> Result<Json<Page<ExecutionView>>, ApiError> {
    let before = match &filter.cursor {
        None => None,
        Some(text) => {
            let position = cursor::decode(name, text)?;
            if !listing.contains(&position) {
                return Err(ApiError::new(Kind::BadCursor, "this cursor belongs to another listing")
                    .field("cursor")
                    .hint("keep `status` and the job as they were on the page before"));
            }
            Some(position.into())
        }
    };
    let window = Window { before, from: filter.from, until: filter.until, limit: filter.limit };
    let found = query::executions(&state.ctx, listing, window, |execution| filter.keeps(execution)).await?;
    let next_cursor = found.next.map(|position| cursor::encode(name, &position));
    Ok(Json(Page { items: found.items.iter().map(views::execution).collect(), next_cursor }))
}
