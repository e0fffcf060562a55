//! A host for tests: drives the plugin through the real ABI object and keeps what it does.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use conjure_skill_sdk::abi::{
    CallContext, CallCx, CallCx_TO, Fault, FfiFuture, FutureExt, PluginObject, RArc, RResult,
    RSlice, RVec, Reply, TD_Opaque, code,
};
use conjure_skill_sdk::protocol::host_op;
use serde_json::{Value, json};

/// How long a test waits for something that must happen.
const DEADLINE: Duration = Duration::from_secs(30);

/// One call, seen from the host.
#[derive(Clone, Default)]
pub(crate) struct ObservedCall(Arc<ObservedState>);

#[derive(Default)]
struct ObservedState {
    over: Mutex<bool>,
    changed: Condvar,
    emitted: Mutex<Vec<(u32, Vec<u8>)>>,
    logged: Mutex<Vec<Vec<u8>>>,
}

/// Makes an instance through the root.
pub(crate) fn create() -> PluginObject {
    let create = json!({ "host": { "name": "test", "version": "1" } }).to_string();
    match crate::load::create(create.as_bytes().into(), ObservedCall::default().context()) {
        RResult::ROk(plugin) => plugin,
        RResult::RErr(fault) => panic!("{}", fault.text()),
    }
}

/// Runs `execute`.
pub(crate) fn execute(
    plugin: &PluginObject,
    command: &str,
    call: &ObservedCall,
) -> Result<Vec<u8>, Fault> {
    request(
        plugin,
        "skill.execute",
        &json!({ "command": command }),
        call,
    )
}

/// Reads, and gives the text.
pub(crate) fn read(plugin: &PluginObject, path: &str) -> String {
    let reply = request(
        plugin,
        "skill.read",
        &json!({ "path": path }),
        &ObservedCall::default(),
    );
    let result: Value = serde_json::from_slice(&reply.unwrap()).unwrap();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

fn request(
    plugin: &PluginObject,
    op: &str,
    body: &Value,
    call: &ObservedCall,
) -> Result<Vec<u8>, Fault> {
    let json = json!({ "session": "s", "body": body }).to_string();
    match plugin.call(op.as_bytes().into(), json.as_bytes().into(), call.context()) {
        RResult::ROk(reply) => Ok(reply.into()),
        RResult::RErr(fault) => Err(fault),
    }
}

impl ObservedCall {
    /// Cancels the call, or says that it is over: it is the same to the plugin.
    pub(crate) fn end(&self) {
        *self.0.over.lock().unwrap() = true;
        self.0.changed.notify_all();
    }

    pub(crate) fn emitted(&self) -> Vec<(u32, Vec<u8>)> {
        self.0.emitted.lock().unwrap().clone()
    }

    pub(crate) fn logged(&self) -> usize {
        self.0.logged.lock().unwrap().len()
    }

    /// What is referred to by this host and by whoever keeps the context.
    pub(crate) fn references(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    pub(crate) fn context(&self) -> CallContext {
        CallCx_TO::from_ptr(RArc::new(self.clone()), TD_Opaque)
    }
}

impl CallCx for ObservedCall {
    fn emit(&self, kind: u32, bytes: RSlice<'_, u8>) -> u32 {
        if self.cancelled() {
            return 1;
        }
        let piece = (kind, bytes.as_slice().to_vec());
        self.0.emitted.lock().unwrap().push(piece);
        0
    }

    fn cancelled(&self) -> bool {
        *self.0.over.lock().unwrap()
    }

    fn host(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        if op.as_slice() == host_op::CALL_CANCELLED.as_bytes() {
            // A thread of the test waits; a host would have a task.
            let over = self.0.over.lock().unwrap();
            let waited = self
                .0
                .changed
                .wait_timeout_while(over, DEADLINE, |over| !*over);
            assert!(!waited.unwrap().1.timed_out());
            return answer(RResult::ROk(RVec::from(b"{}".to_vec())));
        }
        if self.cancelled() {
            return answer(RResult::RErr(Fault::new(code::GONE, "the call is over")));
        }
        if op.as_slice() == b"kv.get" {
            let echo = json!({ "value": String::from_utf8_lossy(json.as_slice()) });
            return answer(RResult::ROk(RVec::from(echo.to_string().into_bytes())));
        }
        answer(RResult::RErr(Fault::new(
            code::UNSUPPORTED,
            "no such operation",
        )))
    }

    fn log(&self, _level: u32, _target: RSlice<'_, u8>, message: RSlice<'_, u8>) {
        let message = message.as_slice().to_vec();
        self.0.logged.lock().unwrap().push(message);
    }
}

fn answer(reply: Reply) -> FfiFuture<Reply> {
    std::future::ready(reply).into_ffi()
}
