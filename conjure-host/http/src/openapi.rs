//! The description of the API, as a server shows it.

use std::io::{self, Read as _};

use axum::Router;
use axum::http::header::{self, HeaderMap};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use flate2::read::GzDecoder;

use super::problem::Problem;
use super::state::App;

/// Where the description is.
const PATH: &str = "/api/v1/openapi.json";

/// The file `conjure-host/docs/openapi.json`, packed with gzip.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/openapi.json.gz"));

/// The description: the file `conjure-host/docs/openapi.json`, which a test compares with what the
/// operations say of themselves. Making it anew in every server would cost megabytes for nothing.
///
/// # Errors
/// When the program is damaged.
pub fn document() -> io::Result<String> {
    let mut text = String::new();
    GzDecoder::new(PACKED).read_to_string(&mut text)?;
    Ok(text)
}

/// The route of the description.
pub(super) fn router() -> Router<App> {
    Router::new().route(PATH, get(show))
}

async fn show(headers: HeaderMap) -> Result<Response, Problem> {
    let kind = (header::CONTENT_TYPE, "application/json");
    let varies = (header::VARY, "accept-encoding");
    if takes_gzip(&headers) {
        let packed = (header::CONTENT_ENCODING, "gzip");
        return Ok(([kind, varies, packed], PACKED).into_response());
    }
    let damaged = |error| Problem::host(format!("the description cannot be unpacked: {error}"));
    Ok(([kind, varies], document().map_err(damaged)?).into_response())
}

/// Whether a client says that it reads gzip: by its name, and with a weight that is not zero.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let said = headers.get_all(header::ACCEPT_ENCODING).into_iter();
    let said = said.filter_map(|value| value.to_str().ok());
    said.flat_map(|value| value.split(',')).any(|one| {
        let mut words = one.split(';').map(str::trim);
        let is_gzip = words
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = words.find_map(|word| {
            let (name, weight) = word.split_once('=')?;
            name.eq_ignore_ascii_case("q").then_some(weight)
        });
        is_gzip && weight.and_then(|weight| weight.trim().parse().ok()) != Some(0.0)
    })
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn gzip_is_sent_to_who_names_it() {
        let takes = |said: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in said {
                headers.append(header::ACCEPT_ENCODING, HeaderValue::from_static(value));
            }
            takes_gzip(&headers)
        };
        assert!(takes(&["gzip"]));
        assert!(takes(&["br;q=1, GZIP; q=0.5"]));
        assert!(takes(&["br", "gzip;q=x"]));
        assert!(!takes(&[]));
        assert!(!takes(&["*", "identity"]));
        assert!(!takes(&["gzip;q=0"]));
        assert!(!takes(&["gzip; q=0.000, br"]));
        assert!(!takes(&["gzip;Q=0"]));
    }
}
