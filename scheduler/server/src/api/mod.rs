//! The HTTP API: routes, strict reading of requests, and one shape for every failure.

mod action;
mod body;
mod cursor;
mod define;
pub mod dto;
mod fleet_views;
mod patch;
mod problem;
mod query;
mod routes;
#[cfg(test)]
mod tests;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use compline_core::ids::TenantId;
use compline_runtime::Compiler;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub use define::{cron_refusal, one_of, read_duration, read_memory, schedule_refusal};
pub use problem::{ApiError, Kind, Problem};

use crate::config::Ceilings;
use crate::ctx::Ctx;
use crate::ops::schema::SchemaCache;
use crate::ops::tasks::Pushes;

/// What the handlers share.
#[derive(Clone)]
pub struct ApiState {
    ctx: Arc<Ctx>,
    compiler: Compiler,
    ceilings: Ceilings,
    pushes: Arc<Pushes>,
    schemas: Arc<SchemaCache>,
    tenant: TenantId,
}

impl ApiState {
    /// The state of a server on this store.
    pub fn new(ctx: Arc<Ctx>, compiler: Compiler, ceilings: Ceilings) -> Self {
        let tenant = TenantId::default_tenant();
        Self { ctx, compiler, ceilings, pushes: Arc::default(), schemas: Arc::default(), tenant }
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Compline",
        description = "Upload tasks, schedule them as jobs, and see them run. Instants are RFC 3339 in UTC; durations are written like \
                       `1h30m`. Every failure is a problem document (RFC 9457). A key that appears twice in one JSON object is refused."
    ),
    tags(
        (name = "tasks", description = "Components, by name, tag and digest"),
        (name = "jobs", description = "Tasks bound to schedules"),
        (name = "executions", description = "What ran, runs and will run"),
        (name = "schedules", description = "What a schedule will do"),
        (name = "server", description = "The server itself")
    )
)]
struct Described;

/// The whole API.
pub fn router(state: ApiState) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(problem::panicked))
        .with_state(state)
}

/// The API's description, as `/openapi.json` serves it.
pub fn openapi_json() -> String {
    let (_, mut described) = routes().split_for_parts();
    described.info.version = env!("CARGO_PKG_VERSION").to_owned();
    // A description made of strings always has a JSON form.
    described.to_pretty_json().unwrap_or_default()
}

fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(routes::tasks::push, routes::tasks::list))
        .routes(routes!(routes::tasks::show))
        .routes(routes!(routes::tasks::component))
        .routes(routes!(routes::jobs::create, routes::jobs::list))
        .routes(routes!(routes::jobs::show, routes::change::update, routes::change::delete))
        .routes(routes!(routes::change::pause))
        .routes(routes!(routes::change::resume))
        .routes(routes!(routes::change::trigger))
        .routes(routes!(routes::change::backfill))
        .routes(routes!(routes::executions::of_job))
        .routes(routes!(routes::ledger::of_job))
        .routes(routes!(routes::executions::list))
        .routes(routes!(routes::executions::show))
        .routes(routes!(routes::executions::logs))
        .routes(routes!(routes::dead::redrive_one))
        .routes(routes!(routes::dead::list))
        .routes(routes!(routes::dead::redrive))
        .routes(routes!(routes::dead::drop))
        .routes(routes!(routes::executions::cancel))
        .routes(routes!(routes::schedules::preview))
        .routes(routes!(routes::server::nodes))
        .routes(routes!(routes::server::lanes))
        .routes(routes!(routes::server::healthz))
        .routes(routes!(routes::server::readyz))
        .routes(routes!(routes::server::metrics))
        .routes(routes!(routes::server::openapi))
}

async fn unknown_route(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(Kind::UnknownRoute, format!("there is no route {method} {path}"))
        .hint("/openapi.json lists the routes; none ends with a slash")
}

async fn method_not_allowed(method: Method, uri: Uri) -> ApiError {
    let path: String = uri.path().chars().take(200).collect();
    ApiError::new(Kind::MethodNotAllowed, format!("{path} takes no {method}"))
        .hint("the header Allow lists what it takes")
}
