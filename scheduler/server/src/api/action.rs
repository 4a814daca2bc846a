//! What all requests share that change something: the key that makes a repeat safe, and bodies that may be left out.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::body;
use super::problem::{ApiError, Kind};
use crate::json;
use crate::ops::idempotency::Idempotency;

/// The longest idempotency key.
const KEY_CHARS_MAX: usize = 255;
const KEY_HEADER: &str = "idempotency-key";
const REPLAYED_HEADER: &str = "idempotent-replayed";

/// The key that makes a repeat of this request safe, if it has one.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let mut values = headers.get_all(KEY_HEADER).iter();
    let Some(value) = values.next() else { return Ok(None) };
    let refuse = |detail: &str| {
        Err(ApiError::new(Kind::BadHeader, detail)
            .field("Idempotency-Key")
            .hint("send one key of 1 to 255 printable ASCII characters, such as a UUID"))
    };
    if values.next().is_some() {
        return refuse("the key is given twice");
    }
    let Ok(key) = value.to_str() else { return refuse("the key has characters that do not print") };
    match key.len() {
        0 => refuse("the key is empty"),
        1..=KEY_CHARS_MAX => Ok(Some(key.to_owned())),
        length => refuse(&format!("the key has {length} characters, and at most {KEY_CHARS_MAX} are accepted")),
    }
}

/// By what a repeated request is recognised: its route and the bytes of its body.
pub fn idempotency(key: String, path: &str, body: &[u8]) -> Idempotency {
    let mut hasher = Sha256::new();
    hasher.update(path.as_bytes());
    hasher.update([0]);
    hasher.update(body);
    Idempotency { key, body_hash: hasher.finalize().into() }
}

/// An idempotency key came back with another request.
pub fn key_reused() -> ApiError {
    ApiError::new(Kind::KeyReused, "another request came with this key before")
        .field("Idempotency-Key")
        .hint("use a new key for a new request, or repeat the first one without a change")
}

/// Says in an answer whether an earlier request with the same key did what was asked.
pub fn mark_replayed(response: &mut Response, replayed: bool) {
    if replayed {
        response.headers_mut().insert(REPLAYED_HEADER, HeaderValue::from_static("true"));
    }
}

/// Reads a body that may be left out: it is the same as `{}` then.
pub async fn optional_json<T: json::Body + Default>(headers: &HeaderMap, body: Body) -> Result<(T, Bytes), ApiError> {
    let bytes = body::read("a JSON body", headers, body, body::JSON_BYTES_MAX).await?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok((T::default(), Bytes::new()));
    }
    body::expect_json(headers)?;
    Ok((body::parse(&bytes)?, bytes))
}
