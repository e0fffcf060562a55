//! Calls without a model, through the same routing and the same operations.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use conjure_core::chat::FunctionCall;
use conjure_core::routing::RoutingTable;
use tokio_util::sync::CancellationToken;

use super::derived::{call_timeout, most_bytes};
use super::handle::SessionError;
use super::place::Place;
use super::spec::{BackendSpec, SessionSpec};
use crate::backend::run::Runner;
use crate::backend::{CallReport, LiveOutput, Snapshot, Toolbox};
use crate::shared::Shared;
use crate::store::ThreadId;

/// A session without a model: its tools are those of the moment at which it was opened, its
/// state lasts from call to call, and no policy is asked.
pub struct Calls {
    toolbox: Toolbox,
    snapshot: Snapshot,
    place: Place,
    spec: SessionSpec,
    live: LiveOutput,
}

impl Calls {
    /// Attaches the backends.
    pub(crate) async fn open(shared: Arc<Shared>, spec: SessionSpec) -> Result<Self, SessionError> {
        let thread = ThreadId::fresh();
        let place = Place::make(&shared, &spec, &thread, None)?;
        let mut toolbox = Toolbox::attach(
            shared,
            place.around.clone(),
            place.services.clone(),
            spec.routing.clone(),
            BTreeMap::new(),
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
            live: Arc::new(|_, _| {}),
        })
    }

    /// The tools that there are.
    #[must_use]
    pub fn table(&self) -> &RoutingTable {
        self.snapshot.table()
    }

    /// Runs one call. Calls may run at the same time; whoever needs an order waits.
    ///
    /// Cancelling gives the tool its grace and keeps what it had said. Dropping the future ends
    /// the call too.
    ///
    /// # Errors
    /// When there is no such tool. A call that fails is a report.
    pub async fn call(
        &self,
        call: &FunctionCall,
        cancel: &CancellationToken,
    ) -> Result<CallReport, SessionError> {
        let Some(found) = self.snapshot.look_up(&call.name) else {
            return Err(self.unknown(&call.name));
        };
        let runner = Runner {
            snapshot: &self.snapshot,
            around: &self.place.around,
            artifacts: &self.place.services.artifacts,
            turn_id: None,
            timeout: call_timeout(&self.spec),
            most_bytes: most_bytes(&self.spec),
            cancel,
            live: &self.live,
        };
        Ok(runner.routed(call, found).await)
    }

    fn unknown(&self, name: &str) -> SessionError {
        let hint = if self.spec.backends.iter().all(BackendSpec::is_native) {
            " No executor is named, so there are no command tools: name one, such as \
             `--executor local`."
        } else {
            ""
        };
        let routes = self.table().routes().iter();
        let names: Vec<&str> = routes.map(|route| route.name.as_str()).collect();
        let known = if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        };
        SessionError::Provider {
            message: format!("there is no tool `{name}`; there are: {known}.{hint}"),
        }
    }

    /// Ends what the calls started.
    pub async fn close(mut self) {
        self.toolbox.close().await;
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("session", &self.place.around.session)
            .finish_non_exhaustive()
    }
}
