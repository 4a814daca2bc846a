//! Changes of jobs: edit, pause, resume, delete, and runs outside of their schedule.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use compline_core::Timestamp;
use compline_core::ids::JobId;
use compline_core::job::TaskRef;
use compline_core::schedule::ScheduleKind;
use compline_core::time;
use compline_store::tables::request::Made;

use super::jobs;
use crate::api::define::{Birth, Checked, one_of};
use crate::api::dto::{BackfillRequest, BackfillView, ExecutionView, JobDeleted, JobView, Nothing, instant};
use crate::api::problem::{ApiError, Kind, Problem};
use crate::api::query::{Params, Segment};
use crate::api::{ApiState, action, body, patch, views};
use crate::ctx::ParsedJob;
use crate::ops::change::{Change, ChangeError, Changed, JobRequest as Subject, change};
use crate::ops::idempotency::{Earlier, Idempotency, earlier};
use crate::ops::query::{self, JobSeen};
use crate::ops::tasks::{self, Found};
use crate::ops::trigger::{self, BACKFILL_SLOTS_MAX, BackfillError, Stretch};
use crate::passes::sweep;
use crate::refusal::{Refusal, quoted};
use crate::words::TaskName;

/// So often an edit is made anew because another one came first.
const EDIT_TRIES_MAX: u32 = 5;

