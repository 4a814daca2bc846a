//! The server itself: whether it lives, whether it serves, what it counts, what it offers.

use axum::Json;
use axum::extract::State;
use axum::http::{Uri, header};
use axum::response::{IntoResponse, Response};
use compline_core::schedule::zone::tzdb_version;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::dto::{LaneView, NodeView, Page};
use crate::api::problem::{ApiError, Kind, Problem};
use crate::api::query::Params;
use crate::api::{ApiState, fleet_views};
use crate::ops::{fleet, query};

/// That the server is there.
#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`
    status: &'static str,
    /// The version of the zone data that schedules are read with.
    #[schema(example = "2026f")]
    tzdb: &'static str,
}

impl Health {
    fn ok() -> Self {
        Self { status: "ok", tzdb: tzdb_version() }
    }
}

/// Whether the process lives. Asks nothing else.
#[utoipa::path(get, path = "/healthz", tag = "server", responses((status = 200, body = Health)))]
pub async fn healthz() -> Json<Health> {
    Json(Health::ok())
}

/// Whether the server can serve: whether its store answers.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "server",
    responses((status = 200, body = Health), (status = 503, body = Problem, content_type = "application/problem+json"))
)]
pub async fn readyz(State(state): State<ApiState>) -> Result<Json<Health>, ApiError> {
    let answer = query::store_answers(&state.ctx).await;
    answer.map_err(|error| ApiError::new(Kind::Unavailable, error.to_string()))?;
    Ok(Json(Health::ok()))
}

/// What this node counts, as Prometheus text.
#[utoipa::path(get, path = "/metrics", tag = "server", responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn metrics(State(state): State<ApiState>) -> Response {
    const TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    state.ctx.metrics.clock_doubt.set(state.ctx.env.clock_doubt_seconds());
    ([(header::CONTENT_TYPE, TEXT)], state.ctx.metrics.render(&state.ctx.store)).into_response()
}

/// This description.
#[utoipa::path(get, path = "/openapi.json", tag = "server", responses((status = 200, body = Object)))]
pub async fn openapi() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], crate::api::openapi_json()).into_response()
}

/// The nodes of the fleet, as this one sees them: those that last, then those that ended within the last hour while it looked.
#[utoipa::path(get, path = "/v1/nodes", tag = "server", responses((status = 200, body = Page<NodeView>)))]
pub async fn nodes(State(state): State<ApiState>, uri: Uri) -> Result<Json<Page<NodeView>>, ApiError> {
    Params::read(&uri, &[])?;
    let nodes = fleet::nodes(&state.ctx).await?;
    Ok(Json(Page { items: fleet_views::nodes(&nodes, state.ctx.fleet.own()), next_cursor: None }))
}

/// The lanes that a live node serves or that have something waiting.
#[utoipa::path(get, path = "/v1/lanes", tag = "server", responses((status = 200, body = Page<LaneView>)))]
pub async fn lanes(State(state): State<ApiState>, uri: Uri) -> Result<Json<Page<LaneView>>, ApiError> {
    Params::read(&uri, &[])?;
    let lanes = fleet::lanes(&state.ctx).await?;
    let now = state.ctx.env.now();
    let items = lanes.iter().map(|(name, lane)| fleet_views::lane(name, lane, now)).collect();
    Ok(Json(Page { items, next_cursor: None }))
}
