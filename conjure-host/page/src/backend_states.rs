//! How the backends of a session are, and the servers behind them: ready, slow, failing, or down, and
//! why. What is known of each is put together here; nobody is asked.

use std::collections::HashMap;

use conjure_core::foreign_text::clean;
use conjure_core::numerals::count;
use maud::{Markup, html};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::timestamps::time;

/// A backend that takes this long to say how its servers are is slow, in milliseconds.
const SLOW_ANSWER_MS: u64 = 2_000;
/// A plugin whose workers ended by themselves so often fails.
const FAILING_WORKER_ENDS: u64 = 3;

/// A backend of a session.
#[derive(Default, Deserialize)]
pub(crate) struct BackendInfo {
    name: String,
    kind: String,
    /// The plugin and its version.
    plugin: Option<String>,
    /// Why it offers nothing.
    missing: Option<String>,
    since_ms: Option<i64>,
    #[serde(default)]
    starting: bool,
    /// Why it did not say how its servers are.
    failed: Option<String>,
    answer_ms: Option<u64>,
    #[serde(default, deserialize_with = "readable_servers")]
    servers: Vec<BackendServerInfo>,
}

/// The servers that can be read: a plugin says what it likes of them.
fn readable_servers<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<BackendServerInfo>, D::Error> {
    let servers = Vec::<Value>::deserialize(from)?.into_iter();
    let readable = servers.filter_map(|server| serde_json::from_value(server).ok());
    Ok(readable.collect())
}

impl BackendInfo {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The plugin behind it and its version, where one plugin is.
    pub(crate) fn plugin(&self) -> Option<&str> {
        self.plugin.as_deref()
    }
}

/// A server behind a backend.
#[derive(Default, Deserialize)]
struct BackendServerInfo {
    server: String,
    state: String,
    #[serde(default)]
    why: String,
    /// While it is tried again: the state that the last try ended in.
    failed_as: Option<String>,
    remedy: Option<String>,
}

/// What a plugin's workers did, and whether it may be used.
#[derive(Deserialize)]
pub(crate) struct PluginHealthInfo {
    name: String,
    version: String,
    state: String,
    reason: Option<String>,
    worker_ends: u64,
}

/// What calls of all sessions came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub(crate) struct CallSums {
    calls: u64,
    failed: u64,
    duration_ms: u64,
}

impl CallSums {
    pub(crate) fn add(&mut self, calls: Self) {
        self.calls += calls.calls;
        self.failed += calls.failed;
        self.duration_ms += calls.duration_ms;
    }

    /// How long one takes on average; nothing where there is none.
    fn average_ms(self) -> Option<u64> {
        self.duration_ms.checked_div(self.calls)
    }
}

/// What is known of the tools that are routed to a backend. Sums are those of their public names in all
/// sessions: they are shown, and say nothing about how the backend of one session is.
#[derive(Default)]
pub(crate) struct RoutedCalls {
    /// All of them, by the backend.
    pub(crate) backends: HashMap<String, CallSums>,
    /// By the backend, and the server or the skill.
    pub(crate) servers: HashMap<(String, String), CallSums>,
    /// The plugins behind a backend that has several, each with its version.
    pub(crate) plugins: HashMap<String, Vec<String>>,
}

/// Whether something can be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
enum BackendState {
    Ready,
    Starting,
    Slow,
    Failing,
    NeedsLogin,
    Down,
    /// What a later plugin says.
    Other(String),
}

impl BackendState {
    fn badge(&self) -> Markup {
        html! {
            @match self {
                Self::Ready => span.badge.good { "ready" },
                Self::Starting => span.badge { "starting" },
                Self::Slow => span.badge.warn { "slow" },
                Self::Failing => span.badge.bad { "failing" },
                Self::NeedsLogin => span.badge.warn { "needs a login" },
                Self::Down => span.badge.bad { "down" },
                Self::Other(word) => span.badge { (clean(word)) },
            }
        }
    }
}

