//! The login: the person's browser at the authorization server, and back with a code.
//!
//! The host's client id at an authorization server is what the person configured, else the document
//! at an address that they configured, else what was registered before, else a new registration.

use std::time::Duration;

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::Elicit;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialStore as _,
    InMemoryCredentialStore, WWWAuthenticateParams,
};
use serde_json::{Value, json};
use url::Url;

use super::callback::{Callback, Loopback, port_of, read};
use super::store::Grant;
use super::{ActiveToken, Auth, MAX_REASON_BYTES, endpoints, issuer_of, lock, store_failed};
use crate::digest::digest;
use crate::failure::chain;
use crate::failure::rights;
use crate::secrets::beginning;

/// Time limit for the person to log in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(5 * 60);
/// How the host is called where it registers itself.
const CLIENT_NAME: &str = "Conjure";

/// How many sessions are remembered to want no login; of more all are asked once more.
const MAX_DECLINED: usize = 1000;

/// A login that waits for the person in the browser.
struct PendingLogin {
    manager: AuthorizationManager,
    issuer: String,
    grant: Grant,
    loopback: Loopback,
    url: Url,
    state: String,
    /// The rights that the login before does not give.
    missing_scopes: Option<String>,
}

impl Auth {
    /// Logs in for a call, if the session has a person who wants to. One who did not is asked no
    /// more. It counts as the login that there was: the same person wants to go on.
    ///
    /// # Errors
    /// Why there is no login.
    pub(crate) async fn log_in_for_call(&self, cx: &Cx) -> Result<(), String> {
        let before = self.current_token().await;
        let _one = tokio::select! {
            one = self.logging_in.lock() => one,
            () = cx.until_cancelled() => return Err("it was cancelled".to_owned()),
        };
        self.check_stored_login().await;
        if self.current_token().await != before {
            // Somebody else did meanwhile, here or elsewhere.
            return Ok(());
        }
        if lock(&self.declined).contains(session(cx)) {
            return Err("the person did not log in when they were asked".to_owned());
        }
        let goes_on = *self.logins.borrow();
        self.log_in_now(cx, Some(goes_on)).await
    }

    /// Logs in with the person of a session, maybe as somebody else than before.
    ///
    /// # Errors
    /// Why there is no login; tokens from before stay as they are.
    pub(crate) async fn log_in(&self, cx: &Cx) -> Result<(), String> {
        let _one = self.logging_in.lock().await;
        self.log_in_now(cx, None).await
    }

    /// Logs in; in place of the login with this number, if that is still the last one.
    async fn log_in_now(&self, cx: &Cx, in_place_of: Option<u64>) -> Result<(), String> {
        let done = async {
            let asked = self.ask().await?;
            let callback = self.answer(cx, &asked).await?;
            self.exchange(asked, callback, in_place_of).await?;
            Ok::<(), LoginFailure>(())
        };
        match done.await {
            Ok(()) => {
                lock(&self.declined).clear();
                *lock(&self.challenge) = None;
                Ok(())
            }
            Err(LoginFailure::Unanswered(why)) => Err(self.secrets.redact(why)),
            Err(LoginFailure::Declined) => {
                let mut declined = lock(&self.declined);
                if declined.len() >= MAX_DECLINED {
                    declined.clear();
                }
                declined.insert(session(cx).to_owned());
                Err("the person was asked to log in and did not".to_owned())
            }
            Err(LoginFailure::Failed(error)) => {
                let text = format!("the login did not work: {}", chain(&error));
                Err(beginning(self.secrets.redact(text), MAX_REASON_BYTES))
            }
        }
    }

    /// The token that there is, and of which login.
    async fn current_token(&self) -> (Option<super::Token>, u64) {
        let held = self.cache.lock().await;
        let token = held.active.as_ref().map(|live| live.access.clone());
        (token, *self.logins.borrow())
    }

