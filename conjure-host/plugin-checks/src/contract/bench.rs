//! What one check works with: an instance of the plugin, sessions with directories of their own, and
//! requests to it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use conjure_abi::{EmitKind, code};
use conjure_config::fs::real_path;
use conjure_plugins::{
    CallOptions, Emit, Instance, InstanceDirs, LoadedPlugin, PluginCallFailure, PluginError,
    emit_channel,
};
use conjure_skill_sdk::protocol::{Create, Request, SkillMount};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::services::BenchServices;

/// What a check comes to; how it does not hold.
pub(super) type CheckResult<T = ()> = Result<T, CheckFailure>;

/// How a check does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CheckFailure {
    /// The plugin does something else than its contract says.
    Deviates { expected: String, got: String },
    /// The check says nothing about this plugin.
    LeftOut { reason: String },
}

impl CheckFailure {
    pub(super) fn new(expected: impl Into<String>, got: impl Into<String>) -> Self {
        Self::Deviates {
            expected: expected.into(),
            got: got.into(),
        }
    }

    pub(super) fn left_out(reason: impl Into<String>) -> Self {
        Self::LeftOut {
            reason: reason.into(),
        }
    }
}

/// Holds where `holds` does.
pub(super) fn expect(holds: bool, expected: &str, got: impl FnOnce() -> String) -> CheckResult {
    match holds {
        true => Ok(()),
        false => Err(CheckFailure::new(expected, got())),
    }
}

/// What is in it and nowhere else.
pub(super) const FOLDER_WORD: &str = "greensleeves";

/// How long a request may take.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Time beyond the limit that a request is told, to end what runs and say how it went.
const END_ALLOWANCE: Duration = Duration::from_secs(3);
/// How long the plugin has for its shutdown.
pub(super) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// The name of the skill folder of every bench.
pub(super) const FOLDER: &str = "sample";
/// What its `SKILL.md` says.
pub(super) const FOLDER_TEXT: &str =
    "---\nname: sample\ndescription: A folder of the contract's.\n---\nThe word is greensleeves.\n";

/// An instance and what is around it.
pub(super) struct Bench {
    pub(super) plugin: Arc<LoadedPlugin>,
    pub(super) instance: Arc<Instance>,
    config: Value,
    /// Tells its sessions from those of every other bench, also where sessions are known by name.
    tag: String,
    /// What the plugin could not have from outside.
    missing_resource: Arc<Mutex<Option<String>>>,
    root: tempfile::TempDir,
}

/// A session on a bench.
pub(super) struct BenchSession<'a> {
    bench: &'a Bench,
    pub(super) name: String,
    /// Absolute and without links.
    pub(super) working_dir: PathBuf,
    pub(super) exchange_dir: PathBuf,
}

/// What a request was answered with, and what it emitted until then.
pub(super) struct BenchReply<T> {
    pub(super) reply: Result<T, PluginCallFailure>,
    pub(super) stdout: String,
    /// How long before the reply the first output came.
    pub(super) first_output_lead: Option<Duration>,
}

/// The sessions that a bench has.
const SESSIONS: [&str; 2] = ["one", "two"];

impl Bench {
    /// Makes an instance.
    pub(super) async fn set_up(
        plugin: &Arc<LoadedPlugin>,
        config: &Value,
        scratch: &Path,
    ) -> CheckResult<Self> {
        let made = Self::directories(scratch);
        let root = made.map_err(|error| {
            CheckFailure::new(
                "room in the directory for temporary files",
                error.to_string(),
            )
        })?;
        let tag = tag(root.path());
        let services = BenchServices::of(plugin.manifest(), &root.path().join("own"));
        let unmet = services.missing_resource();
        let instance = Self::instance_in(plugin, config, root.path(), &tag, services).await;
        let instance = instance.map_err(|error| match read_missing(&unmet) {
            // Nothing is known of one whose world is not here.
            Some(unmet) => CheckFailure::left_out(format!("there is no instance without {unmet}")),
            None => CheckFailure::new("an instance", error.to_string()),
        })?;
        Ok(Self {
            plugin: Arc::clone(plugin),
            instance,
            config: config.clone(),
            tag,
            missing_resource: unmet,
            root,
        })
    }

