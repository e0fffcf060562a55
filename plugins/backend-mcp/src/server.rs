//! A server as configured, with its secrets filled in: what a connection is made from.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use conjure_skill_sdk::Cx;
use conjure_skill_sdk::protocol::ServedClient;
use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue};
use url::Url;

use crate::config::{ServerConfig, check_address};
use crate::digest::digest;
use crate::oauth::{Auth, OAuthClient};
use crate::secrets::Secrets;
use crate::values::{resolve_plain, value};
use crate::variables::provider_key;

/// One server for those who have its credentials.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) config: ServerConfig,
    /// The program of a server over stdio, and where it runs if that is configured.
    pub(crate) command: Option<String>,
    pub(crate) cwd: Option<String>,
    pub(crate) args: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    /// The endpoint of a server over HTTP.
    pub(crate) url: Option<String>,
    pub(crate) headers: HashMap<HeaderName, HeaderValue>,
    /// Secrets that must not be shown, those of the login too.
    pub(crate) secrets: Secrets,
    /// The login, for a server over HTTP that has no credentials in its configuration.
    pub(crate) auth: Option<Arc<Auth>>,
    /// The program on the other side of the session that it was resolved for.
    pub(crate) client: Option<ServedClient>,
    /// Tells configurations apart.
    pub(crate) hash: String,
    /// Tells credentials and clients apart, without telling what they are.
    pub(crate) principal: String,
}

impl Server {
    /// Asks the host for the secrets that the configuration names.
    pub(crate) async fn resolve(
        name: &str,
        config: &ServerConfig,
        cx: &Cx,
        data_dir: Option<&Path>,
    ) -> Result<Self, String> {
        let mut secrets = Vec::new();
        let command = resolve_plain(config.command.as_ref(), cx, &mut secrets).await?;
        let cwd = resolve_plain(config.cwd.as_ref(), cx, &mut secrets).await?;
        let mut args = Vec::new();
        for setting in &config.args {
            args.push(value(setting, cx, &mut secrets).await?);
        }
        let url = match &config.url {
            Some(setting) => {
                let url = value(setting, cx, &mut secrets).await?;
                check_address(&url)?;
                Some(url)
            }
            None => None,
        };
        let mut env = BTreeMap::new();
        for variable in &config.pass_env {
            if let Some(key) = provider_key(variable, cx).await {
                secrets.push(key.clone());
                env.insert(variable.clone(), key);
            }
        }
        for (variable, setting) in &config.env {
            let value = value(setting, cx, &mut secrets).await?;
            env.insert(variable.clone(), value);
        }
        let mut headers = HashMap::new();
        for (header, setting) in &config.headers {
            let text = value(setting, cx, &mut secrets).await?;
            let name = HeaderName::try_from(header.as_str())
                .map_err(|_| format!("`{header}` cannot be the name of a header"))?;
            let mut text = HeaderValue::try_from(text)
                .map_err(|_| format!("the value of the header `{header}` cannot be sent"))?;
            text.set_sensitive(true);
            headers.insert(name, text);
        }
        let login = match &url {
            Some(url) if !headers.contains_key(&AUTHORIZATION) => {
                let client = OAuthClient::resolve(&config.oauth, cx, &mut secrets).await?;
                Some((url, client))
            }
            _ => None,
        };
        let client = cx.client();
        // What a server lists may depend on what it was told that it can ask.
        let whose = format!("{client:?} {command:?} {cwd:?} {args:?} {env:?} {url:?}");
        let whose = format!("{whose}\n{}", secrets.join("\n"));
        let principal = digest(whose.as_bytes());
        secrets.extend(url.as_deref().map(in_url).unwrap_or_default());
        let secrets = Secrets::new(secrets);
        let auth = match login {
            Some((url, client)) => {
                let auth = Auth::new(name, url, client, data_dir, secrets.clone())?;
                Some(Arc::new(auth))
            }
            None => None,
        };
        Ok(Self {
            name: name.to_owned(),
            command,
            cwd,
            args,
            env,
            url,
            headers,
            hash: hash(name, config),
            client,
            principal,
            secrets,
            auth,
            config: config.clone(),
        })
    }
}

/// What of an address may be a secret: its password and the values behind its question mark.
fn in_url(url: &str) -> Vec<String> {
    let Ok(url) = Url::parse(url) else {
        return Vec::new();
    };
    let raw = url.query().unwrap_or_default().split('&');
    let raw = raw.filter_map(|pair| Some(pair.split_once('=')?.1.to_owned()));
    let read = url.query_pairs().map(|(_, value)| value.into_owned());
    let mut found: Vec<String> = raw.chain(read).collect();
    found.extend(url.password().map(str::to_owned));
    found
}

/// What the server is: when it is started, and how long things may take, says nothing of it.
fn hash(name: &str, config: &ServerConfig) -> String {
    let ServerConfig {
        command,
        args,
        env,
        pass_env,
        cwd,
        confine,
        sandbox,
        url,
        headers,
        era,
        mode,
        tools,
        oauth,
        ..
    } = config;
    let what = (
        name, command, args, env, pass_env, cwd, confine, sandbox, url, headers, oauth,
    );
    digest(format!("{what:?} {era:?} {mode:?} {tools:?}").as_bytes())
}
