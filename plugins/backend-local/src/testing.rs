//! A host for tests: drives the executor through the real ABI object, keeps what is emitted, and
//! can be slow or cancel.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use conjure_skill_sdk::abi::{
    CallContext, CallCx, CallCx_TO, Fault, FfiFuture, FutureExt, PluginObject, RArc, RResult,
    RSlice, RVec, Reply, TD_Opaque, code,
};
use conjure_skill_sdk::export::create_linked;
use conjure_skill_sdk::protocol::{BashOutput, host_op};
use serde_json::{Value, json};
use tokio::sync::watch;

/// How long a test waits for something that must happen.
const DEADLINE: Duration = Duration::from_secs(30);

/// A plugin instance with a working directory, an exchange directory and a skill.
pub(crate) struct LocalTestHost {
    dir: tempfile::TempDir,
    plugin: PluginObject,
}

/// One call, seen from the host.
#[derive(Clone)]
pub(crate) struct TestCall(Arc<TestCallState>);

struct TestCallState {
    emitted: Mutex<Vec<(u32, Vec<u8>)>>,
    arrived: Condvar,
    cancelled: watch::Sender<bool>,
    takes: bool,
}

impl LocalTestHost {
    pub(crate) fn new() -> Self {
        Self::configured(&json!({})).unwrap()
    }

    pub(crate) fn configured(config: &Value) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        for name in ["work", "skill", "exchange"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let create = json!({ "host": { "name": "test", "version": "1" }, "config": config });
        let context = TestCall::new().context();
        let plugin = create_linked(crate::plugin, create.to_string().as_bytes(), context)
            .map_err(|error| error.message().to_owned())?;
        Ok(Self { dir, plugin })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.path("work").join(name)
    }

    /// Runs an operation of the session `s` with the default envelope.
    pub(crate) fn call(&self, op: &str, body: &Value) -> Result<Value, String> {
        self.call_with(op, body, &json!({}), &TestCall::new())
    }

    /// Runs an operation with more fields in its envelope.
    pub(crate) fn call_with(
        &self,
        op: &str,
        body: &Value,
        more: &Value,
        call: &TestCall,
    ) -> Result<Value, String> {
        let request = self.request(body, more);
        let (op, json) = (op.as_bytes(), request.as_bytes());
        match self.plugin.call(op.into(), json.into(), call.context()) {
            RResult::ROk(reply) => Ok(serde_json::from_slice(&reply).unwrap()),
            RResult::RErr(fault) => Err(fault.text().into_owned()),
        }
    }

    /// Starts an operation; dropping the future gives it up.
    pub(crate) fn start(&self, op: &str, body: &Value, call: &TestCall) -> FfiFuture<Reply> {
        let request = self.request(body, &json!({}));
        let (op, json) = (op.as_bytes(), request.as_bytes());
        self.plugin.start(op.into(), json.into(), call.context())
    }

    pub(crate) fn bash(&self, command: &str) -> BashOutput {
        self.bash_with(command, &json!({}), &TestCall::new())
    }

    pub(crate) fn bash_with(&self, command: &str, more: &Value, call: &TestCall) -> BashOutput {
        let body = json!({ "command": command });
        let reply = self.call_with("executor.bash", &body, more, call);
        serde_json::from_value(reply.unwrap()).unwrap()
    }

    fn request(&self, body: &Value, more: &Value) -> String {
        let mut request = json!({
            "session": "s",
            "working_dir": self.path("work"),
            "exchange_dir": self.path("exchange"),
            "deadline_ms": DEADLINE.as_millis() as u64,
            "body": body,
        });
        for (name, value) in more.as_object().unwrap() {
            request[name] = value.clone();
        }
        request.to_string()
    }
}

impl TestCall {
    pub(crate) fn new() -> Self {
        Self::taking(true)
    }

    /// A call whose host never takes any output.
    pub(crate) fn never_takes() -> Self {
        Self::taking(false)
    }

    fn taking(takes: bool) -> Self {
        Self(Arc::new(TestCallState {
            emitted: Mutex::default(),
            arrived: Condvar::new(),
            cancelled: watch::Sender::new(false),
            takes,
        }))
    }

    pub(crate) fn cancel(&self) {
        self.0.cancelled.send_replace(true);
    }

    /// Waits until standard output holds the text.
    pub(crate) fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + DEADLINE;
        let mut emitted = self.0.emitted.lock().unwrap();
        loop {
            if stdout(&emitted).contains(text) {
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "`{text}` was never shown");
            emitted = self.0.arrived.wait_timeout(emitted, left).unwrap().0;
        }
    }

    pub(crate) fn stdout(&self) -> String {
        stdout(&self.0.emitted.lock().unwrap())
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        let emitted = self.0.emitted.lock().unwrap();
        let events = emitted.iter().filter(|(kind, _)| *kind == 2);
        events
            .map(|(_, bytes)| serde_json::from_slice(bytes).unwrap())
            .collect()
    }

    fn context(&self) -> CallContext {
        CallCx_TO::from_ptr(RArc::new(self.clone()), TD_Opaque)
    }
}

fn stdout(emitted: &[(u32, Vec<u8>)]) -> String {
    let pieces = emitted.iter().filter(|(kind, _)| *kind == 0);
    let bytes: Vec<u8> = pieces.flat_map(|(_, bytes)| bytes.clone()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl CallCx for TestCall {
    fn emit(&self, kind: u32, bytes: RSlice<'_, u8>) -> u32 {
        if self.cancelled() {
            return 1;
        }
        if !self.0.takes {
            return 2;
        }
        self.0
            .emitted
            .lock()
            .unwrap()
            .push((kind, bytes.as_slice().to_vec()));
        self.0.arrived.notify_all();
        0
    }

    fn cancelled(&self) -> bool {
        *self.0.cancelled.borrow()
    }

    fn host(&self, op: RSlice<'_, u8>, _json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        if op.as_slice() == host_op::CALL_WRITABLE.as_bytes() {
            return std::future::pending().into_ffi();
        }
        if op.as_slice() != host_op::CALL_CANCELLED.as_bytes() {
            let fault = Fault::new(code::UNSUPPORTED, "not in this test");
            return std::future::ready(RResult::RErr(fault)).into_ffi();
        }
        let mut cancelled = self.0.cancelled.subscribe();
        async move {
            let _ = cancelled.wait_for(|cancelled| *cancelled).await;
            RResult::ROk(RVec::from(b"{}".to_vec()))
        }
        .into_ffi()
    }

    fn log(&self, _level: u32, _target: RSlice<'_, u8>, _message: RSlice<'_, u8>) {}
}

/// Whether a process has ended; a zombie has.
pub(crate) fn is_gone(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit(')').next().unwrap().trim().starts_with('Z'),
        Err(_) => true,
    }
}

/// Waits until a process has ended.
#[cfg(target_os = "linux")]
pub(crate) fn wait_until_gone(pid: i32) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    if let Ok(handle) = pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()) {
        let limit = Timespec::try_from(DEADLINE).unwrap();
        let mut handles = [PollFd::new(&handle, PollFlags::IN)];
        assert_eq!(poll(&mut handles, Some(&limit)), Ok(1), "{pid} goes on");
    }
}

/// The numbers that a command wrote to a file.
pub(crate) fn pids(path: &Path) -> Vec<i32> {
    let text = std::fs::read_to_string(path).unwrap();
    text.split_whitespace()
        .map(|p| p.parse().unwrap())
        .collect()
}
