//! Jobs: creating them and looking at them.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use compline_core::ids::JobId;
use compline_core::job::{JobState, TaskRef};
use compline_store::tables::history::Listing;

use super::tasks::unknown_task;
use crate::api::body::read_json;
use crate::api::define::{Birth, Checked, one_of};
use crate::api::dto::{JobCreated, JobListItem, JobRequest, JobView, Page, instant};
use crate::api::problem::{ApiError, Kind, Problem};
use crate::api::query::{Params, Segment};
use crate::api::{ApiState, action, cursor, views};
use crate::ops::create::{CreateError, Created, NewJob, create_job};
use crate::ops::idempotency::Idempotency;
use crate::ops::query::{self, JobSeen, Window};
use crate::ops::tasks::{self, Found};
use crate::refusal::Refusal;
use crate::words::TaskName;

/// How many fires a job's answer shows.
const NEXT_FIRES: usize = 5;
/// How many executions a job's answer shows.
const RECENT_EXECUTIONS: usize = 10;
const STATES: [&str; 4] = ["ACTIVE", "FINISHED", "PAUSED", "DELETED"];

/// Creates a job. When this answers, the job is durable.
#[utoipa::path(
    post,
    path = "/v1/jobs",
    tag = "jobs",
    params(("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat safe for 24 hours: the same key with the same body \
        answers with the job of the first request, and the header `Idempotent-Replayed: true`; with another body it is refused. At most \
        255 characters")),
    request_body = JobRequest,
    responses(
        (status = 201, body = JobCreated, headers(("Location" = String, description = "The job's address"))),
        (status = 400, body = Problem, content_type = "application/problem+json"),
        (status = 413, body = Problem, content_type = "application/problem+json"),
        (status = 415, body = Problem, content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn create(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    Params::read(&uri, &[])?;
    let key = action::idempotency_key(&headers)?;
    let (request, bytes) = read_json::<JobRequest>(&headers, body).await?;
    let idempotency = key.map(|key| action::idempotency(key, uri.path(), &bytes));
    let new = match define(&state, request, idempotency.clone()).await {
        Ok(new) => new,
        // What was right when the first request came may be refused by now: an instant that is over, a tag that has moved.
        Err(refused) => {
            let Some(idempotency) = &idempotency else { return Err(refused) };
            let earlier = query::created_earlier(&state.ctx, &state.tenant, idempotency, state.ctx.env.now()).await?;
            return earlier.map(|created| created_answer(&created)).ok_or(refused);
        }
    };
    let created = create_job(&state.ctx, &new).await?;
    Ok(created_answer(&created))
}

/// Builds the job that a request describes.
async fn define(state: &ApiState, request: JobRequest, idempotency: Option<Idempotency>) -> Result<NewJob, ApiError> {
    let checked = Checked::read(request, &state.ceilings)?;
    let found = find_task(state, "task", checked.reference(), &checked.task).await?;
    state.schemas.check(&found.version, &checked.parameters)?;
    let now = state.ctx.env.now();
    let task = task_ref(found, checked.reference());
    let on_failure = match &checked.on_failure {
        None => None,
        Some(handler) => {
            let found = find_task(state, "on_failure.task", &handler.reference, &handler.task).await?;
            Some(task_ref(found, &handler.reference))
        }
    };
    let id = JobId::new(now, state.ctx.env.random_u128());
    checked.check_ahead(id, now)?;
    let paused = checked.paused();
    let birth = Birth { id, tenant: state.tenant.clone(), task, on_failure, now };
    let job = state.ctx.parse(checked.into_job(birth));
    let job = job.map_err(|error| crate::api::schedule_refusal("schedule.", &error))?;
    Ok(NewJob { job, paused, idempotency })
}

/// The version that `reference` means, or a refusal that names the field.
pub(super) async fn find_task(
    state: &ApiState,
    field: &str,
    reference: &str,
    name: &TaskName,
) -> Result<Found, ApiError> {
    if let Some(found) = tasks::find(&state.ctx, &state.tenant, name).await? {
        return Ok(found);
    }
    let (detail, hint) = unknown_task(state, reference, name).await?;
    Err(Refusal::new(field, detail).hint(hint).into())
}

/// What a job's row keeps of the version found.
pub(super) fn task_ref(found: Found, reference: &str) -> TaskRef {
    TaskRef {
        name: found.task.map(|task| task.name).unwrap_or_default(),
        reference: reference.to_owned(),
        digest: found.version.digest,
    }
}

fn created_answer(created: &Created) -> Response {
    let body = JobCreated {
        job_id: created.job_id.to_string(),
        next_fires: created.next_fires.iter().copied().map(instant).collect(),
    };
    let location = HeaderValue::from_str(&format!("/v1/jobs/{}", body.job_id));
    let mut response = (StatusCode::CREATED, Json(body)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    action::mark_replayed(&mut response, created.replayed);
    response
}

impl From<CreateError> for ApiError {
    fn from(error: CreateError) -> Self {
        match error {
            CreateError::KeyReused => action::key_reused(),
            CreateError::NeverFires => {
                Refusal::new("schedule.value", "it never fires: no instant that matches lies ahead").into()
            }
            CreateError::Store(error) => error.into(),
        }
    }
}

/// The jobs, newest first.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    tag = "jobs",
    params(
        ("status" = Option<String>, Query, description = "Only jobs in this state: `ACTIVE`, `FINISHED`, `PAUSED` or `DELETED`; all but \
            those that are deleted unless given"),
        ("label" = Option<Vec<String>>, Query, description = "Only jobs with this label, `key=value` or `key`; may be repeated"),
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "The length of a page, from 1 to 1,000; 50 unless given. A filter looks at a bounded \
            number of jobs, so that a page may be short and still have a next one")
    ),
    responses(
        (status = 200, body = Page<JobListItem>),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "A bad cursor")
    )
)]
pub async fn list(State(state): State<ApiState>, uri: Uri) -> Result<Json<Page<JobListItem>>, ApiError> {
    let params = Params::read(&uri, &["status", "label", "cursor", "limit"])?;
    let limit = params.limit()?;
    let status = params.one("status")?.map(|text| one_of("status", &text.to_ascii_uppercase(), &STATES)).transpose()?;
    let labels = params.many("label").map(read_label).collect::<Result<Vec<_>, _>>()?;
    let before = match params.one("cursor")? {
        None => None,
        Some(text) => {
            let position = cursor::decode(cursor::Listing::Jobs, text)?;
            let bytes = position.try_into().map_err(|_| bad_position())?;
            Some(JobId::from_bytes(bytes))
        }
    };
    let keep = |seen: &JobSeen| {
        status.map_or(seen.state != JobState::Deleted, |status| seen.state_name() == status)
            && labels.iter().all(|(key, value)| {
                let found = seen.parsed.job.labels.get(*key);
                found.is_some_and(|found| value.is_none_or(|value| found == value))
            })
    };
    let found = query::jobs(&state.ctx, &state.tenant, before, limit, keep).await?;
    let next_cursor = found.next.map(|id| cursor::encode(cursor::Listing::Jobs, id.as_bytes()));
    Ok(Json(Page { items: found.items.iter().map(views::job_list_item).collect(), next_cursor }))
}

