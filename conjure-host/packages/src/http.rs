//! Files at addresses.

use std::time::Duration;

use reqwest::{StatusCode, Url};

use crate::PackageError;

/// How long a server may say nothing.
const SILENCE: Duration = Duration::from_secs(30);

/// How long all of it may take, also from a server that says a little now and then.
const WHOLE: Duration = Duration::from_secs(3600);

/// The most addresses that one leads to after another.
const REDIRECTS: usize = 10;

/// Goes where an answer leads, but from an encrypted address only to another one.
fn never_less_private(attempt: reqwest::redirect::Attempt<'_>) -> reqwest::redirect::Action {
    let was_private = attempt.previous().iter().any(|url| url.scheme() == "https");
    if was_private && attempt.url().scheme() != "https" {
        return attempt.error("it leads from an encrypted address to one that is not");
    }
    match attempt.previous().len() > REDIRECTS {
        true => attempt.error("it leads from one address to another without end"),
        false => attempt.follow(),
    }
}

/// An address without the name and the password that may be in it.
pub(crate) fn shown(url: &Url) -> String {
    let mut url = url.clone();
    // Both fail only for addresses that can have neither.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// A place as people may see it: a path, a name, or an address without the name and the password that
/// may be in it, also one that cannot be read as an address.
pub(crate) fn shown_text(place: &str) -> String {
    let Some((scheme, rest)) = place.split_once("://") else {
        return place.to_owned();
    };
    match (rest.rsplit_once('@'), Url::parse(place)) {
        (None, _) => place.to_owned(),
        (Some(_), Ok(url)) => shown(&url),
        (Some((_, rest)), Err(_)) => format!("{scheme}://{rest}"),
    }
}

/// What is to be done where a server gives this answer.
fn remedy(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            "Whoever may read it gives the password in the address, which is kept nowhere, so it has to \
             be given each time: `conjure plugin install https://NAME:PASSWORD@HOST/…`, and of an index \
             with `--index` or in CONJURE_PLUGIN_INDEX"
        }
        _ => "Check the address",
    }
}

/// What is at an address, at most so many bytes.
pub(crate) async fn get(url: &Url, limit: u64) -> Result<Vec<u8>, PackageError> {
    let failed = |reason: String| PackageError::Fetch {
        place: shown(url),
        reason,
    };
    let client = reqwest::Client::builder()
        .connect_timeout(SILENCE)
        .read_timeout(SILENCE)
        .timeout(WHOLE)
        .redirect(reqwest::redirect::Policy::custom(never_less_private))
        .user_agent(concat!("conjure/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| failed(error.to_string()))?;
    let sent = client.get(url.clone()).send().await;
    let mut response = sent.map_err(|error| failed(whole(&error)))?;
    let status = response.status();
    if !status.is_success() {
        return Err(failed(format!(
            "the server answers {status}. {}",
            remedy(status)
        )));
    }
    let mut bytes = Vec::new();
    loop {
        let piece = response.chunk().await;
        let Some(piece) = piece.map_err(|error| failed(whole(&error)))? else {
            return Ok(bytes);
        };
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > limit {
            return Err(failed(format!("it has more than {limit} bytes")));
        }
    }
}

/// An error with what is behind it.
pub(crate) fn whole(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let said = next.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        for (given, shown) in [
            ("https://ada:secret@h.example/p", "https://h.example/p"),
            ("https://ada@h.example/p?q=a@b", "https://h.example/p?q=a@b"),
            (
                "https://ada:secret@h.example:99999/p",
                "https://h.example:99999/p",
            ),
            ("https://ada:se/cret@h.example/p", "https://h.example/p"),
            ("http://ada:se@cret@h.example:x/", "http://h.example:x/"),
            ("https://h.example", "https://h.example"),
            ("ftp://ada:secret@h.example/p", "ftp://h.example/p"),
            ("HTTPS://ada:secret@h.example/p", "https://h.example/p"),
            ("./packages", "./packages"),
            ("weather@1.0.0", "weather@1.0.0"),
        ] {
            assert_eq!(shown_text(given), shown);
        }
    }

    #[test]
    fn whoever_is_not_let_in_is_told_where_the_password_goes() {
        for status in [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN] {
            assert!(remedy(status).contains("--index"));
        }
        assert_eq!(remedy(StatusCode::NOT_FOUND), "Check the address");
    }
}
