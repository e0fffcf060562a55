//! OAuth for servers over HTTP: the token of each request, renewed when it must be, and the login.
//!
//! What the protocol wants of a client (discovery, PKCE, the resource of a token, the issuer of an
//! answer) rmcp does. Here are the tokens: where they are kept, who may renew them, what happens
//! when two processes want to at once, and how a person logs in.

mod address_filter;
mod callback;
mod endpoints;
mod login;
mod revoke;
mod store;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use conjure_skill_sdk::Cx;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, CredentialStore as _,
    InMemoryCredentialStore, OAuthClientConfig,
};
use serde_json::Value;
use tokio::sync::watch;

use crate::config::OAuthConfig;
use crate::digest::digest;
use crate::secrets::{Secrets, beginning};
use crate::values::value;
use store::{Grant, LoginFileStamp, LoginStore, StoredLogin};

/// The most bytes of a reason.
const MAX_REASON_BYTES: usize = 500;
/// A token is renewed so long before it ends, or after half of its time.
const RENEWAL_MARGIN: Duration = Duration::from_secs(30);

/// A token for requests. It can be sent and not shown.
#[derive(Clone)]
pub(crate) struct Token {
    text: String,
    login: u64,
}

impl PartialEq for Token {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// The token itself.
    pub(crate) fn expose(&self) -> &str {
        &self.text
    }

    /// The login that it is from, as [`Auth::logins`] counts them. Behind another one may be
    /// somebody else.
    pub(crate) fn login(&self) -> u64 {
        self.login
    }
}

#[cfg(test)]
impl Token {
    /// A token of a login.
    pub(crate) fn of_login(text: &str, login: u64) -> Self {
        Self {
            text: text.to_owned(),
            login,
        }
    }
}

/// The configured OAuth client of the host.
#[derive(Default)]
pub(crate) struct OAuthClient {
    id: Option<String>,
    secret: Option<String>,
    metadata_url: Option<String>,
    scopes: Option<Vec<String>>,
    port: Option<u16>,
}

impl OAuthClient {
    /// Asks the host for the secret that the configuration names.
    pub(crate) async fn resolve(
        config: &OAuthConfig,
        cx: &Cx,
        secrets: &mut Vec<String>,
    ) -> Result<Self, String> {
        let secret = match &config.client_secret {
            Some(setting) => Some(value(setting, cx, secrets).await?),
            None => None,
        };
        Ok(Self {
            id: config.client_id.clone(),
            secret,
            metadata_url: config.client_metadata_url.clone(),
            scopes: config.scopes.clone(),
            port: config.callback_port,
        })
    }
}

/// Outcome of a logout.
pub(crate) enum LogoutOutcome {
    /// No login existed.
    NotLoggedIn,
    /// The login is forgotten, and given back where that is possible.
    Complete,
    /// The login is forgotten here only; the reason why.
    LocalOnly(String),
}

/// The login to one server.
pub(crate) struct Auth {
    server: String,
    url: String,
    client: OAuthClient,
    /// Learns each token, so that no server's words show one.
    secrets: Secrets,
    store: LoginStore,
    cache: tokio::sync::Mutex<LoginCache>,
    /// How many logins and logouts there were, as far as it is known here.
    logins: watch::Sender<u64>,
    /// What the server said when it wanted other credentials.
    challenge: Mutex<Option<String>>,
    logging_in: tokio::sync::Mutex<()>,
    /// The sessions whose persons did not want to; their calls ask no more.
    declined: Mutex<HashSet<String>>,
}

/// The login, as this process knows it.
#[derive(Default)]
struct LoginCache {
    active: Option<ActiveToken>,
    /// The login that is kept, and the file in which it was seen last.
    login: Option<String>,
    file_stamp: Option<LoginFileStamp>,
    /// A refresh token that was refused for good, by its digest.
    dead_refresh_token: Option<String>,
    /// A token that the server did not take.
    refused_token: Option<Token>,
}

impl LoginCache {
    /// A token that nothing can be done with any more.
    fn reject(&mut self, live: ActiveToken) {
        self.refused_token = Some(live.access);
        self.active = None;
    }
}

/// A token with its expiry and its login.
#[derive(Clone)]
struct ActiveToken {
    access: Token,
    /// The login that it is from, as it is kept.
    login: String,
    refresh: Option<String>,
    /// Seconds since 1970.
    expires_at: Option<u64>,
    /// How long before its end it is renewed.
    renewal_margin: Duration,
}

impl ActiveToken {
    /// What is granted, if it is anything.
    fn of(grant: &Grant) -> Option<Self> {
        let stored = grant.credentials.as_ref()?;
        // The type's own accessors are a trait of another library's.
        let response = serde_json::to_value(stored.token_response.as_ref()?).ok()?;
        let text = |name: &str| response.get(name)?.as_str().map(str::to_owned);
        let lasts = response.get("expires_in").and_then(Value::as_u64);
        Some(Self {
            access: Token {
                text: text("access_token")?,
                login: 0,
            },
            login: grant.login.clone(),
            refresh: text("refresh_token"),
            expires_at: stored.token_received_at.zip(lasts).map(|(at, s)| at + s),
            // One that lasts shortly would be renewed for every request.
            renewal_margin: lasts.map_or(RENEWAL_MARGIN, |s| {
                RENEWAL_MARGIN.min(Duration::from_secs(s) / 2)
            }),
        })
    }