/// Edits a job: what is not named stays, what is `null` has its default again. No slot that is over runs by the new definition, and a planned
/// slot of the old schedule goes. What is queued or runs keeps what it has. A paused job stays paused.
#[utoipa::path(
    patch,
    path = "/v1/jobs/{id}",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("If-Match" = Option<String>, Header, description = "The revision that is to be edited, as `ETag` gave it"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat recognisable for 24 hours")
    ),
    request_body(content = Object, content_type = "application/json", description = "Fields of a `JobRequest`. The fields of `schedule` \
        (unless its `type` changes), `misfire`, `retry` (unless its rule changes), `limits`, `on_failure` and `labels` are edited one by one"),
    responses(
        (status = 200, body = JobView, headers(("ETag" = String, description = "The new revision"))),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is deleted, or is being edited by others"),
        (status = 412, body = Problem, content_type = "application/problem+json", description = "It has another revision"),
        (status = 422, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn update(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    Params::read(&uri, &[])?;
    let key = action::idempotency_key(&headers)?;
    let expected = expected_revision(&headers)?;
    body::expect_json(&headers)?;
    let edit = body::read("a JSON body", &headers, body, body::JSON_BYTES_MAX).await?;
    let idempotency = key.map(|key| action::idempotency(key, uri.path(), &edit));
    if let Some(replay) = replayed(&state, idempotency.as_ref()).await? {
        return replay.with_view(&state, &id).await;
    }
    for _ in 0..EDIT_TRIES_MAX {
        let seen = jobs::find(&state, &id).await?;
        if expected.is_some_and(|expected| expected != seen.revision) {
            return Err(ApiError::new(Kind::Outdated, format!("the job is at revision {} by now", seen.revision))
                .field("If-Match")
                .hint("look at the job again, and edit what it is now"));
        }
        let new = redefine(&state, &seen, &edit).await?;
        let subject = Subject { tenant: &state.tenant, id: seen.id, idempotency: idempotency.as_ref() };
        match change(&state.ctx, subject, Change::Edit { base: seen.revision, new: &new }).await {
            Err(ChangeError::Moved(_)) => {}
            other => return other.map_err(|error| refused(&id, error))?.with_view(&state, &id).await,
        }
    }
    Err(ApiError::new(Kind::WrongState, "others edit this job at the same moment, again and again").hint("try again"))
}

/// What an earlier request with this key did, looked up before anything is checked: what it asked for may be wrong by now.
async fn replayed(state: &ApiState, idempotency: Option<&Idempotency>) -> Result<Option<Changed>, ApiError> {
    let (ctx, tenant) = (&state.ctx, &state.tenant);
    let now = ctx.env.now();
    let known = ctx.store.transact(|tx| async move { earlier(&tx, tenant, idempotency, now).await }).await?.value;
    match known {
        None => Ok(None),
        Some(Earlier::Same(Made::Job(_))) => Ok(Some(Changed { replayed: true, ..Changed::default() })),
        Some(_) => Err(action::key_reused()),
    }
}

impl Changed {
    async fn with_view(self, state: &ApiState, id: &str) -> Result<Response, ApiError> {
        let mut response = jobs::view(state, id).await?;
        action::mark_replayed(&mut response, self.replayed);
        Ok(response)
    }
}

fn expected_revision(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let Some(value) = headers.get(header::IF_MATCH) else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    if text == "*" {
        return Ok(None);
    }
    let number = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text).parse();
    number.map(Some).map_err(|_| {
        ApiError::new(Kind::BadHeader, format!("{} is not a revision", quoted(text)))
            .field("If-Match")
            .hint("send one revision, as the header `ETag` of the job gives it")
    })
}

/// The job that an edit makes of another.
async fn redefine(state: &ApiState, seen: &JobSeen, edit: &[u8]) -> Result<ParsedJob, ApiError> {
    let old = &seen.parsed.job;
    let patch::Patched { request, names_task, names_on_failure } = patch::overlay(&views::request(old), edit)?;
    let checked = Checked::read(request, &state.ceilings)?;
    let now = state.ctx.env.now();
    if *checked.spec() != old.schedule {
        checked.check_to_come(old.id, now)?;
    }
    let found = match names_task {
        true => Some(jobs::find_task(state, "task", checked.reference(), &checked.task).await?),
        false => version_of(state, &old.task).await?,
    };
    if let Some(found) = &found {
        state.schemas.check(&found.version, &checked.parameters)?;
    }
    let task = match found {
        Some(found) if names_task => jobs::task_ref(found, checked.reference()),
        _ => old.task.clone(),
    };
    let on_failure = match (&checked.on_failure, &old.on_failure) {
        (None, _) => None,
        (Some(_), Some(known)) if !names_on_failure => Some(known.task.clone()),
        (Some(handler), _) => {
            let found = jobs::find_task(state, "on_failure.task", &handler.reference, &handler.task).await?;
            Some(jobs::task_ref(found, &handler.reference))
        }
    };
    let birth = Birth { id: old.id, tenant: old.tenant.clone(), task, on_failure, now: old.created_at };
    state.ctx.parse(checked.into_job(birth)).map_err(|error| crate::api::schedule_refusal("schedule.", &error).into())
}

/// The version that a job runs already. Where it is gone, its parameters are not checked against it.
async fn version_of(state: &ApiState, task: &TaskRef) -> Result<Option<Found>, ApiError> {
    let name = TaskName::parse("task", &task.digest.to_string())?;
    Ok(tasks::find(&state.ctx, &state.tenant, &name).await?)
}

/// Pauses a job: no slot of its schedule is queued until it is resumed. What is queued or runs goes on. A job that is paused stays so.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/pause",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat recognisable for 24 hours")
    ),
    responses(
        (status = 200, body = JobView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is deleted")
    )
)]
pub async fn pause(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (job, key) = subject(&id, &uri, &headers, body).await?;
    changed(&state, &id, job, key.as_ref(), Change::Pause).await
}

/// Resumes a job: its schedule goes on with the first slot that is still to come. Nothing fires at once. A job that is not paused stays as it is.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/resume",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat recognisable for 24 hours")
    ),
    responses(
        (status = 200, body = JobView),
        (status = 404, body = Problem, content_type = "application/problem+json"),
        (status = 409, body = Problem, content_type = "application/problem+json", description = "It is deleted")
    )
)]
pub async fn resume(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (job, key) = subject(&id, &uri, &headers, body).await?;
    changed(&state, &id, job, key.as_ref(), Change::Resume).await
}

