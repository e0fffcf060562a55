//! Sessions for calls without a model, as a host opens them.

use std::path::PathBuf;
use std::sync::Arc;

use async_recursion::async_recursion as boxed;
use conjure_core::chat::FunctionCall;
use tokio_util::sync::CancellationToken;

use crate::backend::CallReport;
use crate::backend::plugin_grants::PluginGrants;
use crate::backend::questions::SessionClient;
use crate::host::Host;
use crate::session::{SessionError, ToolSession};
use conjure_config::{SessionSpec, SpecError};

impl Host {
    /// Runs one call without a model: with these skill folders, on this executor.
    ///
    /// Native skills are always there. With no executor named there are no command tools, and a
    /// call of one says how to name it.
    ///
    /// # Errors
    /// [`SessionError`] when the tools cannot be made ready. A call that fails is a report.
    #[boxed]
    pub async fn execute(
        &self,
        call: FunctionCall,
        skills: &[PathBuf],
        executor: Option<&str>,
    ) -> Result<CallReport, SessionError> {
        let calls = self.calls(SessionSpec::calls(skills, executor)).await?;
        let report = calls.call(&call, &CancellationToken::new()).await;
        calls.close().await;
        report
    }

    /// Opens a session for calls without a model. The provider and the policy of the
    /// specification are not looked at.
    ///
    /// # Errors
    /// [`SessionError`] when the tools cannot be made ready, or a plugin cannot be granted what the
    /// specification says; nothing stays open then.
    #[boxed]
    pub async fn calls(&self, spec: SessionSpec) -> Result<ToolSession, SessionError> {
        self.check_grants(&spec)?;
        self.calls_unchecked(spec).await
    }

    /// Like [`Self::calls`], for a specification that was looked at before: its plugins may have changed
    /// since, and each gets of its grant what it asks for now.
    pub(crate) async fn calls_unchecked(
        &self,
        spec: SessionSpec,
    ) -> Result<ToolSession, SessionError> {
        let spec = self.shared.with_auths(spec, false).await?;
        ToolSession::open(Arc::clone(&self.shared), spec).await
    }

    /// Like [`Self::calls`] without its check of the grants, for a program on the other side that
    /// plugins may ask. A model is there for them too when the specification names its provider. Whoever
    /// opens several looks at the specification before the first: [`Host::check_grants`].
    ///
    /// # Errors
    /// [`SessionError`] when the tools cannot be made ready; nothing stays open then.
    #[boxed]
    pub async fn calls_for(
        &self,
        spec: SessionSpec,
        client: Arc<dyn SessionClient>,
    ) -> Result<ToolSession, SessionError> {
        let spec = self.shared.with_auths(spec, true).await?;
        ToolSession::open_for(Arc::clone(&self.shared), spec, Some(client)).await
    }

    /// Whether plugins can be granted what a specification says, as far as those that are loaded tell.
    ///
    /// # Errors
    /// [`SpecError::Invalid`] names the plugin and the permission.
    pub fn check_grants(&self, spec: &SessionSpec) -> Result<(), SpecError> {
        PluginGrants::of(&spec.plugins).check(&self.shared.instances.registry.snapshot())
    }
}

#[cfg(test)]
mod tests {
    use conjure_config::BackendSpec;
    use conjure_skill_sdk::protocol::ServedClient;
    use futures_util::FutureExt as _;
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::backend::questions::{ClientAnswer, ClientQuestion, QuestionSource};

    /// Answers nothing.
    struct MuteClient;

    impl SessionClient for MuteClient {
        fn declares(&self) -> ServedClient {
            ServedClient::default()
        }

        fn ask(
            &self,
            _by: QuestionSource,
            questions: Vec<ClientQuestion>,
        ) -> BoxFuture<'static, Vec<ClientAnswer>> {
            std::future::ready(questions.iter().map(|_| None).collect()).boxed()
        }
    }

    #[tokio::test]
    async fn a_plugin_that_went_away_keeps_no_session_from_opening_whose_grants_were_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::builder().data_dir(dir.path()).build().await.unwrap();
        let text = "[plugins.gone]\npermissions = {}";
        let spec = SessionSpec {
            backends: vec![BackendSpec::all_native()],
            ..SessionSpec::from_toml(text).unwrap()
        };
        let refused = host.check_grants(&spec).unwrap_err().to_string();
        assert!(refused.contains("no plugin is called `gone`"), "{refused}");
        let Err(SessionError::Spec(again)) = host.calls(spec.clone()).await else {
            panic!("it is not refused, or for something else");
        };
        assert_eq!(again.to_string(), refused);
        let served = host.calls_for(spec.clone(), Arc::new(MuteClient)).await;
        served.unwrap().close().await;
        let recorded = host.calls_unchecked(spec).await;
        recorded.unwrap().close().await;
    }
}