    fn expires_soon(&self) -> bool {
        self.expires_within(self.renewal_margin)
    }

    fn expires_within(&self, time: Duration) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.unwrap_or_default() + time;
        self.expires_at.is_some_and(|ends| ends <= now.as_secs())
    }
}

impl Auth {
    /// For the server at this address; tokens are kept below the plugin's own directory, and
    /// without one in memory.
    pub(crate) fn new(
        server: &str,
        url: &str,
        client: OAuthClient,
        data_dir: Option<&Path>,
        secrets: Secrets,
    ) -> Result<Self, String> {
        let parsed = url::Url::parse(url).map_err(|error| format!("its `url` is none: {error}"))?;
        let name = digest(format!("{parsed} {:?}", client.id).as_bytes());
        Ok(Self {
            server: server.to_owned(),
            url: url.to_owned(),
            client,
            secrets,
            store: LoginStore::new(data_dir, &name),
            cache: tokio::sync::Mutex::default(),
            logins: watch::Sender::new(0),
            challenge: Mutex::default(),
            logging_in: tokio::sync::Mutex::default(),
            declined: Mutex::default(),
        })
    }

    /// The token to send, renewed if it ends soon; none without a login.
    ///
    /// # Errors
    /// When it had to be renewed and that may work later.
    pub(crate) async fn token(&self) -> Result<Option<Token>, AuthError> {
        let mut held = self.cache.lock().await;
        if held.active.is_none()
            && let Some(kept) = self.stored_token()?
        {
            self.activate(&mut held, kept);
        }
        let Some(live) = held.active.clone() else {
            return Ok(None);
        };
        if !live.expires_soon() {
            return Ok(Some(live.access));
        }
        let renewed = self.renew(&mut held, None).await;
        let is_same_login = held.login.as_deref() == Some(live.login.as_str());
        match renewed {
            // What it is still good for, and what is wanted in its place, is the server's to say.
            Ok(None) if is_same_login => Ok(Some(live.access)),
            Err(_) if is_same_login && !live.expires_within(Duration::ZERO) => {
                Ok(Some(live.access))
            }
            renewed => renewed,
        }
    }

    /// A token in place of one that the server did not take: what another process has renewed
    /// already, or a new one.
    ///
    /// # Errors
    /// As for [`Auth::token`].
    pub(crate) async fn replacement_for(
        &self,
        refused: &Token,
    ) -> Result<Option<Token>, AuthError> {
        let mut held = self.cache.lock().await;
        if let Some(live) = held.active.as_ref().filter(|live| live.access != *refused) {
            return Ok(Some(live.access.clone()));
        }
        self.renew(&mut held, Some(refused)).await
    }

    /// Whether there is another token than the one that was sent last: somebody has logged in.
    pub(crate) async fn has_new_token(&self) -> bool {
        let held = self.cache.lock().await;
        let sent = held.active.as_ref().map(|live| &live.access);
        let sent = sent.or(held.refused_token.as_ref());
        let kept = self.stored_token().ok().flatten();
        kept.is_some_and(|live| Some(&live.access) != sent)
    }

    /// Counts the logins, and the logouts.
    pub(crate) fn logins(&self) -> watch::Receiver<u64> {
        self.logins.subscribe()
    }

    /// Looks whether somebody has logged in or out elsewhere, such as in another process.
    pub(crate) async fn check_stored_login(&self) {
        let mut held = self.cache.lock().await;
        let seen = self.store.stamp();
        let is_as_before = seen.is_some() && held.file_stamp == seen;
        if held.login.is_none() || is_as_before {
            return;
        }
        // One that is damaged says nothing.
        let Ok(kept) = self.store.load() else { return };
        held.file_stamp = seen;
        self.adopt_stored(&mut held, &kept);
    }

    /// Takes note of the login that is kept. Tokens of another one are forgotten.
    fn adopt_stored(&self, held: &mut LoginCache, kept: &StoredLogin) {
        let login = kept.current().map(|(_, grant)| grant.login.clone());
        if held.login != login {
            held.login = login;
            held.active = None;
            self.logins.send_modify(|logins| *logins += 1);
        }
    }

    /// Goes on with these tokens.
    fn activate(&self, held: &mut LoginCache, mut live: ActiveToken) -> Token {
        if held.login.as_deref() != Some(&live.login) {
            held.login = Some(live.login.clone());
            self.logins.send_modify(|logins| *logins += 1);
        }
        live.access.login = *self.logins.borrow();
        held.active.insert(live).access.clone()
    }

    /// The server wants other credentials, and said this.
    pub(crate) fn note_challenge(&self, challenge: &str) {
        *lock(&self.challenge) = Some(challenge.to_owned());
    }

    /// Whether there is a token.
    pub(crate) fn is_logged_in(&self) -> bool {
        match self.cache.try_lock() {
            Ok(held) if held.active.is_some() => true,
            _ => self.stored_token().is_ok_and(|live| live.is_some()),
        }
    }

