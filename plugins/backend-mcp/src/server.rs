//! A server as configured, with its secrets filled in: what a connection is made from.

use std::collections::{BTreeMap, HashMap};

use conjure_skill_sdk::Cx;
use http::{HeaderName, HeaderValue};
use sha2::{Digest as _, Sha256};

use crate::config::{ServerConfig, Setting};

/// One server for those who have its credentials.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) config: ServerConfig,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) headers: HashMap<HeaderName, HeaderValue>,
    /// What must not be shown.
    pub(crate) secrets: Vec<String>,
    /// Tells configurations apart.
    pub(crate) hash: String,
    /// Tells credentials apart, without telling what they are.
    pub(crate) principal: String,
}

impl Server {
    /// Asks the host for the secrets that the configuration names.
    pub(crate) async fn resolve(
        name: &str,
        config: &ServerConfig,
        cx: &Cx,
    ) -> Result<Self, String> {
        let mut secrets = Vec::new();
        let mut env = BTreeMap::new();
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
        Ok(Self {
            name: name.to_owned(),
            env,
            headers,
            hash: hash(name, config),
            principal: digest(secrets.join("\n").as_bytes()),
            secrets,
            config: config.clone(),
        })
    }
}

async fn value(setting: &Setting, cx: &Cx, secrets: &mut Vec<String>) -> Result<String, String> {
    match setting {
        Setting::Plain(text) => Ok(text.clone()),
        Setting::Secret(name) => {
            let secret = cx.secret_async(&name.secret).await;
            let secret = secret.map_err(|error| error.message().to_owned())?;
            let text = format!("{}{secret}", name.prefix);
            secrets.push(secret);
            Ok(text)
        }
    }
}

/// What the server is: when it is started, and how long things may take, says nothing of it.
fn hash(name: &str, config: &ServerConfig) -> String {
    let ServerConfig {
        command,
        args,
        env,
        pass_env,
        cwd,
        url,
        headers,
        era,
        mode,
        tools,
        ..
    } = config;
    let what = (name, command, args, env, pass_env, cwd, url, headers);
    digest(format!("{what:?} {era:?} {mode:?} {tools:?}").as_bytes())
}

/// The first 16 hex digits of a SHA-256.
pub(crate) fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
