//! The end of a login at the authorization server (RFC 7009), where it takes tokens back.
//!
//! The host has forgotten them by then: what goes wrong here is told, and changes nothing.

use std::time::Duration;

use rmcp::transport::auth::{AuthorizationManager, AuthorizationMetadata};
use serde_json::Value;
use url::Url;

use super::address_filter::AddressFilter;
use super::endpoints::check_endpoint;
use super::store::Grant;
use super::{ActiveToken, issuer_of};
use crate::failure::chain;

/// How long the authorization server may take, for everything.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(15);

/// Gives a grant's tokens back to its issuer.
///
/// # Errors
/// Why the server may take them still.
pub(super) async fn revoke(url: &str, issuer: &str, grant: &Grant) -> Result<(), String> {
    let Some(live) = ActiveToken::of(grant) else {
        return Ok(());
    };
    let given_back = async {
        let metadata = metadata(url).await?;
        if issuer_of(&metadata) != issuer {
            // What this one gave is nobody else's to see.
            return Err("the server has another authorization server now".to_owned());
        }
        let endpoint = metadata.additional_fields.get("revocation_endpoint");
        let Some(endpoint) = endpoint.and_then(Value::as_str) else {
            // It takes none back.
            return Ok(());
        };
        check_endpoint(endpoint).map_err(|error| chain(&error))?;
        let in_body = wants_secret_in_body(&metadata);
        let server = Url::parse(url).map_err(|error| chain(&error))?;
        let filter = AddressFilter::of(&server);
        filter.check(endpoint)?;
        let client = filter.client().map_err(|error| chain(&error))?;
        // The first ends the second at most servers, and not at all.
        let refresh = live.refresh.as_deref().map(|text| (text, "refresh_token"));
        let access = Some((live.access.expose(), "access_token"));
        let mut refused = None;
        for (token, kind) in refresh.into_iter().chain(access) {
            let mut form = vec![
                ("token", token),
                ("token_type_hint", kind),
                ("client_id", grant.client_id.as_str()),
            ];
            let mut request = client.post(endpoint);
            match &grant.client_secret {
                Some(secret) if in_body => form.push(("client_secret", secret)),
                Some(secret) => request = request.basic_auth(&grant.client_id, Some(secret)),
                None => {}
            }
            let body: String = url::form_urlencoded::Serializer::new(String::new())
                .extend_pairs(form)
                .finish();
            let request = request
                .header("content-type", "application/x-www-form-urlencoded")
                .body(body);
            let told = request.send().await;
            let told = told.map_err(|error| chain(&error.without_url()))?;
            let status = told.status();
            if !status.is_success() && refused.is_none() {
                refused = Some(format!("it answered with HTTP {status}"));
            }
        }
        refused.map_or(Ok(()), Err)
    };
    let limited = tokio::time::timeout(REVOKE_TIMEOUT, given_back).await;
    limited.unwrap_or_else(|_| Err(format!("it did not answer within {REVOKE_TIMEOUT:?}")))
}

async fn metadata(url: &str) -> Result<AuthorizationMetadata, String> {
    let manager = AuthorizationManager::new(url).await;
    let manager = manager.map_err(|error| chain(&error))?;
    let resolved = manager.resolve_metadata().await;
    Ok(resolved.map_err(|error| chain(&error))?.metadata)
}

/// Whether a client says its secret in the body, and not in a header as it does by default.
fn wants_secret_in_body(metadata: &AuthorizationMetadata) -> bool {
    let methods = "revocation_endpoint_auth_methods_supported";
    let methods = metadata.additional_fields.get(methods);
    let methods = methods.and_then(Value::as_array);
    let has = |name: &str| methods.is_some_and(|all| all.iter().any(|method| method == name));
    has("client_secret_post") && !has("client_secret_basic")
}