    /// Forgets the login, and gives its tokens back to the authorization server as far as that
    /// takes them.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub(crate) async fn log_out(&self) -> Result<LogoutOutcome, String> {
        let mut held = self.cache.lock().await;
        let lock = self.store.lock().await.map_err(|error| error.to_string())?;
        *held = LoginCache::default();
        self.logins.send_modify(|logins| *logins += 1);
        // A damaged file has nothing that could be given back.
        let kept = self.store.load().unwrap_or_default();
        let removed = self.store.remove().map_err(|error| error.to_string())?;
        drop((held, lock));
        if !removed {
            return Ok(LogoutOutcome::NotLoggedIn);
        }
        let Some((issuer, grant)) = kept.current() else {
            return Ok(LogoutOutcome::Complete);
        };
        self.register_secrets(grant);
        Ok(match revoke::revoke(&self.url, issuer, grant).await {
            Ok(()) => LogoutOutcome::Complete,
            Err(why) => {
                LogoutOutcome::LocalOnly(beginning(self.secrets.redact(why), MAX_REASON_BYTES))
            }
        })
    }

    /// The token of the login that is stored, if there is one.
    fn stored_token(&self) -> Result<Option<ActiveToken>, AuthError> {
        let kept = self.store.load().map_err(|error| store_failed(&error))?;
        Ok(kept.current().and_then(|(_, grant)| self.active(grant)))
    }

    /// What is granted, if it is anything; nothing of it is shown from now on.
    fn active(&self, grant: &Grant) -> Option<ActiveToken> {
        self.register_secrets(grant);
        ActiveToken::of(grant)
    }

    /// Nothing of it is shown from now on.
    fn register_secrets(&self, grant: &Grant) {
        let live = ActiveToken::of(grant);
        let live = live.as_ref();
        let tokens = [
            grant.client_secret.as_deref(),
            live.and_then(|live| live.refresh.as_deref()),
            live.map(|live| live.access.expose()),
        ];
        for token in tokens.into_iter().flatten() {
            self.secrets.add(token);
        }
    }

    /// Renews the token, one process at a time. What another one has saved meanwhile is taken
    /// over: a refresh token is often good for one use only.
    async fn renew(
        &self,
        held: &mut LoginCache,
        refused: Option<&Token>,
    ) -> Result<Option<Token>, AuthError> {
        let _lock = self
            .store
            .lock()
            .await
            .map_err(|error| store_failed(&error))?;
        let mut kept = self.store.load().map_err(|error| store_failed(&error))?;
        self.adopt_stored(held, &kept);
        let Some((issuer, grant)) = kept.current() else {
            return Ok(None);
        };
        let Some(live) = self.active(grant) else {
            held.active = None;
            return Ok(None);
        };
        if Some(&live.access) != refused && !live.expires_soon() {
            return Ok(Some(self.activate(held, live)));
        }
        let refresh = live.refresh.as_deref().map(|text| digest(text.as_bytes()));
        if refresh.is_none() || refresh == held.dead_refresh_token {
            held.reject(live);
            return Ok(None);
        }
        let (issuer, grant) = (issuer.to_owned(), grant.clone());
        let mut manager = AuthorizationManager::new(self.url.as_str()).await?;
        let metadata = manager.resolve_metadata().await?.metadata;
        if issuer_of(&metadata) != issuer {
            // What this one gave is nobody else's to see. The next login is at the other.
            held.reject(live);
            return Ok(None);
        }
        endpoints::check_renewal(&metadata)?;
        manager.set_metadata(metadata);
        manager.configure_client(grant.client())?;
        let memory = InMemoryCredentialStore::new();
        if let Some(credentials) = grant.credentials.clone() {
            memory.save(credentials).await?;
        }
        manager.set_credential_store(memory.clone());
        match manager.refresh_token().await {
            Ok(_) => {}
            Err(AuthError::TokenRefreshRejected(_) | AuthError::AuthorizationRequired) => {
                held.reject(live);
                held.dead_refresh_token = refresh;
                return Ok(None);
            }
            Err(error) => return Err(error),
        }
        let grant = Grant {
            credentials: memory.load().await?,
            ..grant
        };
        held.active = None;
        let token = self.active(&grant).map(|live| self.activate(held, live));
        kept.put(issuer, grant);
        self.store
            .save(&kept)
            .map_err(|error| store_failed(&error))?;
        Ok(token)
    }
}

/// The name under which a server's credentials are kept. Without metadata that is the place from
/// which its endpoints were guessed.
fn issuer_of(metadata: &AuthorizationMetadata) -> String {
    let issuer = metadata.issuer.as_ref();
    issuer.unwrap_or(&metadata.token_endpoint).clone()
}

fn store_failed(error: &std::io::Error) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Grant {
    /// The client to which it was given.
    fn client(&self) -> OAuthClientConfig {
        let client = OAuthClientConfig::new(&self.client_id, &self.redirect_uri);
        match &self.client_secret {
            Some(secret) => client.with_client_secret(secret),
            None => client,
        }
    }
}