fn read_label(text: &str) -> Result<(&str, Option<&str>), Refusal> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    crate::words::label("label", key)?;
    Ok((key, value))
}

fn bad_position() -> ApiError {
    ApiError::new(Kind::BadCursor, "this cursor names no place in this listing").field("cursor")
}

/// One job: its definition, its state, its next fires and its newest executions.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}",
    tag = "jobs",
    params(("id" = String, Path, description = "`job_…`")),
    responses(
        (status = 200, body = JobView, headers(("ETag" = String, description = "The job's revision, for `If-Match`"))),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn show(State(state): State<ApiState>, Segment(id): Segment, uri: Uri) -> Result<Response, ApiError> {
    Params::read(&uri, &[])?;
    view(&state, &id).await
}

/// The answer that shows a job, with its revision as its tag.
pub async fn view(state: &ApiState, id: &str) -> Result<Response, ApiError> {
    let seen = find(state, id).await?;
    let window = Window { limit: RECENT_EXECUTIONS, ..Window::default() };
    let recent = query::executions(&state.ctx, Listing::OfJob(seen.id), window, |_| true).await?;
    let mut response = Json(views::job(&seen, &seen.next_fires(NEXT_FIRES), &recent.items)).into_response();
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}\"", seen.revision)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

/// The job that a path names.
pub async fn find(state: &ApiState, id: &str) -> Result<JobSeen, ApiError> {
    let job: JobId = id.parse().map_err(|_| unknown(id))?;
    query::job(&state.ctx, &state.tenant, job).await?.ok_or_else(|| unknown(id))
}

/// There is no such job.
pub fn unknown(id: &str) -> ApiError {
    ApiError::not_found(format!("there is no job {}", crate::refusal::quoted(id)))
        .field("id")
        .hint("`compline job list` shows the jobs; an id is `job_` and 26 letters or digits")
}
