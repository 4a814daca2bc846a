//! Tasks: pushing components and finding them again.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};

use super::Answer;
use crate::api::body::{self};
use crate::api::dto::{Page, TaskView};
use crate::api::problem::{ApiError, Kind, Problem};
use crate::api::query::{Params, Segment};
use crate::api::{ApiState, cursor, views};
use crate::ops::tasks::{self, Push, PushError, Pushed, TAGS_MAX};
use crate::refusal::{Refusal, near, quoted};
use crate::words::{self, TaskName};

/// Pushes a component. The same bytes again are the same version: nothing is compiled or stored a second time.
#[utoipa::path(
    post,
    path = "/v1/tasks",
    tag = "tasks",
    params(
        ("name" = String, Query, description = "The task that the component is a version of"),
        ("tag" = Option<Vec<String>>, Query, description = "Tags that point at this version from now on; may be repeated")
    ),
    request_body(content = Vec<u8>, content_type = "application/wasm", description = "The component, at most 64 MiB"),
    responses(
        (status = 201, body = TaskView, description = "It is stored and ready to run"),
        (status = 202, body = TaskView, description = "It still compiles: `Location` shows how it went"),
        (status = 413, body = Problem, content_type = "application/problem+json"),
        (status = 415, body = Problem, content_type = "application/problem+json"),
        (status = 422, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn push(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ApiError> {
    let params = Params::read(&uri, &["name", "tag"])?;
    let name = params.one("name")?.ok_or_else(|| {
        Refusal::new("name", "the task has no name").hint("add `?name=…` to the address, such as `?name=billing`")
    })?;
    words::task_name("name", name)?;
    let tags: Vec<String> = params.many("tag").map(str::to_owned).collect();
    tags.iter().try_for_each(|tag| words::tag("tag", tag))?;
    expect_component(&headers)?;
    let component = body::read("a component", &headers, body, state.ceilings.component_bytes).await?;
    let push = Push { tenant: state.tenant.clone(), name: name.to_owned(), tags, component };
    match tasks::push(&state.ctx, &state.compiler, &state.pushes, push).await? {
        Pushed::Ready(found) => Ok(located(StatusCode::CREATED, views::task(&found))),
        Pushed::Compiling(info) => Ok(located(StatusCode::ACCEPTED, views::pending_task(name, &info, None))),
    }
}

fn located(status: StatusCode, view: TaskView) -> Response {
    let location = HeaderValue::from_str(&format!("/v1/tasks/{}", view.digest));
    let mut response = (status, Json(view)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// A component is bytes, and nothing else: a form or JSON around it is a mistake that is better named at once.
fn expect_component(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(value) = headers.get(header::CONTENT_TYPE) else { return Ok(()) };
    let value = value.to_str().unwrap_or("");
    let essence = value.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    match essence.as_str() {
        // curl's --data-binary says the third unless it is told otherwise.
        "application/wasm" | "application/octet-stream" | "application/x-www-form-urlencoded" => Ok(()),
        _ => Err(ApiError::new(Kind::UnsupportedMediaType, format!("{} is not a component", quoted(value)))
            .hint("send the component's bytes as the body, with `Content-Type: application/wasm`")),
    }
}

impl From<PushError> for ApiError {
    fn from(error: PushError) -> Self {
        let detail = error.to_string();
        match error {
            PushError::Store(error) => error.into(),
            PushError::Stopped => Self::new(Kind::Unavailable, detail).hint("try again"),
            PushError::TooManyTags => Refusal::new("tag", detail)
                .hint(format!("a task has at most {TAGS_MAX} tags: use one that is there"))
                .into(),
            PushError::Compile(error) if error.is_host_fault() => Self::new(Kind::Internal, detail).hint("try again"),
            PushError::Refused(_) | PushError::Compile(_) | PushError::Schema(_) => {
                Self::new(Kind::RefusedTask, detail).field("body")
            }
        }
    }
}

/// The tasks by name, each with the version pushed last.
#[utoipa::path(
    get,
    path = "/v1/tasks",
    tag = "tasks",
    params(
        ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
        ("limit" = Option<u32>, Query, description = "The length of a page, from 1 to 1,000; 50 unless given")
    ),
    responses(
        (status = 200, body = Page<TaskView>),
        (status = 400, body = Problem, content_type = "application/problem+json", description = "A bad cursor")
    )
)]
pub async fn list(State(state): State<ApiState>, uri: Uri) -> Result<Json<Page<TaskView>>, ApiError> {
    let params = Params::read(&uri, &["cursor", "limit"])?;
    let limit = params.limit()?;
    let after = match params.one("cursor")? {
        None => None,
        Some(text) => {
            let position = cursor::decode(cursor::Listing::Tasks, text)?;
            let name = String::from_utf8(position).ok().filter(|name| words::task_name("cursor", name).is_ok());
            Some(name.ok_or_else(|| ApiError::new(Kind::BadCursor, "this cursor names no task").field("cursor"))?)
        }
    };
    let (found, next) = tasks::list(&state.ctx, &state.tenant, after.as_deref(), limit).await?;
    let next_cursor = next.map(|name| cursor::encode(cursor::Listing::Tasks, name.as_bytes()));
    Ok(Json(Page { items: found.iter().map(views::task).collect(), next_cursor }))
}

/// One version of a task, with its schema and its task's other versions.
#[utoipa::path(
    get,
    path = "/v1/tasks/{ref}",
    tag = "tasks",
    params(("ref" = String, Path, description = "`name` (the version pushed last), `name@tag` or `sha256:…`")),
    responses(
        (status = 200, body = TaskView),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn show(
    State(state): State<ApiState>,
    Segment(reference): Segment,
    uri: Uri,
) -> Result<Answer<TaskView>, ApiError> {
    Params::read(&uri, &[])?;
    let name = read_reference(&reference)?;
    if let Some(found) = tasks::find(&state.ctx, &state.tenant, &name).await? {
        return Ok((StatusCode::OK, Json(views::task_in_full(&found))));
    }
    if let Some(push) = state.pushes.late(&name) {
        return Ok((StatusCode::OK, Json(views::late_push(&push))));
    }
    let (detail, hint) = unknown_task(&state, &reference, &name).await?;
    Err(ApiError::not_found(detail).field("ref").hint(hint))
}

/// The component of a version, as it was pushed.
#[utoipa::path(
    get,
    path = "/v1/tasks/{ref}/component",
    tag = "tasks",
    params(("ref" = String, Path, description = "`name` (the version pushed last), `name@tag` or `sha256:…`")),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/wasm"),
        (status = 404, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn component(
    State(state): State<ApiState>,
    Segment(reference): Segment,
    uri: Uri,
) -> Result<Response, ApiError> {
    Params::read(&uri, &[])?;
    let name = read_reference(&reference)?;
    if let Some(found) = tasks::find(&state.ctx, &state.tenant, &name).await?
        && let Some(component) = tasks::component(&state.ctx, &found).await?
    {
        return Ok(([(header::CONTENT_TYPE, "application/wasm")], component).into_response());
    }
    let (detail, hint) = unknown_task(&state, &reference, &name).await?;
    Err(ApiError::not_found(detail).field("ref").hint(hint))
}

/// A path that can't name a task names none.
fn read_reference(reference: &str) -> Result<TaskName, ApiError> {
    TaskName::parse("ref", reference)
        .map_err(|refusal| ApiError::not_found(refusal.detail).field("ref").hint(refusal.hint.unwrap_or_default()))
}

/// What to say about a task that is not there.
pub async fn unknown_task(state: &ApiState, reference: &str, name: &TaskName) -> Result<(String, String), ApiError> {
    let detail = format!("there is no task {}", quoted(reference));
    let hint = match name {
        TaskName::Digest(_) => "`compline task list` shows what was pushed".to_owned(),
        TaskName::Named { name, tag } => {
            let latest = TaskName::Named { name: name.clone(), tag: None };
            let known = tasks::find(&state.ctx, &state.tenant, &latest).await?;
            match (known.and_then(|found| found.task), tag) {
                (Some(task), Some(_)) if task.tags.is_empty() => format!("the task {name} has no tags"),
                (Some(task), Some(_)) => {
                    let tags: Vec<&str> = task.tags.keys().map(String::as_str).take(10).collect();
                    format!("the task {name} has the tags {}", tags.join(", "))
                }
                _ => {
                    let names = tasks::names(&state.ctx, &state.tenant).await?;
                    match near(name, names.iter().map(String::as_str)) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "push it first: `compline task push FILE --name NAME`".to_owned(),
                    }
                }
            }
        }
    };
    Ok((detail, hint))
}
