//! Query strings and path segments, read as strictly as bodies are.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::Uri;
use axum::http::request::Parts;

use super::problem::{ApiError, Kind};
use crate::refusal::{Refusal, near, quoted};

/// How many rows a page has if nobody says otherwise.
pub const LIMIT_DEFAULT: usize = 50;
/// The longest page.
pub const LIMIT_MAX: usize = 1_000;

/// The parameters of a query string.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params(Vec<(String, String)>);

impl Params {
    /// Reads the query string; every name must be among `known`.
    pub fn read(uri: &Uri, known: &[&str]) -> Result<Self, ApiError> {
        let Query(pairs) = Query::<Vec<(String, String)>>::try_from_uri(uri)
            .map_err(|error| ApiError::from(Refusal::new("(query)", error.to_string())))?;
        for (name, _) in &pairs {
            if !known.contains(&name.as_str()) {
                let hint = match near(name, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if known.is_empty() => "this route takes none".to_owned(),
                    None => format!("known here: {}", known.join(", ")),
                };
                let shown: String = name.chars().take(80).collect();
                return Err(Refusal::new(shown, format!("there is no query parameter {}", quoted(name)))
                    .hint(hint)
                    .into());
            }
        }
        Ok(Self(pairs))
    }

    /// The value of a parameter that may be given once.
    pub fn one(&self, name: &str) -> Result<Option<&str>, ApiError> {
        let mut values = self.many(name);
        let value = values.next();
        if values.next().is_some() {
            return Err(Refusal::new(name, "this query parameter is given twice").hint("keep one of them").into());
        }
        Ok(value)
    }

    /// All values of a parameter that may be repeated.
    pub fn many(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// `limit`, from 1 to [`LIMIT_MAX`].
    pub fn limit(&self) -> Result<usize, ApiError> {
        let Some(text) = self.one("limit")? else { return Ok(LIMIT_DEFAULT) };
        match text.parse::<usize>() {
            Ok(limit) if (1..=LIMIT_MAX).contains(&limit) => Ok(limit),
            _ => Err(Refusal::new("limit", format!("{} is not a page length", quoted(text)))
                .hint(format!("use a number from 1 to {LIMIT_MAX}"))
                .into()),
        }
    }
}

/// A path segment, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment(pub String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let segment: Result<Path<String>, PathRejection> = Path::from_request_parts(parts, state).await;
        match segment {
            Ok(Path(text)) => Ok(Self(text)),
            Err(_) => Err(ApiError::new(Kind::NotFound, "the path is not UTF-8, so it names nothing here")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Params, ApiError> {
        Params::read(&format!("/x?{query}").parse().unwrap(), &["limit", "cursor", "tag"])
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        let problem = read("limt=5").unwrap_err().problem();
        assert_eq!((problem.status, problem.field.as_deref()), (422, Some("limt")));
        assert_eq!(problem.hint.as_deref(), Some("did you mean `limit`?"));
        assert!(read("limit=5&limit=6").unwrap().limit().is_err());
        assert_eq!(read("tag=a&tag=b").unwrap().many("tag").collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn the_limit_has_limits() {
        for (query, want) in [("", 50), ("limit=1", 1), ("limit=1000", 1000)] {
            assert_eq!(read(query).unwrap().limit(), Ok(want));
        }
        for query in
            ["limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=1e2", "limit=99999999999999999999"]
        {
            assert_eq!(read(query).unwrap().limit().unwrap_err().problem().status, 422, "{query}");
        }
    }
}
