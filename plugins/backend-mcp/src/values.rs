//! Values of settings as a session has them: variables expanded, secrets put in.

use conjure_skill_sdk::Cx;

use crate::config::{PlainSetting, Setting};
use crate::variables::expanded;

impl PlainSetting {
    /// The text that it stands for in a session.
    async fn value(&self, cx: &Cx, secrets: &mut Vec<String>) -> Result<String, String> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::Expanded { expand: text } => expanded(text, cx, secrets).await,
        }
    }
}

pub(crate) async fn resolve_plain(
    setting: Option<&PlainSetting>,
    cx: &Cx,
    secrets: &mut Vec<String>,
) -> Result<Option<String>, String> {
    match setting {
        Some(setting) => setting.value(cx, secrets).await.map(Some),
        None => Ok(None),
    }
}

/// A value, with the secrets in it noted.
pub(crate) async fn value(
    setting: &Setting,
    cx: &Cx,
    secrets: &mut Vec<String>,
) -> Result<String, String> {
    match setting {
        Setting::Plain(text) => text.value(cx, secrets).await,
        Setting::Secret(name) => {
            let secret = cx.secret_async(&name.secret).await;
            let secret = secret.map_err(|error| error.message().to_owned())?;
            let text = format!("{}{secret}", name.prefix);
            secrets.push(secret);
            Ok(text)
        }
    }
}
