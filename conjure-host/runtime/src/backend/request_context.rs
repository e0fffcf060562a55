//! What every request of a session says about it, and the bytes of a request.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_config::{SandboxSpec, WorkingDirAccess};
use conjure_skill_sdk::protocol::{Manifest, Permissions, Sandbox, ServedClient};
use serde::Serialize;

use conjure_plugins::{CallMeta, InstanceDirs, InstanceGrant};

use super::plugin_grants::PluginGrants;

/// What a request is expected to take beside the session's share.
const EXPECTED_BYTES: usize = 384;

/// Where a session is, and the beginning of its requests, which is the same for all of them.
#[derive(Debug, Clone)]
pub struct RequestContext {
    pub(crate) session: Arc<str>,
    pub(crate) working_dir: PathBuf,
    pub(crate) exchange_dir: PathBuf,
    /// Both of them as they led when the session began: a plugin may put a link there later.
    all_dirs: InstanceDirs,
    /// The latter alone.
    exchange_only: InstanceDirs,
    /// The latter, and the working directory to read.
    readable_dirs: InstanceDirs,
    /// What alone commands may change, where that is limited.
    sandbox: Option<Arc<Sandbox>>,
    /// What plugins are granted of what they ask for.
    grants: PluginGrants,
    /// The program on the other side, and what it can be asked.
    client: Option<ServedClient>,
    /// A JSON object without its end.
    prefix: Arc<[u8]>,
}

/// What a request is about, beside its session.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CallScope<'a> {
    pub(crate) call_id: Option<&'a str>,
    pub(crate) turn_id: Option<&'a str>,
    pub(crate) skill_dir: Option<&'a str>,
    /// The trace that it belongs to.
    pub(crate) traceparent: Option<&'a str>,
    /// 0: there is no deadline.
    pub(crate) deadline_ms: u64,
}

/// The session's share of [`Request`].
///
/// [`Request`]: conjure_skill_sdk::protocol::Request
#[derive(Serialize)]
struct SessionFields<'a> {
    session: &'a str,
    working_dir: &'a str,
    exchange_dir: &'a str,
}

/// The rest of it.
#[derive(Serialize)]
struct CallFields<'a, B> {
    #[serde(skip_serializing_if = "Option::is_none")]
    call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    turn_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skill_dir: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    traceparent: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<ServedClient>,
    deadline_ms: u64,
    body: &'a B,
}

impl RequestContext {
    pub(crate) fn new(session: &str, working_dir: PathBuf, exchange_dir: PathBuf) -> Self {
        Self {
            session: Arc::from(session),
            prefix: json_prefix(session, &working_dir, &exchange_dir),
            all_dirs: InstanceDirs::of_work(&[&working_dir, &exchange_dir]),
            exchange_only: InstanceDirs::of_work(&[&exchange_dir]),
            readable_dirs: InstanceDirs::of_work(&[&exchange_dir]).with_read_only(&working_dir),
            working_dir,
            exchange_dir,
            sandbox: None,
            grants: PluginGrants::default(),
            client: None,
        }
    }

    /// Puts commands into a sandbox, if the specification says so.
    pub(crate) fn with_sandbox(self, spec: &SandboxSpec) -> Self {
        let texts = |paths: &[PathBuf]| {
            let texts = paths.iter().map(|path| path.display().to_string());
            texts.collect()
        };
        let sandbox = spec.is_on().then(|| Sandbox {
            read: texts(&spec.read),
            write: texts(&spec.write),
            network: spec.network,
        });
        Self {
            sandbox: sandbox.map(Arc::new),
            ..self
        }
    }

    /// Sets the grants of plugins that are granted less than they ask for.
    pub(crate) fn with_grants(self, grants: PluginGrants) -> Self {
        Self { grants, ..self }
    }

    /// What plugins are granted of what they ask for.
    pub(crate) fn grants(&self) -> &PluginGrants {
        &self.grants
    }

    /// What alone commands of this machine may change, where that is limited.
    pub(crate) fn sandbox(&self) -> Option<&Arc<Sandbox>> {
        self.sandbox.as_ref()
    }

    /// Sets the program on the other side.
    pub(crate) fn with_client(self, client: Option<ServedClient>) -> Self {
        Self { client, ..self }
    }

    /// The program on the other side, and what it can be asked.
    pub(crate) fn client(&self) -> Option<ServedClient> {
        self.client
    }

    /// The bytes of a request, in the protocol's envelope.
    pub(crate) fn request<B: Serialize>(
        &self,
        about: CallScope<'_>,
        body: &B,
    ) -> serde_json::Result<Vec<u8>> {
        let mut json = Vec::with_capacity(self.prefix.len() + EXPECTED_BYTES);
        self.request_into(&mut json, about, body)?;
        Ok(json)
    }

    /// [`RequestContext::request`] into an empty buffer.
    pub(crate) fn request_into<B: Serialize>(
        &self,
        json: &mut Vec<u8>,
        about: CallScope<'_>,
        body: &B,
    ) -> serde_json::Result<()> {
        let CallScope {
            call_id,
            turn_id,
            skill_dir,
            traceparent,
            deadline_ms,
        } = about;
        let rest = CallFields {
            call_id,
            turn_id,
            skill_dir,
            traceparent,
            client: self.client,
            deadline_ms,
            body,
        };
        json.extend_from_slice(&self.prefix);
        let seam = json.len();
        serde_json::to_writer(&mut *json, &rest)?;
        if let Some(brace) = json.get_mut(seam) {
            *brace = b',';
        }
        Ok(())
    }

