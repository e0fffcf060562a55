//! A host for tests: drives the skill through the real ABI object and answers `http.send`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use conjure_skill_sdk::abi::{
    CallContext, CallCx, CallCx_TO, Fault, FfiFuture, FutureExt, PluginObject, RArc, RResult,
    RSlice, RVec, Reply, TD_Opaque, code,
};
use conjure_skill_sdk::export::create_linked;
use conjure_skill_sdk::protocol::{HttpResponse, host_op};
use serde_json::{Value, json};

/// A plugin instance with a working directory.
pub(crate) struct FetcherHost {
    dir: tempfile::TempDir,
    plugin: PluginObject,
    web: Web,
}

/// The answer to every request, and the requests.
#[derive(Clone, Default)]
pub(crate) struct Web {
    answer: Arc<Mutex<Option<HttpResponse>>>,
    requests: Arc<Mutex<Vec<Value>>>,
}

impl FetcherHost {
    pub(crate) fn new() -> Self {
        Self::configured(|_| json!({})).unwrap()
    }

    /// A host whose configuration may name directories beside the working directory.
    pub(crate) fn configured(config: impl Fn(PathBuf) -> Value) -> Result<Self, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let config = config(dir.path().to_owned());
        let create = json!({ "host": { "name": "test", "version": "1" }, "config": config });
        let web = Web::default();
        let plugin = create_linked(crate::skill, create.to_string().as_bytes(), web.context())
            .map_err(|error| error.message().to_owned())?;
        Ok(Self { dir, plugin, web })
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.path("work").join(name)
    }

    pub(crate) fn answer(&self, response: HttpResponse) {
        *self.web.answer.lock().unwrap() = Some(response);
    }

    pub(crate) fn requests(&self) -> Vec<Value> {
        self.web.requests.lock().unwrap().clone()
    }

    pub(crate) fn execute(&self, command: &str) -> Value {
        self.call("skill.execute", &json!({ "command": command }))
    }

    /// The text of a result that must be an error.
    pub(crate) fn error(&self, command: &str) -> String {
        let result = self.execute(command);
        assert_eq!(result["is_error"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    pub(crate) fn call(&self, op: &str, body: &Value) -> Value {
        let request = json!({ "session": "s", "working_dir": self.path("work"), "body": body });
        let request = request.to_string();
        let (op, json) = (op.as_bytes(), request.as_bytes());
        match self.plugin.call(op.into(), json.into(), self.web.context()) {
            RResult::ROk(reply) => serde_json::from_slice(&reply).unwrap(),
            RResult::RErr(fault) => panic!("{}", fault.text()),
        }
    }
}

impl Web {
    fn context(&self) -> CallContext {
        CallCx_TO::from_ptr(RArc::new(self.clone()), TD_Opaque)
    }
}

impl CallCx for Web {
    fn emit(&self, _kind: u32, _bytes: RSlice<'_, u8>) -> u32 {
        0
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn host(&self, op: RSlice<'_, u8>, json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        assert_eq!(op.as_slice(), host_op::HTTP_SEND.as_bytes());
        let request = serde_json::from_slice(json.as_slice()).unwrap();
        self.requests.lock().unwrap().push(request);
        let reply = match &*self.answer.lock().unwrap() {
            Some(answer) => RResult::ROk(RVec::from(serde_json::to_vec(answer).unwrap())),
            None => RResult::RErr(Fault::new(code::UNSUPPORTED, "no such operation")),
        };
        std::future::ready(reply).into_ffi()
    }

    fn log(&self, _level: u32, _target: RSlice<'_, u8>, _message: RSlice<'_, u8>) {}
}