/// Changes a job, and shows it.
async fn changed(
    state: &ApiState,
    id: &str,
    job: JobId,
    key: Option<&Idempotency>,
    what: Change<'_>,
) -> Result<Response, ApiError> {
    let subject = Subject { tenant: &state.tenant, id: job, idempotency: key };
    let changed = change(&state.ctx, subject, what).await.map_err(|error| refused(id, error))?;
    changed.with_view(state, id).await
}

/// The job of a request without a body, and the request's key.
async fn subject(
    id: &str,
    uri: &Uri,
    headers: &HeaderMap,
    body: Body,
) -> Result<(JobId, Option<Idempotency>), ApiError> {
    Params::read(uri, &[])?;
    let key = action::idempotency_key(headers)?;
    let (Nothing {}, bytes) = action::optional_json(headers, body).await?;
    let job = id.parse().map_err(|_| jobs::unknown(id))?;
    Ok((job, key.map(|key| action::idempotency(key, uri.path(), &bytes))))
}

/// Runs a job once, now, paused or not. Its schedule stays as it is.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/trigger",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat safe for 24 hours: it is answered with the execution of the \
            first request")
    ),
    responses(
        (status = 201, body = ExecutionView, headers(("Location" = String, description = "The execution's address"))),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such job, or it is deleted")
    )
)]
pub async fn trigger(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let (subject, key) = subject(&id, &uri, &headers, body).await?;
    let subject = Subject { tenant: &state.tenant, id: subject, idempotency: key.as_ref() };
    let triggered = trigger::trigger(&state.ctx, subject).await.map_err(|error| not_run(&id, error))?;
    let seen = query::execution(&state.ctx, &state.tenant, triggered.execution).await?;
    // A replay may come when its execution is history that was dropped.
    let seen = seen.ok_or_else(|| ApiError::not_found(format!("{} is no longer kept", triggered.execution)))?;
    let mut response = (StatusCode::CREATED, Json(views::execution(&seen))).into_response();
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/executions/{}", triggered.execution)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    action::mark_replayed(&mut response, triggered.replayed);
    Ok(response)
}