    /// Everything up to the address that the person visits.
    async fn ask(&self) -> Result<PendingLogin, AuthError> {
        let challenge = lock(&self.challenge).clone();
        let challenge = challenge.filter(|challenge| !challenge.is_empty());
        let mut manager = AuthorizationManager::new(self.url.as_str()).await?;
        let resolved = manager
            .resolve_metadata_from_challenge(challenge.as_deref())
            .await?;
        let metadata = resolved.metadata;
        if resolved.source.is_discovered() && metadata.code_challenge_methods_supported.is_none() {
            // The protocol wants it said.
            return Err(AuthError::PkceUnsupported);
        }
        endpoints::check_login(&metadata)?;
        let issuer = issuer_of(&metadata);
        manager.set_metadata(metadata.clone());
        let kept = self.store.load().map_err(|error| store_failed(&error))?;
        let before = kept.of(&issuer);
        let missing = challenge
            .as_deref()
            .and_then(|said| self.missing_scope(said));
        let scopes = self.scopes(&manager, missing.as_deref(), before).await;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let loopback = self.loopback(before).await?;
        let grant = self
            .client(&mut manager, &metadata, &loopback, before, &scopes)
            .await?;
        manager.configure_client(grant.client())?;
        let url = Url::parse(&manager.get_authorization_url(&scopes).await?)?;
        let state = url.query_pairs().find(|(key, _)| key == "state");
        let state = state.map(|(_, state)| state.into_owned());
        Ok(PendingLogin {
            manager,
            issuer,
            grant,
            loopback,
            state: state.unwrap_or_default(),
            url,
            missing_scopes: missing,
        })
    }

    /// The scopes that a challenge says are missing; an empty text where it does not say which.
    fn missing_scope(&self, challenge: &str) -> Option<String> {
        let url = Url::parse(&self.url).ok()?;
        let params = WWWAuthenticateParams::parse(challenge, &url);
        let is_missing = params.is_insufficient_scope();
        is_missing.then(|| params.scope.unwrap_or_default())
    }

    /// What is asked for: what the server wants, beside what it gave before if that is not enough.
    async fn scopes(
        &self,
        manager: &AuthorizationManager,
        missing: Option<&str>,
        before: Option<&Grant>,
    ) -> Vec<String> {
        let mut scopes = match &self.client.scopes {
            Some(scopes) => scopes.clone(),
            None => manager.select_initial_scopes(&[]).await,
        };
        let Some(wanted) = missing else {
            return scopes;
        };
        let given = before.and_then(|grant| grant.credentials.as_ref());
        let given = given.map(|given| given.granted_scopes.clone());
        let mut all = given.unwrap_or_default();
        all.append(&mut scopes);
        all.extend(wanted.split_whitespace().map(str::to_owned));
        let mut seen = std::collections::HashSet::new();
        all.retain(|scope| seen.insert(scope.clone()));
        all
    }

    /// The port that is configured, or was used before, or any.
    async fn loopback(&self, before: Option<&Grant>) -> Result<Loopback, AuthError> {
        let failed = |error: std::io::Error| {
            AuthError::InternalError(format!(
                "no port of this machine can wait for the browser: {error}"
            ))
        };
        if let Some(port) = self.client.port {
            return Loopback::bind(port).await.map_err(failed);
        }
        if let Some(port) = before.and_then(|grant| port_of(&grant.redirect_uri))
            && let Ok(loopback) = Loopback::bind(port).await
        {
            return Ok(loopback);
        }
        Loopback::bind(0).await.map_err(failed)
    }

    /// The host's registration as a client at this authorization server.
    async fn client(
        &self,
        manager: &mut AuthorizationManager,
        metadata: &AuthorizationMetadata,
        loopback: &Loopback,
        before: Option<&Grant>,
        scopes: &[&str],
    ) -> Result<Grant, AuthError> {
        let redirect_uri = loopback.redirect_uri();
        let credentials = before.and_then(|grant| grant.credentials.clone());
        let login = before.map(|grant| grant.login.clone()).unwrap_or_default();
        let grant = |id: &str, secret: Option<String>| Grant {
            client_id: id.to_owned(),
            client_secret: secret,
            redirect_uri: redirect_uri.clone(),
            login: login.clone(),
            credentials: credentials.clone(),
        };
        if let Some(id) = &self.client.id {
            return Ok(grant(id, self.client.secret.clone()));
        }
        let says = |name: &str| {
            let said = metadata.additional_fields.get(name);
            said.and_then(Value::as_bool) == Some(true)
        };
        if let Some(address) = &self.client.metadata_url
            && says("client_id_metadata_document_supported")
        {
            return Ok(grant(address, None));
        }
        if let Some(before) = before.filter(|before| before.redirect_uri == redirect_uri) {
            return Ok(before.clone());
        }
        if metadata.registration_endpoint.is_none() {
            return Err(AuthError::RegistrationFailed(format!(
                "{} does not let programs register themselves; register one by hand and set \
                 `oauth.client_id` of the server",
                issuer_of(metadata)
            )));
        }
        endpoints::check_registration(metadata)?;
        let registered = manager
            .register_client(CLIENT_NAME, &redirect_uri, scopes)
            .await?;
        let registered = grant(&registered.client_id, registered.client_secret);
        self.register_secrets(&registered);
        let _lock = self
            .store
            .lock()
            .await
            .map_err(|error| store_failed(&error))?;
        let mut kept = self.store.load().map_err(|error| store_failed(&error))?;
        // The tokens of another registration stay in use until there are new ones.
        if credentials.is_none() {
            kept.put(issuer_of(metadata), registered.clone());
            self.store
                .save(&kept)
                .map_err(|error| store_failed(&error))?;
        }
        Ok(registered)
    }

