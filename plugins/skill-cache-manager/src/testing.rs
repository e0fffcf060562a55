//! Drives the skill through the real ABI object, with a host that serves nothing.

use conjure_skill_sdk::Skill;
use conjure_skill_sdk::abi::{
    CallContext, CallCx, CallCx_TO, Fault, FfiFuture, FutureExt, PluginObject, RArc, RResult,
    RSlice, Reply, TD_Opaque, code,
};
use conjure_skill_sdk::export::create_linked;
use serde_json::{Value, json};

pub(crate) struct CacheInstance(PluginObject);

impl CacheInstance {
    pub(crate) fn of(skill: Skill) -> Self {
        let create = json!({ "host": { "name": "test", "version": "1" } }).to_string();
        Self(create_linked(|| skill, create.as_bytes(), context()).unwrap())
    }

    pub(crate) fn execute(&self, command: &str) -> Value {
        self.call("skill.execute", &json!({ "command": command }))
            .unwrap()
    }

    pub(crate) fn read(&self, path: &str) -> Value {
        self.call("skill.read", &json!({ "path": path })).unwrap()
    }

    pub(crate) fn call(&self, op: &str, body: &Value) -> Result<Value, String> {
        let request = json!({ "session": "s", "body": body }).to_string();
        match self
            .0
            .call(op.as_bytes().into(), request.as_bytes().into(), context())
        {
            RResult::ROk(reply) => Ok(serde_json::from_slice(&reply).unwrap()),
            RResult::RErr(fault) => Err(fault.text().into_owned()),
        }
    }
}

#[derive(Clone)]
struct NoHost;

impl CallCx for NoHost {
    fn emit(&self, _kind: u32, _bytes: RSlice<'_, u8>) -> u32 {
        0
    }

    fn cancelled(&self) -> bool {
        false
    }

    fn host(&self, _op: RSlice<'_, u8>, _json: RSlice<'_, u8>) -> FfiFuture<Reply> {
        let fault = Fault::new(code::UNSUPPORTED, "this host serves nothing");
        std::future::ready(RResult::RErr(fault)).into_ffi()
    }

    fn log(&self, _level: u32, _target: RSlice<'_, u8>, _message: RSlice<'_, u8>) {}
}

fn context() -> CallContext {
    CallCx_TO::from_ptr(RArc::new(NoHost), TD_Opaque)
}
