//! Versions of what is saved: whoever changes something may say which version they saw, so that
//! nobody's change is lost unseen.

use axum::Json;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::IntoParams;

use super::problem::Problem;
use super::state::App;

/// The kind of the problem that somebody else was first.
pub(super) const CHANGED_KIND: &str = "changed";

/// The header, as the description has it.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "it is described; `VersionCondition` reads it")]
pub(super) struct IfMatch {
    /// The `ETag` of the version that the change is to; without it the change is made to whatever
    /// there is.
    #[param(rename = "If-Match")]
    if_match: Option<String>,
}

/// What is answered with its version in `ETag`: the version, and the body.
pub(super) struct Tagged<T>(pub(super) i64, pub(super) T);

impl<T: Serialize> IntoResponse for Tagged<T> {
    fn into_response(self) -> Response {
        let mut response = Json(self.1).into_response();
        if let Ok(tag) = HeaderValue::from_str(&tag(self.0)) {
            response.headers_mut().insert(header::ETAG, tag);
        }
        response
    }
}

/// The versions of an object that a change accepts.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum VersionCondition {
    /// Whatever there is.
    Any,
    /// One of these tags.
    Tags(Vec<String>),
}

impl VersionCondition {
    fn read(headers: &HeaderMap) -> Self {
        let given = headers.get_all(header::IF_MATCH).iter();
        let given = given.map(|value| value.to_str().unwrap_or_default());
        let tags = given.flat_map(|value| value.split(','));
        let tags: Vec<String> = tags.map(|tag| tag.trim().to_owned()).collect();
        if tags.is_empty() || tags.iter().any(|tag| tag == "*") {
            Self::Any
        } else {
            Self::Tags(tags)
        }
    }

    /// Whether the version that there is may be changed.
    pub(super) fn check(&self, version: i64) -> Result<(), Problem> {
        match self {
            Self::Tags(tags) if !tags.contains(&tag(version)) => Err(changed_problem()),
            Self::Any | Self::Tags(_) => Ok(()),
        }
    }

    /// What is said where somebody else changed it after the check.
    pub(super) fn explain_conflict(&self, problem: Problem) -> Problem {
        match self {
            Self::Tags(_) if problem.is_kind(CHANGED_KIND) => changed_problem(),
            Self::Any | Self::Tags(_) => problem,
        }
    }
}

impl FromRequestParts<App> for VersionCondition {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &App) -> Result<Self, Problem> {
        Ok(Self::read(&parts.headers))
    }
}

/// What is said of a change to another version than the one that is there.
fn changed_problem() -> Problem {
    Problem::new(
        StatusCode::PRECONDITION_FAILED,
        CHANGED_KIND,
        "it was changed since the version of `If-Match`; read it anew, and change that",
    )
}

fn tag(version: i64) -> String {
    format!("\"{version:x}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_to_the_version_that_was_seen() {
        let wanted = |given: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in given {
                headers.append(header::IF_MATCH, value.parse().unwrap());
            }
            VersionCondition::read(&headers)
        };
        for fits in [
            &[][..],
            &["*"],
            &["\"ff\""],
            &["\"1\", \"ff\""],
            &["\"1\"", "\"ff\""],
        ] {
            assert!(wanted(fits).check(255).is_ok(), "{fits:?}");
        }
        for other in ["", "ff", "\"fe\"", "W/\"ff\""] {
            assert!(wanted(&[other]).check(255).is_err(), "{other}");
        }
    }
}
