//! Passwords of registries, where Docker keeps them: its `config.json`, or the helpers that this names.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use conjure_config::{env, fs};
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

/// How long a helper may take: it may ask a person to open a keyring.
const HELPER_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of a helper's answer.
const MAX_ANSWER_BYTES: u64 = 64 * 1024;

/// The user that stands for a token, which has to be exchanged at another address.
const TOKEN_USER: &str = "<token>";

/// What a helper says that has no password for a registry.
const NOT_FOUND: &str = "credentials not found";

/// What `docker login` keeps for a registry; nobody's where there is nothing.
///
/// # Errors
/// What is wrong with a helper, and what to do.
pub(crate) async fn auth(registry: &str) -> Result<RegistryAuth, String> {
    let dir = env::var(env::DOCKER_CONFIG).map(Into::into);
    let dir = dir.or_else(|| env::home().map(|home| home.join(".docker")));
    let kept = dir.and_then(|dir| fs::read_to_string(dir.join("config.json")).ok());
    let config = kept.and_then(|text| serde_json::from_str::<Value>(&text).ok());
    let Some(config) = config else {
        return Ok(RegistryAuth::Anonymous);
    };
    let found = match helper(&config, registry) {
        Some(name) => ask_helper(name, registry, HELPER_TIMEOUT).await?,
        None => None,
    };
    let kept = || stored_auth(&config, registry);
    Ok(found.or_else(kept).unwrap_or(RegistryAuth::Anonymous))
}

/// The name under which Docker keeps what it knows of a registry.
fn key(registry: &str) -> &str {
    match registry {
        "docker.io" | "index.docker.io" => "https://index.docker.io/v1/",
        registry => registry,
    }
}

/// The helper that is asked about a registry: the registry's own, or that of all.
fn helper<'a>(config: &'a Value, registry: &str) -> Option<&'a str> {
    let own = config.get("credHelpers");
    let own = own.and_then(|helpers| helpers.get(key(registry)).or_else(|| helpers.get(registry)));
    let name = own.or_else(|| config.get("credsStore"))?.as_str()?;
    Some(name).filter(|name| !name.is_empty())
}

fn stored_auth(config: &Value, registry: &str) -> Option<RegistryAuth> {
    let auth = config.get("auths")?.get(key(registry))?.get("auth")?;
    let auth = base64::engine::general_purpose::STANDARD
        .decode(auth.as_str()?)
        .ok()?;
    let auth = String::from_utf8(auth).ok()?;
    let (user, password) = auth.split_once(':')?;
    Some(RegistryAuth::Basic(user.to_owned(), password.to_owned()))
}

/// What a helper answers.
#[derive(Deserialize)]
struct HelperAnswer {
    #[serde(rename = "Username", default)]
    username: String,
    #[serde(rename = "Secret", default)]
    secret: String,
}

/// Asks `docker-credential-NAME get`; nothing where it knows no password.
async fn ask_helper(
    name: &str,
    registry: &str,
    patience: Duration,
) -> Result<Option<RegistryAuth>, String> {
    let program = format!("docker-credential-{name}");
    let failed = |what: String| {
        format!(
            "Docker's `config.json` says that `{program}` knows the password of {registry}, and {what}. \
             Mend or remove that helper, or log in again with `docker login`"
        )
    };
    // A name is no path: what is run is a program of the user's `PATH`.
    if name.contains(['/', '\\', '\0']) {
        return Err(failed("that is no name of a program".to_owned()));
    }
    let answered = tokio::time::timeout(patience, run_helper(&program, key(registry)));
    let (is_fine, text, said) = match answered.await {
        Ok(Ok(answered)) => answered,
        Ok(Err(error)) => return Err(failed(format!("it cannot be asked: {error}"))),
        Err(_) => {
            let seconds = patience.as_secs();
            return Err(failed(format!("it did not answer within {seconds} s")));
        }
    };
    if !is_fine {
        // Docker's own helpers say why on their standard output.
        let reason = [&text, &said].map(|text| text.trim().to_owned()).join(" ");
        if reason.to_lowercase().contains(NOT_FOUND) {
            return Ok(None);
        }
        return Err(failed(match reason.trim() {
            "" => "it failed without a word".to_owned(),
            reason => format!("it failed: {reason}"),
        }));
    }
    // What it answered may hold a password, so it is not shown.
    let answer = serde_json::from_str::<HelperAnswer>(&text)
        .map_err(|_| failed("it answered something else than a user and a secret".to_owned()))?;
    match (answer.username.as_str(), answer.secret.is_empty()) {
        (TOKEN_USER, _) => Err(failed(
            "it has a token that is no password, which is not supported".to_owned(),
        )),
        (_, true) => Ok(None),
        (_, false) => Ok(Some(RegistryAuth::Basic(answer.username, answer.secret))),
    }
}

/// Runs a helper: whether it ended well, its standard output and its standard error.
async fn run_helper(program: &str, registry: &str) -> std::io::Result<(bool, String, String)> {
    let mut command = std::process::Command::new(program);
    env::remove_secrets(&mut command);
    let mut child = Command::from(command)
        .arg("get")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read says why in its answer.
        let _ = stdin.write_all(registry.as_bytes()).await;
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (mut text, mut said) = (Vec::new(), Vec::new());
    let stdout = async {
        match stdout {
            Some(stdout) => stdout.take(MAX_ANSWER_BYTES).read_to_end(&mut text).await,
            None => Ok(0),
        }
    };
    let stderr = async {
        match stderr {
            Some(stderr) => stderr.take(MAX_ANSWER_BYTES).read_to_end(&mut said).await,
            None => Ok(0),
        }
    };
    tokio::try_join!(stdout, stderr)?;
    let status = child.wait().await?;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((status.success(), words(&text), words(&said)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_password_of_that_registry_is_taken() {
        let config = json!({ "auths": { "r.example": { "auth": "dTpwOnE=" }, "x": {} } });
        assert_eq!(
            stored_auth(&config, "r.example"),
            Some(RegistryAuth::Basic("u".to_owned(), "p:q".to_owned()))
        );
        for other in ["x", "example", "other.example"] {
            assert_eq!(stored_auth(&config, other), None);
        }
    }

    #[test]
    fn a_registrys_own_helper_is_asked_before_that_of_all() {
        let config = json!({ "credHelpers": { "r.example": "own" }, "credsStore": "all" });
        assert_eq!(helper(&config, "r.example"), Some("own"));
        assert_eq!(helper(&config, "s.example"), Some("all"));
        assert_eq!(helper(&json!({ "credsStore": "" }), "s.example"), None);
        assert_eq!(helper(&json!({}), "s.example"), None);
    }
}