    fn directories(scratch: &Path) -> std::io::Result<tempfile::TempDir> {
        use conjure_config::fs;
        let root = tempfile::tempdir_in(scratch)?;
        for session in SESSIONS {
            fs::create_dir_all(root.path().join(session).join("work"))?;
            fs::create_private_dir(root.path().join(session).join("exchange"))?;
        }
        fs::create_private_dir(root.path().join("own"))?;
        let folder = root.path().join("skills").join(FOLDER);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("SKILL.md"), FOLDER_TEXT)?;
        Ok(root)
    }

    async fn instance_in(
        plugin: &Arc<LoadedPlugin>,
        config: &Value,
        root: &Path,
        tag: &str,
        services: BenchServices,
    ) -> Result<Arc<Instance>, PluginError> {
        let is_skill = plugin.manifest().kind == "skill";
        let base = conjure_runtime::plugin_create((!is_skill).then_some("test"));
        let [session, _] = SESSIONS;
        let create = Create {
            session: is_skill.then(|| session_name(tag, session)),
            config: config.clone(),
            data_dir: Some(root.join("own").display().to_string()),
            ..base
        };
        // In a worker it reaches these, and what its manifest names.
        let dirs = InstanceDirs::of_work(&[root]);
        plugin.create_in(&create, Arc::new(services), &dirs).await
    }

    /// Another instance with the same directories and the same configuration.
    pub(super) async fn another_instance(&self) -> CheckResult<Arc<Instance>> {
        let root = self.root.path();
        let services = BenchServices::of(self.plugin.manifest(), &root.join("own"));
        let (plugin, config) = (&self.plugin, &self.config);
        let made = Self::instance_in(plugin, config, root, &self.tag, services).await;
        made.map_err(|error| CheckFailure::new("a second instance", error.to_string()))
    }

    /// What the plugin asked for outside and could not have, in words.
    pub(super) fn missing_resource(&self) -> Option<String> {
        read_missing(&self.missing_resource)
    }

    /// One of the sessions.
    pub(super) fn session(&self, second: bool) -> BenchSession<'_> {
        let [one, two] = SESSIONS;
        let name = if second { two } else { one };
        let dir = self.root.path().join(name);
        BenchSession {
            bench: self,
            name: session_name(&self.tag, name),
            working_dir: real_path(dir.join("work")),
            exchange_dir: real_path(dir.join("exchange")),
        }
    }

    /// The skill folder, as the host sees it.
    pub(super) fn folder(&self) -> SkillMount {
        SkillMount {
            name: FOLDER.to_owned(),
            dir: real_path(self.root.path().join("skills").join(FOLDER))
                .display()
                .to_string(),
        }
    }

    /// Ends the instance.
    pub(super) async fn take_down(self) {
        self.instance.close(SHUTDOWN_TIMEOUT).await;
    }
}