/// Runs the slots of a stretch of the past, each as an execution of its own, oldest first, whether they ran before or not. The schedule stays as it
/// is. At most 10,000 slots. Broken off, the same request with the same key makes what is missing.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/backfill",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("Idempotency-Key" = Option<String>, Header, description = "Makes a repeat safe for 24 hours")
    ),
    request_body = BackfillRequest,
    responses(
        (status = 202, body = BackfillView),
        (status = 404, body = Problem, content_type = "application/problem+json", description = "There is no such job, or it is deleted"),
        (status = 422, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn backfill(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    Params::read(&uri, &[])?;
    let key = action::idempotency_key(&headers)?;
    let (request, bytes) = body::read_json::<BackfillRequest>(&headers, body).await?;
    let key = key.map(|key| action::idempotency(key, uri.path(), &bytes));
    let stretch = stretch(&request, state.ctx.env.now())?;
    let seen = jobs::find(&state, &id).await?;
    if seen.parsed.job.schedule.kind != ScheduleKind::Cron {
        return Err(Refusal::new("id", "only a CRON job has slots to fill").hint("trigger the job").into());
    }
    let (ctx, tenant) = (state.ctx.clone(), state.tenant.clone());
    // It goes on to its end if the client loses patience.
    let filled = tokio::spawn(async move {
        let subject = Subject { tenant: &tenant, id: seen.id, idempotency: key.as_ref() };
        trigger::backfill(&ctx, subject, stretch).await
    });
    let filled = filled.await.map_err(broken)?.map_err(|error| match error {
        BackfillError::Change(error) => not_run(&id, error),
        BackfillError::TooMany => {
            Refusal::new("to", format!("there are more than {BACKFILL_SLOTS_MAX} slots until then"))
                .hint("fill the stretch in several requests")
                .into()
        }
    })?;
    let view = BackfillView {
        job_id: id,
        executions: filled.slots as u64,
        first_slot: filled.first.map(instant),
        last_slot: filled.last.map(instant),
    };
    let mut response = (StatusCode::ACCEPTED, Json(view)).into_response();
    action::mark_replayed(&mut response, filled.replayed);
    Ok(response)
}

fn stretch(request: &BackfillRequest, now: Timestamp) -> Result<Stretch, Refusal> {
    let read = |name: &str, text: &str| {
        time::instant::parse(text).map(Timestamp::from).map_err(|error| {
            Refusal::new(name, format!("{} is not an instant: {}", quoted(&error.text), error.detail)).hint(error.hint)
        })
    };
    let stretch = Stretch { from: read("from", &request.from)?, to: read("to", &request.to)? };
    if stretch.from >= stretch.to {
        return Err(
            Refusal::new("to", "it is not after `from`").hint("slots from `from` on and before `to` are filled")
        );
    }
    if stretch.to > now {
        return Err(Refusal::new("to", format!("{} is still to come", quoted(&request.to)))
            .hint("only slots of the past are filled; the schedule runs the others"));
    }
    Ok(stretch)
}

/// Deletes a job. From the answer on nothing of it is queued or claimed: what waited is cancelled; what runs goes on to its end, or is told to stop.
/// Its history stays readable. Repeating it changes nothing.
#[utoipa::path(
    delete,
    path = "/v1/jobs/{id}",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "`job_…`"),
        ("running" = Option<String>, Query, description = "What becomes of what runs: `finish`, unless given, or `stop`")
    ),
    responses(
        (status = 200, body = JobDeleted),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn delete(
    State(state): State<ApiState>,
    Segment(id): Segment,
    uri: Uri,
) -> Result<Json<JobDeleted>, ApiError> {
    let params = Params::read(&uri, &["running"])?;
    let running = params.one("running")?.map(|text| one_of("running", text, &["finish", "stop"])).transpose()?;
    let stop_running = running == Some("stop");
    let job: JobId = id.parse().map_err(|_| jobs::unknown(&id))?;
    let subject = Subject { tenant: &state.tenant, id: job, idempotency: None };
    change(&state.ctx, subject, Change::Delete).await.map_err(|error| refused(&id, error))?;
    let ctx = state.ctx.clone();
    // It goes on to its end if the client loses patience.
    let swept = tokio::spawn(async move { sweep::sweep(&ctx, job, stop_running).await });
    let swept = swept.await.map_err(broken)??;
    Ok(Json(JobDeleted {
        job_id: id,
        state: "DELETED".to_owned(),
        cancelled: swept.cancelled as u64,
        stopping: swept.told as u64,
    }))
}

fn broken(error: tokio::task::JoinError) -> ApiError {
    ApiError::new(Kind::Internal, format!("the work broke off: {error}"))
}

fn refused(id: &str, error: ChangeError) -> ApiError {
    match error {
        ChangeError::Unknown => jobs::unknown(id),
        ChangeError::Deleted => ApiError::new(Kind::WrongState, format!("{id} is DELETED: it can only be looked at"))
            .hint("create another job with the same definition"),
        ChangeError::Moved(revision) => {
            ApiError::new(Kind::Outdated, format!("the job is at revision {revision} by now"))
        }
        ChangeError::KeyReused => action::key_reused(),
        ChangeError::Store(error) => error.into(),
    }
}

/// A job that is deleted has no run to ask for.
fn not_run(id: &str, error: ChangeError) -> ApiError {
    match error {
        ChangeError::Deleted => ApiError::not_found(format!("{id} is DELETED: it runs no more"))
            .field("id")
            .hint("create another job with the same definition"),
        other => refused(id, other),
    }
}
