//! Request bodies: counted while they arrive, and read as JSON without surprises.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

use super::problem::{ApiError, Kind};
use crate::json;

/// The largest JSON body.
pub const JSON_BYTES_MAX: u64 = 1 << 20;
/// After a refusal so much more is read and dropped, so that a client that is still sending gets to hear the answer.
const DRAIN_BYTES_MAX: u64 = 16 << 20;
const DRAIN_TIME_MAX: Duration = Duration::from_secs(5);
/// A client that sends nothing for so long is waiting for the answer.
const DRAIN_IDLE_MAX: Duration = Duration::from_millis(500);

/// Reads a whole body of at most `limit` bytes. What counts is what arrives, whatever `Content-Length` says.
pub async fn read(what: &str, headers: &HeaderMap, body: Body, limit: u64) -> Result<Bytes, ApiError> {
    let mut chunks = Chunks::new(what, headers, body, limit).await?;
    let mut whole = BytesMut::with_capacity(chunks.size_hint().min(1 << 20) as usize);
    while let Some(chunk) = chunks.next().await? {
        whole.extend_from_slice(&chunk);
    }
    Ok(whole.freeze())
}

/// A body that is read piece by piece and counted.
pub struct Chunks {
    what: String,
    body: Body,
    limit: u64,
    seen: u64,
    declared: Option<u64>,
}

impl Chunks {
    /// Refuses at once what is declared to be too large.
    pub async fn new(what: &str, headers: &HeaderMap, body: Body, limit: u64) -> Result<Self, ApiError> {
        let declared = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let mut chunks = Self { what: what.to_owned(), body, limit, seen: 0, declared };
        if declared.is_some_and(|bytes| bytes > limit) {
            // A client that asks first has sent nothing yet, and reading would tell it to go on.
            let asks_first = headers.contains_key(header::EXPECT);
            return Err(if asks_first { chunks.too_large() } else { chunks.refuse().await });
        }
        Ok(chunks)
    }

    /// How many bytes are announced.
    pub fn size_hint(&self) -> u64 {
        self.declared.unwrap_or(0)
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let frame = frame.map_err(|error| {
                ApiError::new(Kind::BrokenBody, format!("the body could not be read to its end: {error}"))
                    .hint("send as many bytes as Content-Length says, or use chunked encoding")
            })?;
            let Ok(data) = frame.into_data() else { continue };
            self.seen += data.len() as u64;
            if self.seen > self.limit {
                return Err(self.refuse().await);
            }
            if !data.is_empty() {
                return Ok(Some(data));
            }
        }
    }

    async fn refuse(&mut self) -> ApiError {
        let drain = async {
            let mut left = DRAIN_BYTES_MAX;
            while let Ok(Some(Ok(frame))) = tokio::time::timeout(DRAIN_IDLE_MAX, self.body.frame()).await {
                left = left.saturating_sub(frame.data_ref().map_or(0, |data| data.len() as u64));
                if left == 0 {
                    break;
                }
            }
        };
        // Whether the rest came in time or not, the answer is the same.
        let _ = tokio::time::timeout(DRAIN_TIME_MAX, drain).await;
        self.too_large()
    }

    fn too_large(&self) -> ApiError {
        ApiError::too_large(&self.what, self.limit)
    }
}

/// Reads a JSON body: its type must be declared, it must not be empty, and every field must be known.
pub async fn read_json<T: json::Body>(headers: &HeaderMap, body: Body) -> Result<(T, Bytes), ApiError> {
    expect_json(headers)?;
    let bytes = read("a JSON body", headers, body, JSON_BYTES_MAX).await?;
    let value = parse(&bytes)?;
    Ok((value, bytes))
}

/// Reads JSON text into `T`.
pub(super) fn parse<T: json::Body>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ApiError::new(Kind::EmptyBody, "the body is empty, and a JSON object is expected"));
    }
    json::from_slice(bytes).map_err(unfit)
}

/// Text that is not what was asked for.
pub(super) fn unfit(error: json::JsonError) -> ApiError {
    match error {
        json::JsonError::Broken(detail) => ApiError::new(Kind::BrokenJson, detail),
        json::JsonError::Unfit(refusal) => refusal.into(),
    }
}

pub(super) fn expect_json(headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse = |detail: String| {
        Err(ApiError::new(Kind::UnsupportedMediaType, detail).hint("send the header `Content-Type: application/json`"))
    };
    let Some(value) = headers.get(header::CONTENT_TYPE) else {
        return refuse("the request does not say what its body is".to_owned());
    };
    let value = value.to_str().unwrap_or("");
    let mut parts = value.split(';').map(|part| part.trim().to_ascii_lowercase());
    let essence = parts.next().unwrap_or_default();
    let is_json = essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    if !is_json {
        return refuse(format!("{} is not JSON", crate::refusal::quoted(value)));
    }
    let charset = parts.find_map(|part| part.strip_prefix("charset=").map(|name| name.trim_matches('"').to_owned()));
    match charset.as_deref() {
        None | Some("utf-8" | "utf8" | "us-ascii") => Ok(()),
        Some(other) => refuse(format!("JSON is UTF-8, and the request says {}", crate::refusal::quoted(other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(content_type: &str) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_TYPE, content_type.parse().unwrap())])
    }

    #[test]
    fn json_is_taken_only_where_it_is_declared() {
        for right in ["application/json", "Application/JSON; charset=UTF-8", "application/merge-patch+json"] {
            assert_eq!(expect_json(&headers(right)), Ok(()), "{right}");
        }
        for wrong in ["text/plain", "application/wasm", "application/json; charset=latin1", "json", ""] {
            assert_eq!(expect_json(&headers(wrong)).unwrap_err().kind(), Kind::UnsupportedMediaType, "{wrong}");
        }
        assert_eq!(expect_json(&HeaderMap::new()).unwrap_err().kind(), Kind::UnsupportedMediaType);
    }

    #[tokio::test]
    async fn the_limit_counts_what_arrives() {
        let exact = read("it", &HeaderMap::new(), Body::from(vec![0; 100]), 100).await.unwrap();
        assert_eq!(exact.len(), 100);
        let chunked = || {
            let pieces = (0..101).map(|_| Ok::<_, std::io::Error>(Bytes::from_static(b"x")));
            Body::from_stream(futures::stream::iter(pieces))
        };
        let error = read("it", &HeaderMap::new(), chunked(), 100).await.unwrap_err();
        assert_eq!((error.kind(), error.clone().problem().limit_bytes), (Kind::TooLarge, Some(100)));
        let small = HeaderMap::from_iter([(header::CONTENT_LENGTH, "5".parse().unwrap())]);
        assert_eq!(read("it", &small, chunked(), 100).await.unwrap_err().kind(), Kind::TooLarge);
        let large = HeaderMap::from_iter([(header::CONTENT_LENGTH, "101".parse().unwrap())]);
        assert_eq!(read("it", &large, Body::empty(), 100).await.unwrap_err().kind(), Kind::TooLarge);
    }
}
