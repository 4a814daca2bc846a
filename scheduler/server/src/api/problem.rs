//! Every way in which a request fails, and its status: the one place. Answers are problem documents (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use compline_store::StoreError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::refusal::Refusal;

/// The media type of a problem document.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// Why a request failed (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Names the kind of problem; stable, for programs.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem in words.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What is wrong with this very request.
    pub detail: String,
    /// The path of the field at fault, such as `schedule.value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The limit that was passed, in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_bytes: Option<u64>,
}

/// The kinds of failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The body is not JSON.
    BrokenJson,
    /// There should be a body.
    EmptyBody,
    /// The body ended before it was whole.
    BrokenBody,
    /// A cursor that this server did not give out.
    BadCursor,
    /// A header that can't be.
    BadHeader,
    /// No such thing.
    NotFound,
    /// No such route.
    UnknownRoute,
    /// The route has no such method.
    MethodNotAllowed,
    /// The state of what is named does not allow that.
    WrongState,
    /// What is named is not what the caller last saw.
    Outdated,
    /// Another request with the same idempotency key is in progress.
    InFlight,
    /// The body is larger than its limit.
    TooLarge,
    /// The body is declared to be something that is not accepted here.
    UnsupportedMediaType,
    /// A field can't be as it is.
    InvalidField,
    /// An idempotency key came back with another request.
    KeyReused,
    /// A component that can't be a task.
    RefusedTask,
    /// The store does not serve at the moment.
    Unavailable,
    /// Our fault.
    Internal,
}

impl Kind {
    fn row(self) -> (StatusCode, &'static str, &'static str) {
        match self {
            Self::BrokenJson => (StatusCode::BAD_REQUEST, "broken-json", "The body is not JSON"),
            Self::EmptyBody => (StatusCode::BAD_REQUEST, "empty-body", "The body is empty"),
            Self::BrokenBody => (StatusCode::BAD_REQUEST, "broken-body", "The body did not arrive whole"),
            Self::BadCursor => (StatusCode::BAD_REQUEST, "bad-cursor", "The cursor is not one of this server's"),
            Self::BadHeader => (StatusCode::BAD_REQUEST, "bad-header", "A header is not acceptable"),
            Self::NotFound => (StatusCode::NOT_FOUND, "not-found", "There is no such thing"),
            Self::UnknownRoute => (StatusCode::NOT_FOUND, "unknown-route", "There is no such route"),
            Self::MethodNotAllowed => {
                (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", "The route has no such method")
            }
            Self::WrongState => (StatusCode::CONFLICT, "wrong-state", "Its state does not allow that"),
            Self::Outdated => (StatusCode::PRECONDITION_FAILED, "outdated", "It has changed since"),
            Self::InFlight => (StatusCode::CONFLICT, "in-flight", "The first request is still in progress"),
            Self::TooLarge => (StatusCode::PAYLOAD_TOO_LARGE, "too-large", "The body is too large"),
            Self::UnsupportedMediaType => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", "The media type is not accepted here")
            }
            Self::InvalidField => (StatusCode::UNPROCESSABLE_ENTITY, "invalid-field", "A field is not acceptable"),
            Self::KeyReused => {
                (StatusCode::UNPROCESSABLE_ENTITY, "idempotency-key-reused", "The idempotency key is taken")
            }
            Self::RefusedTask => (StatusCode::UNPROCESSABLE_ENTITY, "refused-task", "The component can't be a task"),
            Self::Unavailable => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "The store does not serve now"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal", "The server failed"),
        }
    }
}

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    kind: Kind,
    detail: String,
    field: Option<String>,
    hint: Option<String>,
    limit_bytes: Option<u64>,
}

impl ApiError {
    /// A failure of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), field: None, hint: None, limit_bytes: None }
    }

    /// Names the field at fault.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Says what to do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Something is larger than it may be.
    pub fn too_large(what: &str, limit_bytes: u64) -> Self {
        let mut error = Self::new(Kind::TooLarge, format!("{what} may have at most {limit_bytes} bytes"));
        error.limit_bytes = Some(limit_bytes);
        error
    }

    /// There is no such thing.
    pub fn not_found(what: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, what)
    }

    /// What kind of failure it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The document that the client gets.
    pub fn problem(self) -> Problem {
        let (status, slug, title) = self.kind.row();
        Problem {
            kind: format!("urn:compline:problem:{slug}"),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: self.detail,
            field: self.field,
            hint: self.hint,
            limit_bytes: self.limit_bytes,
        }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self { hint: refusal.hint, ..Self::new(Kind::InvalidField, refusal.detail).field(refusal.field) }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_)
            | StoreError::Conflict
            | StoreError::TooOld
            | StoreError::Transient(_)
            | StoreError::CommitUnknown(_) => Self::new(Kind::Unavailable, error.to_string())
                .hint("try again; a POST with the same Idempotency-Key is safe to repeat"),
            StoreError::TooLarge { .. } | StoreError::Unreadable { .. } | StoreError::StampedUnread { .. } => {
                tracing::error!(%error, "a request met a fault of the store");
                Self::new(Kind::Internal, error.to_string())
            }
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let retry = self.kind == Kind::Unavailable;
        let (status, ..) = self.kind.row();
        // A struct of strings and numbers always has a JSON form.
        let body = serde_json::to_vec(&self.problem()).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response();
        if retry {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// What a client gets when a handler panicked.
pub fn panicked(payload: Box<dyn std::any::Any + Send + 'static>) -> Response {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = text.unwrap_or("without a message"), "a request handler panicked");
    ApiError::new(Kind::Internal, "the server failed on this request; its log says why").into_response()
}