    /// Asks the person, and waits for the browser or for what they paste.
    async fn answer(&self, cx: &Cx, asked: &PendingLogin) -> Result<Callback, LoginFailure> {
        let place = asked.url.origin().ascii_serialization();
        let server = &self.server;
        let message = match &asked.missing_scopes {
            Some(scope) => {
                let rights = rights(Some(scope.as_str()).filter(|scope| !scope.is_empty()));
                format!(
                    "[{server}] wants {rights} that your login does not give. Log in again at {place}."
                )
            }
            None => format!("[{server}] wants you to log in at {place}."),
        };
        let question = Elicit {
            message,
            schema: Some(json!({
                "type": "object",
                "properties": { "address": {
                    "type": "string",
                    "description": "press Enter once you are logged in; if the browser is on \
                                    another machine, paste the address at which it ended",
                } },
            })),
            url: Some(asked.url.to_string()),
            ..Elicit::default()
        };
        let person = async {
            let answer = cx.elicit_async(&question).await;
            let answer =
                answer.map_err(|error| LoginFailure::Unanswered(error.message().to_owned()))?;
            if answer.action != "accept" {
                return Err(LoginFailure::Declined);
            }
            let pasted = answer.content.get("address").and_then(Value::as_str);
            match pasted.filter(|pasted| !pasted.trim().is_empty()) {
                Some(pasted) => read(pasted, &asked.state)
                    .unwrap_or_else(|| Err("the address is not of this login".to_owned()))
                    .map_err(LoginFailure::Unanswered),
                // The browser is on its way.
                None => std::future::pending().await,
            }
        };
        let refused =
            |why| LoginFailure::Unanswered(format!("the authorization server refused: {why}"));
        tokio::select! {
            answer = asked.loopback.answer(&asked.state) => answer.map_err(refused),
            answer = person => answer,
            () = cx.until_cancelled() => Err(LoginFailure::Unanswered("it was cancelled".to_owned())),
            () = tokio::time::sleep(LOGIN_TIMEOUT) => {
                let minutes = LOGIN_TIMEOUT.as_secs() / 60;
                Err(LoginFailure::Unanswered(format!("nobody logged in within {minutes} minutes")))
            }
        }
    }

    /// A token for the code.
    async fn exchange(
        &self,
        asked: PendingLogin,
        callback: Callback,
        in_place_of: Option<u64>,
    ) -> Result<(), AuthError> {
        let mut manager = asked.manager;
        let memory = InMemoryCredentialStore::new();
        manager.set_credential_store(memory.clone());
        manager
            .exchange_code_for_token_with_issuer(
                &callback.code,
                &callback.state,
                callback.issuer.as_deref(),
            )
            .await?;
        let mut grant = Grant {
            credentials: memory.load().await?,
            ..asked.grant
        };
        self.register_secrets(&grant);
        if let Some(live) = ActiveToken::of(&grant) {
            grant.login = digest(live.access.expose().as_bytes());
        }
        let mut held = self.cache.lock().await;
        let _lock = self
            .store
            .lock()
            .await
            .map_err(|error| store_failed(&error))?;
        let mut kept = self.store.load().map_err(|error| store_failed(&error))?;
        self.adopt_stored(&mut held, &kept);
        let live = ActiveToken::of(&grant);
        kept.put(asked.issuer, grant);
        self.store
            .save(&kept)
            .map_err(|error| store_failed(&error))?;
        if let Some(live) = live {
            if in_place_of == Some(*self.logins.borrow()) {
                held.login = Some(live.login.clone());
            }
            self.activate(&mut held, live);
        }
        Ok(())
    }
}

fn session(cx: &Cx) -> &str {
    cx.session().unwrap_or_default()
}

/// The reason why a login failed.
enum LoginFailure {
    /// The person does not want to.
    Declined,
    /// Nobody said anything of use: they could not be asked, were too late, or it went wrong.
    Unanswered(String),
    Failed(AuthError),
}

impl From<AuthError> for LoginFailure {
    fn from(error: AuthError) -> Self {
        Self::Failed(error)
    }
}
