//! The endpoints of an authorization server: each is looked at before anything is sent to it.
//!
//! The server's metadata names them, and may name others each time.

use rmcp::transport::auth::{AuthError, AuthorizationMetadata};
use url::Url;

/// Whether a person can log in there.
pub(super) fn check_login(metadata: &AuthorizationMetadata) -> Result<(), AuthError> {
    check_endpoint(&metadata.authorization_endpoint)?;
    check_endpoint(&metadata.token_endpoint)
}

/// Whether a token can be renewed there.
pub(super) fn check_renewal(metadata: &AuthorizationMetadata) -> Result<(), AuthError> {
    check_endpoint(&metadata.token_endpoint)
}

/// Whether the host can register itself there, if that is possible at all.
pub(super) fn check_registration(metadata: &AuthorizationMetadata) -> Result<(), AuthError> {
    let endpoint = metadata.registration_endpoint.as_deref();
    endpoint.map_or(Ok(()), check_endpoint)
}

/// Whether an endpoint can be visited: a page, and not in the clear over the network.
pub(super) fn check_endpoint(endpoint: &str) -> Result<(), AuthError> {
    let url = Url::parse(endpoint)?;
    let is_here = match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if url.scheme() == "https" || (url.scheme() == "http" && is_here) {
        return Ok(());
    }
    Err(AuthError::MetadataError(format!(
        "the endpoint {}://{} of the authorization server is not https",
        url.scheme(),
        url.host_str().unwrap_or_default()
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn metadata(token: &str, registration: Option<&str>) -> AuthorizationMetadata {
        let metadata: Value = json!({
            "authorization_endpoint": "https://as.example/authorize",
            "token_endpoint": token,
            "registration_endpoint": registration,
        });
        serde_json::from_value(metadata).unwrap()
    }

    #[test]
    fn nothing_is_sent_in_the_clear_over_the_network() {
        for fit in [
            "https://as.example/x",
            "http://127.0.0.1:1/x",
            "http://localhost/x",
        ] {
            let fits = metadata(fit, Some(fit));
            assert!(
                check_login(&fits).is_ok() && check_renewal(&fits).is_ok(),
                "{fit}"
            );
            assert!(check_registration(&fits).is_ok(), "{fit}");
        }
        let (fit, clear) = ("https://as.example/x", "http://as.example/x");
        assert!(check_renewal(&metadata(clear, None)).is_err());
        assert!(check_login(&metadata(clear, None)).is_err());
        assert!(check_registration(&metadata(fit, Some(clear))).is_err());
        assert!(check_registration(&metadata(fit, None)).is_ok());
        assert!(check_endpoint("http://127.0.0.1.example/x").is_err());
    }
}