/// The backends of a session, each with the servers behind it. `failed` are those that could not say
/// what they add to a request, with why.
pub(crate) fn backend_list(
    backends: &[BackendInfo],
    failed: &[(&str, &str)],
    calls: &RoutedCalls,
    plugins: &[PluginHealthInfo],
    session_url: &str,
) -> Markup {
    let health: HashMap<String, &PluginHealthInfo> = plugins
        .iter()
        .map(|plugin| (format!("{} {}", plugin.name, plugin.version), plugin))
        .collect();
    html! {
        @if !backends.is_empty() {
            section aria-labelledby="routes-backends-title" {
                div."row spread" {
                    h2 #routes-backends-title { "Backends" }
                    a.button.small #routes-look href={ (session_url) "/routes" } { "Look again" }
                }
                section.scroll tabindex="0" aria-label="How the backends are" {
                    table.table #routes-backends {
                        thead { tr {
                            th scope="col" { "Backend" } th scope="col" { "State" }
                            th scope="col" { "Why" } th scope="col" { "Last 7 days" }
                        } }
                        tbody {
                            @for (at, backend) in backends.iter().enumerate() {
                                @let said = failed.iter().find(|(name, _)| *name == backend.name);
                                (row(at, backend, said.map(|(_, why)| *why), calls, &health))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn row(
    at: usize,
    backend: &BackendInfo,
    failed: Option<&str>,
    calls: &RoutedCalls,
    health: &HashMap<String, &PluginHealthInfo>,
) -> Markup {
    let sums = calls.backends.get(&backend.name).copied();
    let several = calls.plugins.get(&backend.name);
    let plugins = backend.plugin.iter().chain(several.into_iter().flatten());
    let plugins: Vec<&PluginHealthInfo> = plugins
        .filter_map(|plugin| health.get(plugin).copied())
        .collect();
    let (state, why) = backend_state(backend, failed, &plugins);
    html! {
        tr id={ "routes-backend-" (at) } {
            th scope="row" {
                (clean(&backend.name))
                @if backend.kind != backend.name { " " span.muted { "(" (clean(&backend.kind)) ")" } }
            }
            td { (state.badge()) }
            td {
                @for line in &why { p.said { (clean(line)) } }
                @if let Some(since) = backend.since_ms { p.muted { "Since " (time(since)) } }
            }
            td { (calls_in_short(sums.unwrap_or_default())) }
        }
        @for (number, server) in backend.servers.iter().enumerate() {
            @let of = (backend.name.clone(), server.server.clone());
            @let sums = calls.servers.get(&of).copied().unwrap_or_default();
            @let (state, why) = server_state(server);
            tr id={ "routes-backend-" (at) "-server-" (number) } {
                th scope="row" { (clean(&backend.name)) ": " (clean(&server.server)) }
                td { (state.badge()) }
                td { @for line in &why { p.said { (clean(line)) } } }
                td { (calls_in_short(sums)) }
            }
        }
    }
}

/// How many calls there were, how long they took and how many failed.
pub(crate) fn calls_in_short(sums: CallSums) -> Markup {
    html! {
        @match sums.average_ms() {
            Some(average) => {
                (count(sums.calls, "call")) ", " (average) " ms each"
                @if sums.failed > 0 { ", " span.wrong { (sums.failed) " failed" } }
            },
            None => "–",
        }
    }
}

/// How a backend is, and why.
fn backend_state(
    backend: &BackendInfo,
    failed: Option<&str>,
    plugins: &[&PluginHealthInfo],
) -> (BackendState, Vec<String>) {
    if let Some(missing) = &backend.missing {
        let state = match backend.starting {
            true => BackendState::Starting,
            false => BackendState::Down,
        };
        return (state, vec![missing.clone()]);
    }
    let refused: Vec<&&PluginHealthInfo> = plugins
        .iter()
        .filter(|plugin| plugin.state != "loaded")
        .collect();
    let mut why: Vec<String> = Vec::new();
    for plugin in &refused {
        let reason = plugin.reason.as_deref().unwrap_or(&plugin.state);
        why.push(format!("{} {}: {reason}", plugin.name, plugin.version));
    }
    let unanswered = [backend.failed.as_deref(), failed];
    why.extend(unanswered.iter().flatten().map(|why| (*why).to_owned()));
    let is_unanswered = unanswered.iter().any(Option::is_some);
    if is_unanswered || (!refused.is_empty() && refused.len() == plugins.len()) {
        return (BackendState::Down, why);
    }
    let is_refused = !refused.is_empty();
    let ended = |plugin: &&&PluginHealthInfo| plugin.worker_ends >= FAILING_WORKER_ENDS;
    for plugin in plugins.iter().filter(ended) {
        why.push(format!(
            "Workers of {} {} ended by themselves {} since it was loaded",
            plugin.name,
            plugin.version,
            count(plugin.worker_ends, "time")
        ));
    }
    if is_refused || !why.is_empty() {
        return (BackendState::Failing, why);
    }
    if let Some(answer_ms) = backend.answer_ms.filter(|ms| *ms >= SLOW_ANSWER_MS) {
        let words = format!("It took {answer_ms} ms to say how its servers are");
        return (BackendState::Slow, vec![words]);
    }
    (BackendState::Ready, Vec::new())
}

/// How a server behind a backend is, and why.
fn server_state(server: &BackendServerInfo) -> (BackendState, Vec<String>) {
    let said = server.failed_as.as_deref().unwrap_or(&server.state);
    let state = match said {
        "ready" => return (BackendState::Ready, Vec::new()),
        "idle" => {
            let words = "It is started by its first call".to_owned();
            return (BackendState::Ready, vec![words]);
        }
        "starting" => BackendState::Starting,
        "needs_auth" => BackendState::NeedsLogin,
        "backoff" | "failed" | "closed" => BackendState::Down,
        other => BackendState::Other(other.to_owned()),
    };
    let why = [Some(server.why.clone()), server.remedy.clone()];
    let why = why.into_iter().flatten().filter(|why| !why.is_empty());
    (state, why.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backend() -> BackendInfo {
        BackendInfo {
            name: "local".to_owned(),
            kind: "local".to_owned(),
            plugin: Some("local 1.0.0".to_owned()),
            ..BackendInfo::default()
        }
    }

    fn health(state: &str, worker_ends: u64) -> PluginHealthInfo {
        PluginHealthInfo {
            name: "local".to_owned(),
            version: "1.0.0".to_owned(),
            state: state.to_owned(),
            reason: Some("its calls did not stop".to_owned()),
            worker_ends,
        }
    }

    #[test]
    fn a_backend_is_what_is_known_of_it() {
        let missing = BackendInfo {
            missing: Some("there is no plugin `local`".to_owned()),
            ..backend()
        };
        let starting = BackendInfo {
            starting: true,
            missing: missing.missing.clone(),
            ..backend()
        };
        let mute = BackendInfo {
            failed: Some("its worker ended".to_owned()),
            ..backend()
        };
        let late = BackendInfo {
            answer_ms: Some(SLOW_ANSWER_MS),
            ..backend()
        };
        let (well, gone) = (health("loaded", 0), health("quarantined", 0));
        let shaky = health("loaded", FAILING_WORKER_ENDS);
        for (backend, plugin, state) in [
            (&backend(), &well, BackendState::Ready),
            (&missing, &well, BackendState::Down),
            (&starting, &well, BackendState::Starting),
            (&mute, &well, BackendState::Down),
            (&backend(), &gone, BackendState::Down),
            (&backend(), &shaky, BackendState::Failing),
            (&late, &well, BackendState::Slow),
            (&late, &shaky, BackendState::Failing),
        ] {
            let (found, why) = backend_state(backend, None, &[plugin]);
            assert_eq!(found, state, "{why:?}");
            assert_eq!(why.is_empty(), state == BackendState::Ready, "{why:?}");
        }
        let (found, why) = backend_state(&backend(), Some("it says no"), &[&well]);
        assert_eq!(
            (found, why),
            (BackendState::Down, vec!["it says no".to_owned()])
        );
        // One of several skills.
        let (found, why) = backend_state(&backend(), None, &[&well, &gone]);
        assert_eq!(found, BackendState::Failing, "{why:?}");
    }

    #[test]
    fn a_server_is_what_it_says_and_what_its_last_try_ended_in() {
        for (status, state) in [
            (json!({ "state": "ready" }), BackendState::Ready),
            (json!({ "state": "idle" }), BackendState::Ready),
            (json!({ "state": "starting" }), BackendState::Starting),
            (
                json!({ "state": "starting", "failed_as": "backoff" }),
                BackendState::Down,
            ),
            (json!({ "state": "needs_auth" }), BackendState::NeedsLogin),
            (json!({ "state": "failed" }), BackendState::Down),
            (
                json!({ "state": "asleep" }),
                BackendState::Other("asleep".to_owned()),
            ),
        ] {
            let mut whole = status.clone();
            whole["server"] = "notes".into();
            let server: BackendServerInfo = serde_json::from_value(whole).unwrap();
            assert_eq!(server_state(&server).0, state, "{status}");
        }
    }

    #[test]
    fn a_server_that_cannot_be_read_takes_no_other_from_the_view() {
        let backend: BackendInfo = serde_json::from_value(json!({
            "name": "odd", "kind": "odd",
            "servers": [
                "notes", 3, null, { "server": 1 }, { "server": "a", "state": {} },
                { "server": "files", "state": "ready" },
            ],
        }))
        .unwrap();
        let [server] = backend.servers.as_slice() else {
            panic!("{} servers", backend.servers.len());
        };
        assert_eq!(server.server, "files");
    }

    #[test]
    fn calls_of_other_sessions_do_not_say_how_a_backend_is() {
        let failed = CallSums {
            calls: 9,
            failed: 9,
            duration_ms: 900_000,
        };
        let calls = RoutedCalls {
            backends: HashMap::from([("local".to_owned(), failed)]),
            ..RoutedCalls::default()
        };
        let shown = backend_list(&[backend()], &[], &calls, &[], "/sessions/s").into_string();
        assert!(shown.contains(">ready<"), "{shown}");
        assert!(shown.contains("9 calls"), "{shown}");
        assert!(
            !shown.contains(">failing<") && !shown.contains(">slow<"),
            "{shown}"
        );
    }

    #[test]
    fn what_a_backend_says_is_shown_as_words_with_since_when() {
        let backend: BackendInfo = serde_json::from_value(json!({
            "name": "mcp", "kind": "mcp", "plugin": "mcp 1.0.0", "missing": "<b>gone", "since_ms": 0,
            "failed": null, "answer_ms": null,
            "servers": [{ "server": "notes", "state": "failed", "why": "no <i>program" }],
        }))
        .unwrap();
        let shown = backend_list(&[backend], &[], &RoutedCalls::default(), &[], "/sessions/s");
        let shown = shown.into_string();
        for part in [
            "&lt;b&gt;gone",
            "no &lt;i&gt;program",
            "1970-01-01 00:00 UTC",
            "id=\"routes-backend-0-server-0\"",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }
}
