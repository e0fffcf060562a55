//! From bytes to author code and back: the inner side of the plugin object.
//!
//! Every way into an instance goes through here; what author code panics is caught (see
//! [`crate::guard`]), because nothing outside the plugin can.

use conjure_abi::{CallContext, Fault, FfiFuture, FutureExt, Plugin, RResult, RSlice, Reply, code};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::envelope::{self, Envelope};
use crate::error::{Error, Result, to_fault};
use crate::guard::guard;

/// An instance, behind the ABI's object.
pub(crate) trait Dispatch: Send + Sync + 'static {
    /// Runs an operation on the calling thread.
    fn call(&self, op: &str, json: &[u8], cx: CallContext) -> Result<Vec<u8>>;

    /// Starts an operation on the instance's own runtime, if it has one.
    fn start(&self, op: &str, json: &[u8], cx: CallContext) -> FfiFuture<Reply> {
        let _ = (json, cx);
        let fault = Fault::new(
            code::UNSUPPORTED,
            format!("this plugin is not asynchronous: `{op}` goes through `call`"),
        );
        std::future::ready(RResult::RErr(fault)).into_ffi()
    }
}

/// The object that crosses the boundary. It holds an instance until it is dropped.
pub(crate) struct GuardedPlugin<D>(Option<D>);

impl<D> GuardedPlugin<D> {
    pub(crate) fn new(instance: D) -> Self {
        Self(Some(instance))
    }

    fn instance(&self) -> Result<&D> {
        self.0
            .as_ref()
            .ok_or_else(|| Error::with_code(code::GONE, "the instance is over"))
    }
}

impl<D> Drop for GuardedPlugin<D> {
    fn drop(&mut self) {
        // A panic that leaves a destructor here would end the host's process. There is nobody
        // to tell.
        let _ = guard(|| {
            drop(self.0.take());
            Ok(())
        });
    }
}

impl<D: Dispatch> Plugin for GuardedPlugin<D> {
    fn call(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> Reply {
        let Ok(name) = std::str::from_utf8(op.as_slice()) else {
            return invalid_name();
        };
        match guard(|| self.instance()?.call(name, json.as_slice(), cx)) {
            Ok(bytes) => RResult::ROk(bytes.into()),
            Err(error) => RResult::RErr(to_fault(error)),
        }
    }

    fn start(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>, cx: CallContext) -> FfiFuture<Reply> {
        let Ok(name) = std::str::from_utf8(op.as_slice()) else {
            return std::future::ready(invalid_name()).into_ffi();
        };
        match guard(|| Ok(self.instance()?.start(name, json.as_slice(), cx))) {
            Ok(future) => future,
            Err(error) => std::future::ready(RResult::RErr(to_fault(error))).into_ffi(),
        }
    }
}

fn invalid_name() -> Reply {
    RResult::RErr(Fault::new(
        code::INVALID,
        "the operation's name is not UTF-8",
    ))
}

/// Reads a request.
pub(crate) fn decode<B: DeserializeOwned>(op: &str, json: &[u8]) -> Result<(B, Envelope)> {
    envelope::read(json)
        .map_err(|error| Error::invalid(format!("the request for `{op}` does not fit: {error}")))
}

/// Writes a reply.
pub(crate) fn encode<T: Serialize>(reply: &T) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(reply)?)
}

pub(crate) fn unsupported(op: &str) -> Error {
    Error::with_code(
        code::UNSUPPORTED,
        format!("this plugin has no operation `{op}`"),
    )
}

/// The answer of an operation that is not carried out.
#[cfg(feature = "async")]
pub(crate) fn refuse(error: Error) -> crate::runtime::OperationFuture {
    Box::pin(async { Err(error) })
}

/// Decodes a request, awaits author code with its context and body, and encodes the reply.
#[cfg(feature = "async")]
macro_rules! answer {
    ($op:expr, $json:expr, $raw:expr, |$cx:ident, $body:ident $(: $ty:ty)?| $run:expr) => {{
        match $crate::dispatch::decode $(::<$ty>)? ($op, $json) {
            Ok(($body, envelope)) => {
                let raw = $raw;
                Box::pin(async move {
                    let $cx = $crate::Cx::new(raw, envelope);
                    $crate::dispatch::encode(&$run.await?)
                })
            }
            Err(error) => $crate::dispatch::refuse(error),
        }
    }};
}
#[cfg(feature = "async")]
pub(crate) use answer;
