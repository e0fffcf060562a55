//! Single calls without a model, through the same routing and the same operations.

use std::sync::Arc;

use conjure_core::chat::FunctionCall;
use tokio_util::sync::CancellationToken;

use super::derived::{call_timeout, most_bytes};
use super::handle::SessionError;
use super::place::Place;
use super::spec::SessionSpec;
use crate::backend::run::Runner;
use crate::backend::{CallReport, Snapshot, Toolbox};
use crate::shared::Shared;
use crate::store::ThreadId;

/// A session without a model.
pub(crate) struct CallOnly {
    toolbox: Toolbox,
    snapshot: Snapshot,
    place: Place,
    spec: SessionSpec,
}

impl CallOnly {
    /// Attaches the backends.
    pub(crate) async fn open(shared: Arc<Shared>, spec: SessionSpec) -> Result<Self, SessionError> {
        let thread = ThreadId::fresh();
        let place = Place::make(&shared, &spec, &thread, None)?;
        let mut toolbox = Toolbox::attach(
            shared,
            place.around.clone(),
            place.services.clone(),
            spec.routing.clone(),
            &spec.backends,
        )
        .await?;
        let snapshot = match toolbox.snapshot() {
            Ok(snapshot) => snapshot,
            Err(error) => {
                toolbox.close().await;
                return Err(error.into());
            }
        };
        Ok(Self {
            toolbox,
            snapshot,
            place,
            spec,
        })
    }

    /// Runs one call.
    pub(crate) async fn call(
        &self,
        call: FunctionCall,
        has_executor: bool,
    ) -> Result<CallReport, SessionError> {
        if self.snapshot.table().route(&call.name).is_none() {
            let names: Vec<&str> = self
                .snapshot
                .table()
                .routes()
                .iter()
                .map(|r| r.name.as_str())
                .collect();
            let hint = if has_executor {
                ""
            } else {
                " No executor is named, so there are no command tools: name one, such as \
                 `--executor local`."
            };
            let known = if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            };
            return Err(SessionError::Provider {
                message: format!(
                    "there is no tool `{}`; there are: {known}.{hint}",
                    call.name
                ),
            });
        }
        let runner = Runner {
            snapshot: &self.snapshot,
            around: &self.place.around,
            artifacts: &self.place.services.artifacts,
            turn_id: None,
            timeout: call_timeout(&self.spec),
            most_bytes: most_bytes(&self.spec),
            cancel: CancellationToken::new(),
            live: Arc::new(|_, _| {}),
        };
        Ok(runner.run(&call).await)
    }

    /// Ends what the calls started.
    pub(crate) async fn close(mut self) {
        self.toolbox.close().await;
        self.place.exchange.remove();
    }
}
