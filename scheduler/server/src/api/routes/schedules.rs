//! What a schedule will do.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Uri};

use crate::api::ApiState;
use crate::api::body::read_json;
use crate::api::dto::{PreviewRequest, PreviewView};
use crate::api::problem::{ApiError, Problem};
use crate::api::query::Params;
use crate::preview;

/// The next fires of a cron expression, before anything is saved.
#[utoipa::path(
    post,
    path = "/v1/schedules:preview",
    tag = "schedules",
    request_body = PreviewRequest,
    responses(
        (status = 200, body = PreviewView),
        (status = 422, body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn preview(
    State(state): State<ApiState>,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<PreviewView>, ApiError> {
    Params::read(&uri, &[])?;
    let (request, _) = read_json::<PreviewRequest>(&headers, body).await?;
    Ok(Json(preview::preview(request, state.ctx.env.now().to_utc())?))
}
