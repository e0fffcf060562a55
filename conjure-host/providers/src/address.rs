//! Where a provider is: a base URL as people write it, and the URLs below it.

use std::fmt;

use conjure_core::wire::Wire;
use reqwest::Url;

/// The base of a provider's API, with its version. Shown without a user or a password.
#[derive(Clone)]
pub(crate) struct Address {
    /// With the version, without a slash at the end.
    api: String,
    /// What the person wrote, without what is secret.
    redacted: String,
}

/// A base URL that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "the base URL cannot be used: {reason}; it is the address of the API without a resource, such \
     as `https://api.openai.com/v1`"
)]
pub struct AddressError {
    reason: String,
}

impl Address {
    /// Reads a base URL. Where it has no version, the wire's own is put behind it; an address
    /// that has a path is taken as it is on the wires of OpenAI, whose servers differ in it.
    pub(crate) fn parse(base_url: &str, wire: Wire) -> Result<Self, AddressError> {
        let wrong = |reason: String| AddressError { reason };
        let mut url = Url::parse(base_url.trim()).map_err(|error| wrong(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
            return Err(wrong("it is no `http://` or `https://` address".to_owned()));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it has a `?` or a `#`".to_owned()));
        }
        let path = url.path().trim_end_matches('/').to_owned();
        let last = path.rsplit('/').next().unwrap_or_default();
        let has_version = last
            .strip_prefix('v')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
        let version = match wire {
            _ if has_version => "",
            Wire::Anthropic => "/v1",
            Wire::Gemini => "/v1beta",
            Wire::OpenaiResponses | Wire::OpenaiChat if path.is_empty() => "/v1",
            Wire::OpenaiResponses | Wire::OpenaiChat => "",
        };
        url.set_path(&format!("{path}{version}"));
        let api = url.as_str().trim_end_matches('/').to_owned();
        url.set_path(&path);
        // Neither fails where there is a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        let shown = url.as_str().trim_end_matches('/').to_owned();
        Ok(Self {
            api,
            redacted: shown,
        })
    }

    /// The URL of a resource.
    pub(crate) fn resource_url(&self, resource: &str) -> String {
        format!("{}/{resource}", self.api)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.redacted)
    }
}

/// Whether this can be kept as the address of a saved auth, which is shown to people.
pub(crate) fn check_base_url(base_url: &str, wire: Wire) -> Result<(), String> {
    Address::parse(base_url, wire).map_err(|error| error.to_string())?;
    let secret = Url::parse(base_url.trim())
        .is_ok_and(|url| !url.username().is_empty() || url.password().is_some());
    if secret {
        return Err(
            "it has a user or a password in it, and addresses are shown; send these as a header \
             (`--kind custom-headers`)"
                .to_owned(),
        );
    }
    Ok(())
}

/// Whether two base URLs are the same address.
pub(super) fn same_address(one: &str, other: &str, wire: Wire) -> bool {
    let api = |base_url| Address::parse(base_url, wire).map(|address| address.api);
    matches!((api(one), api(other)), (Ok(one), Ok(other)) if one == other)
}

/// An address without what is secret in it.
pub(crate) fn redacted_base_url(base_url: &str) -> String {
    Address::parse(base_url, Wire::OpenaiChat).map_or_else(
        |_| "another address".to_owned(),
        |address| address.to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_put_where_none_is() {
        for (base, wire, url) in [
            (
                "https://a.example",
                Wire::Anthropic,
                "https://a.example/v1/x",
            ),
            (
                "https://a.example/",
                Wire::Anthropic,
                "https://a.example/v1/x",
            ),
            (
                "https://a.example/v1/",
                Wire::Anthropic,
                "https://a.example/v1/x",
            ),
            (
                "https://a.example/gate",
                Wire::Anthropic,
                "https://a.example/gate/v1/x",
            ),
            (
                "http://[::1]:8080",
                Wire::OpenaiChat,
                "http://[::1]:8080/v1/x",
            ),
            (
                "https://a.example/api/v1",
                Wire::OpenaiChat,
                "https://a.example/api/v1/x",
            ),
            (
                "https://a.example/openai",
                Wire::OpenaiResponses,
                "https://a.example/openai/x",
            ),
            (
                "https://a.example",
                Wire::Gemini,
                "https://a.example/v1beta/x",
            ),
            (
                "https://a.example/v1",
                Wire::Gemini,
                "https://a.example/v1/x",
            ),
            (
                "https://a.example/vertex",
                Wire::Gemini,
                "https://a.example/vertex/v1beta/x",
            ),
        ] {
            assert_eq!(
                Address::parse(base, wire).unwrap().resource_url("x"),
                url,
                "{base}"
            );
        }
    }

    #[test]
    fn what_is_secret_in_an_address_is_not_shown() {
        let address = Address::parse("https://me:secret@a.example/v1", Wire::Gemini).unwrap();
        assert_eq!(address.to_string(), "https://a.example/v1");
        assert_eq!(
            address.resource_url("x"),
            "https://me:secret@a.example/v1/x"
        );
    }

    #[test]
    fn what_is_no_address_is_refused_without_repeating_it() {
        for base in [
            "a.example/secret",
            "ftp://a.example",
            "https://a.example/?key=secret",
            "",
        ] {
            let error = Address::parse(base, Wire::Anthropic)
                .err()
                .unwrap()
                .to_string();
            assert!(
                error.starts_with("the base URL cannot be used: "),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
