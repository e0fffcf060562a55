//! Reads a body, and says what is wrong with it and in which member, or with a parameter of a query.

use serde::de::DeserializeOwned;

use super::problem::Problem;
use conjure_config::json::{self, ReadJsonError, UnfitJson};

/// Reads a body, which is an object.
///
/// # Errors
/// 400 for what is no JSON, 422 for what is not as it should be, with the place.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    json::read_object(body).map_err(|error| match error {
        ReadJsonError::Malformed { source } => {
            Problem::malformed(format!("the body is no JSON: {source}"))
        }
        ReadJsonError::Unfit(unfit) => unfit.into(),
    })
}

impl From<UnfitJson> for Problem {
    fn from(unfit: UnfitJson) -> Self {
        let problem = Self::invalid(format!("the body is not as it should be: {unfit}"));
        match unfit.member() {
            "" => problem,
            member => problem.at(member),
        }
    }
}

/// What is wrong with a parameter of a query, without the words of Rust's numbers.
pub(super) fn query_error_text(why: &str) -> &str {
    let mut known = PARAMETERS.iter();
    let known = known.find(|(rust, _)| *rust == why);
    known.map_or(why, |&(_, words)| words)
}

/// What reads a parameter says, and what that means. Every number in a query is a whole one of 0 or
/// more.
const PARAMETERS: [(&str, &str); 4] = [
    (
        "invalid digit found in string",
        "it is not a whole number of 0 or more",
    ),
    (
        "cannot parse integer from empty string",
        "it is empty, and not a whole number of 0 or more",
    ),
    (
        "number too large to fit in target type",
        "it is a larger number than can be",
    ),
    (
        "provided string was not `true` or `false`",
        "it is neither `true` nor `false`",
    ),
];
