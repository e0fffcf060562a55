//! Anthropic's hosted skills as a backend.
//!
//! *Inline*: where the session's own provider is Anthropic, the skills and their container ride in
//! the session's requests, and this backend only says what to add and looks at what came. *Delegated*:
//! with any other provider each skill is a tool, and a call of it is a conversation that this
//! backend holds with Anthropic. Files go both ways through the Files API. Begin at `inline.rs`
//! and `delegated.rs`.

mod api;
mod config;
mod conversation;
mod delegated;
mod files;
mod inline;
mod items;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use conjure_skill_sdk::protocol::{
    BackendCall, CatalogReply, CatalogRequest, Contribute, Contribution, FileRef, FilesGet,
    FilesPut, Observation, Observe, Open, Permissions, ToolResult,
};
use conjure_skill_sdk::{
    Backend, BackendPlugin, Contributes, Cx, Error, Files, Result, export_backend,
};

use crate::api::AnthropicApi;
use crate::config::{AnthropicSettings, KEY_VARIABLE};
use crate::session::AnthropicSessions;

/// The provider whose requests the skills ride in.
const PROVIDER: &str = "anthropic";

/// The hosted skills of one configuration, for many sessions at once.
struct Hosted {
    settings: Arc<AnthropicSettings>,
    api: AnthropicApi,
    sessions: AnthropicSessions,
}

impl Hosted {
    /// Whether the skills are in the requests of this provider.
    fn is_inline(&self, provider: Option<&str>) -> bool {
        provider == Some(PROVIDER)
    }
}

impl Backend for Hosted {
    async fn open(&self, cx: Cx, request: Open) -> Result<()> {
        self.sessions.open(cx.session(), request.state);
        Ok(())
    }

    async fn catalog(&self, cx: Cx) -> Result<CatalogReply> {
        self.catalog_for(cx, CatalogRequest::default()).await
    }

    async fn catalog_for(&self, cx: Cx, request: CatalogRequest) -> Result<CatalogReply> {
        let tools = if self.is_inline(request.provider.as_deref()) {
            vec![inline::upload_tool()]
        } else {
            let skills = delegated::skills(self, &cx).await?;
            skills.iter().map(delegated::tool).collect()
        };
        Ok(CatalogReply {
            tools,
            ..CatalogReply::default()
        })
    }

    async fn call(&self, cx: Cx, request: BackendCall) -> Result<ToolResult> {
        match (request.skill.as_deref(), request.name.as_str()) {
            (None, inline::UPLOAD_TOOL) => inline::upload(self, &cx, &request).await,
            (Some(skill), delegated::RUN_TOOL) => delegated::run(self, &cx, skill, &request).await,
            (_, name) => Err(Error::not_found(format!("there is no tool `{name}` here"))),
        }
    }

    async fn close(&self, cx: Cx) -> Result<()> {
        self.sessions.close(cx.session());
        Ok(())
    }
}

impl Contributes for Hosted {
    async fn contribute(&self, cx: Cx, request: Contribute) -> Result<Contribution> {
        if !self.is_inline(Some(&request.provider)) {
            return Ok(Contribution::default());
        }
        self.sessions
            .with(cx.session(), |it| inline::contribution(&self.settings, it))
    }

    async fn observe(&self, cx: Cx, request: Observe) -> Result<Observation> {
        if !self.is_inline(Some(&request.provider)) {
            return Ok(Observation::default());
        }
        inline::observe(self, &cx, &request).await
    }
}

impl Files for Hosted {
    async fn put(&self, cx: Cx, request: FilesPut) -> Result<FileRef> {
        files::put(self, &cx, &request.file).await
    }

    async fn get(&self, cx: Cx, request: FilesGet) -> Result<FileRef> {
        files::get(self, &cx, &request).await
    }
}

fn plugin() -> BackendPlugin<Hosted> {
    BackendPlugin::new(
        "anthropic",
        "Anthropic's hosted skills: documents, tables and slides made in its own container",
        |setup| {
            let settings = Arc::new(AnthropicSettings::from_setup(&setup)?);
            Ok(Hosted {
                api: AnthropicApi::new(&settings)?,
                settings,
                sessions: AnthropicSessions::default(),
            })
        },
    )
    .config_schema(config::schema())
    .requires("secret.get/1")
    .permissions(Permissions {
        secrets: vec![KEY_VARIABLE.to_owned()],
        ..Permissions::default()
    })
    .with_contributions()
    .with_files_of_calls()
}

export_backend!(plugin, name = "anthropic");
