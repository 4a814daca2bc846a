//! The HTTP client of the command line.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use reqwest::header::{CONTENT_TYPE, HeaderMap, IF_MATCH};
use reqwest::{Method, RequestBuilder, Response, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::Problem;
use crate::cli::CliError;
use crate::refusal::{Refusal, quoted};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No answer is silent for longer: a push is answered after ten seconds, done or not.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A server, as the command line sees it.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    server: Url,
    token: Option<String>,
}

/// An answer, read, and as it came.
#[derive(Debug, Clone)]
pub struct Reply<T> {
    /// What it says.
    pub value: T,
    /// Its text.
    pub text: String,
    /// Its headers.
    pub headers: HeaderMap,
}

impl Client {
    /// A client of the server at this address.
    pub fn new(server: &str, token: Option<&str>) -> Result<Self, CliError> {
        let refuse = |detail: String| {
            let hint = "give an address such as http://127.0.0.1:7878 (--server, or COMPLINE_SERVER)";
            CliError::usage(Refusal::new("--server", detail).hint(hint))
        };
        let url =
            Url::parse(server).map_err(|error| refuse(format!("{} is not an address: {error}", quoted(server))))?;
        if url.scheme() != "http" || url.host_str().is_none() {
            return Err(refuse(format!("{} is not an http address; this build speaks plain HTTP", quoted(server))));
        }
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let loopback = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        let mut http = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).read_timeout(READ_TIMEOUT);
        // A proxy can't reach this machine's own server.
        if loopback {
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| CliError::failed(format!("no HTTP client: {error}")))?;
        Ok(Self { http, server: url, token: token.map(str::to_owned) })
    }

    /// A request for a path made of these segments, each escaped as it needs.
    fn request(&self, method: Method, path: &[&str], query: &[(&str, String)]) -> RequestBuilder {
        let mut url = self.server.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        let request = self.http.request(method, url);
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Asks for something.
    pub async fn get<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<Reply<T>, CliError> {
        self.read(self.request(Method::GET, path, query)).await
    }

    /// Asks for bytes.
    pub async fn get_bytes(&self, path: &[&str]) -> Result<Bytes, CliError> {
        let response = self.send(self.request(Method::GET, path, &[])).await?;
        response.bytes().await.map_err(|error| self.cut(&error))
    }

    /// Sends JSON.
    pub async fn post<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &B,
        key: Option<&str>,
    ) -> Result<Reply<T>, CliError> {
        let mut request = self.request(Method::POST, path, &[]).json(body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        self.read(request).await
    }

    /// Edits something; with a revision, only if it still has that one. With a key a repeat is recognised.
    pub async fn patch<B: Serialize + Sync, T: DeserializeOwned>(
        &self,
        path: &[&str],
        body: &B,
        revision: Option<u64>,
        idempotency_key: Option<&str>,
    ) -> Result<Reply<T>, CliError> {
        let mut request = self.request(Method::PATCH, path, &[]).json(body);
        if let Some(revision) = revision {
            request = request.header(IF_MATCH, format!("\"{revision}\""));
        }
        if let Some(key) = idempotency_key {
            request = request.header("Idempotency-Key", key);
        }
        self.read(request).await
    }

    /// Deletes something.
    pub async fn delete<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, String)],
    ) -> Result<Reply<T>, CliError> {
        self.read(self.request(Method::DELETE, path, query)).await
    }

    /// Sends a component, piece by piece.
    pub async fn push<T: DeserializeOwned>(
        &self,
        query: &[(&str, String)],
        length: u64,
        body: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<Reply<T>, CliError> {
        let request = self
            .request(Method::POST, &["v1", "tasks"], query)
            .header(CONTENT_TYPE, "application/wasm")
            .header(reqwest::header::CONTENT_LENGTH, length)
            .body(reqwest::Body::wrap_stream(body));
        self.read(request).await
    }

    async fn read<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Reply<T>, CliError> {
        let response = self.send(request).await?;
        let headers = response.headers().clone();
        let text = response.text().await.map_err(|error| self.cut(&error))?;
        let value = serde_json::from_str(&text).map_err(|error| {
            CliError::unreachable(format!("the answer of {} can't be read: {error}", self.server))
                .with_hint("is it a Compline server, of this program's version?")
        })?;
        Ok(Reply { value, text, headers })
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, CliError> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response.text().await.map_err(|error| self.cut(&error))?;
        match serde_json::from_str::<Problem>(&text) {
            Ok(problem) => Err(CliError::problem(problem)),
            Err(_) => Err(CliError::unreachable(format!(
                "{} answered {status}, and not as a Compline server does",
                self.server
            ))
            .with_hint("check --server, and what stands between here and there")),
        }
    }

    fn unreachable(&self, error: &reqwest::Error) -> CliError {
        CliError::unreachable(format!("no server answers at {}: {}", self.server, innermost(error)))
            .with_hint("start one with `compline serve`, or name another with --server or COMPLINE_SERVER")
    }

    fn cut(&self, error: &reqwest::Error) -> CliError {
        CliError::unreachable(format!("the answer of {} was cut short: {}", self.server, innermost(error)))
            .with_hint("try again")
    }
}

/// The last of an error's causes: the others only say that there is one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