fn read_missing(unmet: &Mutex<Option<String>>) -> Option<String> {
    unmet.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// What is in the name of a bench's directory and in no other.
fn tag(root: &Path) -> String {
    let name = root.file_name().unwrap_or_default().to_string_lossy();
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.collect::<String>().to_ascii_lowercase()
}

fn session_name(tag: &str, session: &str) -> String {
    format!("check-{tag}-{session}")
}

impl BenchSession<'_> {
    /// The instance that the session is on.
    pub(super) fn instance(&self) -> &Arc<Instance> {
        &self.bench.instance
    }

    /// A request in the protocol's envelope.
    pub(super) fn envelope(&self, body: &impl Serialize, limit: Duration) -> Vec<u8> {
        let mut request = Request::new(serde_json::to_value(body).unwrap_or_default());
        request.session = Some(self.name.clone());
        request.call_id = Some("call-1".to_owned());
        request.turn_id = Some("turn-1".to_owned());
        request.working_dir = Some(self.working_dir.display().to_string());
        request.exchange_dir = Some(self.exchange_dir.display().to_string());
        request.deadline_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        serde_json::to_vec(&request).unwrap_or_default()
    }

    /// Asks, and takes what a request of this operation is answered with.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        op: &str,
        body: &impl Serialize,
    ) -> Result<T, PluginCallFailure> {
        let never = CancellationToken::new();
        self.request(op, body, REQUEST_TIMEOUT, &never, |_| {})
            .await
            .reply
    }

    /// Like [`Self::ask`], for a request that must be answered.
    pub(super) async fn expect_reply<T: DeserializeOwned>(
        &self,
        op: &str,
        body: &impl Serialize,
    ) -> CheckResult<T> {
        let reply = self.ask(op, body).await;
        reply
            .map_err(|failure| CheckFailure::new(format!("a reply to `{op}`"), failure.to_string()))
    }

    /// Like [`Self::ask`], for a request that must be refused, with words and not by a panic or an end.
    pub(super) async fn expect_refusal(
        &self,
        op: &str,
        body: &impl Serialize,
        expected: &str,
    ) -> CheckResult<String> {
        match self.ask::<Value>(op, body).await {
            Ok(reply) => Err(CheckFailure::new(
                expected,
                format!("the reply {}", to_short_json(&reply)),
            )),
            Err(failure) => refusal_message(failure, expected),
        }
    }

    /// Asks for so long at the most, or until it is cancelled. `shown` gets all output there is each
    /// time that more of it comes.
    pub(super) async fn request<T: DeserializeOwned>(
        &self,
        op: &str,
        body: &impl Serialize,
        limit: Duration,
        cancel: &CancellationToken,
        mut shown: impl FnMut(&[u8]),
    ) -> BenchReply<T> {
        let (sink, mut stream) = emit_channel();
        let options = CallOptions {
            // As much longer as a host gives for the end of what runs.
            deadline: Some(limit + END_ALLOWANCE),
            sink: Some(sink),
            cancel: cancel.clone(),
            ..CallOptions::default()
        };
        let json = self.envelope(body, limit);
        let request = self.bench.instance.request(op, json, options);
        tokio::pin!(request);
        let mut stdout = Vec::new();
        let mut first: Option<Instant> = None;
        let mut take = |piece: Emit| {
            if piece.kind == EmitKind::Stdout {
                first.get_or_insert_with(Instant::now);
                stdout.extend(piece.bytes);
                shown(&stdout);
            }
        };
        let reply = loop {
            tokio::select! {
                biased;
                Some(piece) = stream.next() => take(piece),
                reply = &mut request => break reply,
            }
        };
        while let Some(piece) = stream.try_next() {
            take(piece);
        }
        let first_before = first.map(|first| first.elapsed());
        let plugin = self.bench.plugin.id().to_string();
        let reply = reply.and_then(|bytes| {
            serde_json::from_slice(&bytes).map_err(|error| PluginCallFailure::BadReply {
                plugin,
                reason: format!("it is no reply of `{op}`: {error}"),
            })
        });
        BenchReply {
            reply,
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            first_output_lead: first_before,
        }
    }
}

/// A refusal in words: no panic, and no end of the plugin.
pub(super) fn refusal_message(failure: PluginCallFailure, expected: &str) -> CheckResult<String> {
    match failure {
        PluginCallFailure::Fault { code, message, .. } if code != code::PANIC => Ok(message),
        other => Err(CheckFailure::new(expected, other.to_string())),
    }
}

/// A failure, with the code of a fault.
pub(super) fn describe_failure(failure: &PluginCallFailure) -> String {
    match failure {
        PluginCallFailure::Fault { code, message, .. } => format!("a fault {code}: {message}"),
        other => other.to_string(),
    }
}

/// A value, as a person reads it in a line.
pub(super) fn to_short_json(value: &impl Serialize) -> String {
    const MOST: usize = 400;
    let text = serde_json::to_string(value).unwrap_or_default();
    truncate(&text, MOST)
}

/// The beginning of a text.
pub(super) fn truncate(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}