    /// What the session grants an instance of a plugin, without skill folders.
    pub(crate) fn grant(&self, manifest: &Manifest) -> InstanceGrant {
        InstanceGrant {
            dirs: self.dirs(manifest),
            permissions: self.grants.granted_permissions(&manifest.name).cloned(),
            withholds_working_dir: self.grants.working_dir(&manifest.name)
                != WorkingDirAccess::Write,
        }
    }

    /// The session's directories for the worker of a plugin, without skill folders, as far as the session
    /// grants them. A backend that may use neither files nor programs has no use for the working directory.
    fn dirs(&self, manifest: &Manifest) -> InstanceDirs {
        let Permissions {
            read,
            write,
            commands,
            ..
        } = &self.grants.effective_permissions(manifest);
        let works_here = *commands || !(read.is_empty() && write.is_empty());
        if manifest.kind == "backend" && !works_here {
            return self.exchange_only.clone();
        }
        match self.grants.working_dir(&manifest.name) {
            WorkingDirAccess::None => self.exchange_only.clone(),
            WorkingDirAccess::Read => self.readable_dirs.clone(),
            WorkingDirAccess::Write => self.all_dirs.clone(),
        }
    }

    pub(crate) fn meta(&self) -> CallMeta {
        CallMeta {
            session: Some(Arc::clone(&self.session)),
            ..CallMeta::default()
        }
    }
}

/// The session's share as JSON, without the last brace.
fn json_prefix(session: &str, working_dir: &Path, exchange_dir: &Path) -> Arc<[u8]> {
    let share = SessionFields {
        session,
        working_dir: &working_dir.to_string_lossy(),
        exchange_dir: &exchange_dir.to_string_lossy(),
    };
    // Texts alone always serialise.
    let mut json = serde_json::to_vec(&share).unwrap_or_default();
    json.pop();
    json.into()
}

#[cfg(test)]
mod tests {
    use conjure_skill_sdk::protocol::Request;
    use serde_json::{Value, json};

    use super::*;

    fn request_context() -> RequestContext {
        RequestContext::new("s\"1", "/here/\u{e9}".into(), "/exchange".into())
    }

    fn read(about: CallScope<'_>, body: &Value) -> Request<Value> {
        serde_json::from_slice(&request_context().request(about, body).unwrap()).unwrap()
    }

    #[test]
    fn a_request_is_the_protocols() {
        let text = |text: &str| Some(text.to_owned());
        let body = json!({ "command": "a\"b" });
        let about = CallScope {
            call_id: Some("c\n"),
            turn_id: Some("t"),
            skill_dir: Some("/skills/x"),
            traceparent: Some("00-trace-span-01"),
            deadline_ms: 30_000,
        };
        let expected = Request {
            session: text("s\"1"),
            call_id: text("c\n"),
            turn_id: text("t"),
            working_dir: text("/here/\u{e9}"),
            skill_dir: text("/skills/x"),
            traceparent: text("00-trace-span-01"),
            exchange_dir: text("/exchange"),
            deadline_ms: 30_000,
            ..Request::new(body.clone())
        };
        assert_eq!(read(about, &body), expected);
    }

    #[test]
    fn it_says_which_program_is_on_the_other_side_and_what_that_can_be_asked() {
        let client = ServedClient {
            form: true,
            ..ServedClient::default()
        };
        for client in [None, Some(ServedClient::default()), Some(client)] {
            let request_context = request_context().with_client(client);
            let json = request_context
                .request(CallScope::default(), &Value::Null)
                .unwrap();
            let request: Request<Value> = serde_json::from_slice(&json).unwrap();
            assert_eq!(request.client, client);
        }
    }

    #[test]
    fn what_it_is_not_about_is_not_said() {
        let request = read(CallScope::default(), &Value::Null);
        assert_eq!((request.call_id, request.turn_id), (None, None));
        assert_eq!((request.skill_dir, request.deadline_ms), (None, 0));
        assert_eq!(request.body, Value::Null);
    }

    #[test]
    fn a_backend_that_names_no_files_and_no_programs_gets_no_working_directory() {
        let works_here = |kind: &str, permissions: Value| {
            let manifest: Manifest = serde_json::from_value(json!({
                "manifest": 1, "kind": kind, "name": "a", "version": "1.0.0", "description": "A",
                "permissions": permissions,
            }))
            .unwrap();
            let work = request_context().dirs(&manifest).work;
            assert!(work.contains(&"/exchange".into()), "{work:?}");
            work.contains(&"/here/\u{e9}".into())
        };
        for (kind, permissions, expected) in [
            ("backend", json!({}), false),
            (
                "backend",
                json!({ "network": true, "secrets": ["KEY"] }),
                false,
            ),
            ("backend", json!({ "commands": true }), true),
            ("backend", json!({ "read": ["~/notes"] }), true),
            ("backend", json!({ "write": ["~/notes"] }), true),
            ("executor", json!({}), true),
            ("skill", json!({}), true),
        ] {
            assert_eq!(
                works_here(kind, permissions.clone()),
                expected,
                "{kind}: {permissions}"
            );
        }
    }
}
