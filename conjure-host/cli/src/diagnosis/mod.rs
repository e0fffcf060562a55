//! What works on this machine and what does not: the database, keys, sessions, plugins, the kernel's means
//! to confine, container engines, MCP servers. Each finding says what it is about and what to do.

mod engines;
mod kernel;
mod mcp;
mod sessions;

use std::path::Path;

use serde::Serialize;

use conjure_core::numerals::count;
use conjure_plugins::Isolation;
use conjure_providers::auths::Auths;
use conjure_runtime::Host;
use conjure_store::{Store, StoreError};

/// What is known of one thing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct HealthFinding {
    /// What kind of thing: `database`, `auth`, `session`, `plugin`, `sdk`, `worker`, `sandbox`,
    /// `engine`, `mcp`.
    pub(crate) area: &'static str,
    /// The name of the thing.
    pub(crate) subject: String,
    /// Whether it is in order.
    pub(crate) state: Health,
    /// What was found.
    pub(crate) found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) remedy: Option<String>,
}

/// Health of the thing that a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Health {
    /// The thing works.
    Well,
    /// The thing works, and something about it should be known.
    Note,
    /// The thing does not work.
    Ill,
}

impl HealthFinding {
    fn well(area: &'static str, subject: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            area,
            subject: subject.into(),
            state: Health::Well,
            found: found.into(),
            remedy: None,
        }
    }

    fn note(self, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        self.with(Health::Note, found, remedy)
    }

    fn ill(self, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        self.with(Health::Ill, found, remedy)
    }

    fn with(self, state: Health, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            state,
            found: found.into(),
            remedy: Some(remedy.into()).filter(|remedy: &String| !remedy.is_empty()),
            ..self
        }
    }
}

/// What can be done about a database that is not sound.
const DAMAGED: &str = "`conjure db check` says what is wrong with it. Where it is damaged, `conjure db \
                       backup FILE` saves what can be read; then put that, or an earlier backup, in its \
                       place";

/// What can be done about one that can only be read.
pub(crate) const READ_ONLY: &str = "let this user write the database's file and its directory";

/// What can be done about an error of the database; nothing where its words say it.
pub(crate) fn remedy_of(error: &StoreError) -> Option<&'static str> {
    match error {
        StoreError::Corrupt { .. } | StoreError::Disk { .. } => Some(DAMAGED),
        StoreError::Full { .. } => Some("make room on the disk of the database"),
        StoreError::ReadOnly { .. } => Some(READ_ONLY),
        StoreError::Io { .. } => Some(
            "see that the data directory can be made and belongs to this user, or name another with \
             `--data-dir`",
        ),
        StoreError::Newer { .. } => {
            Some("use the newer program, or `conjure db rollback` with it first")
        }
        // It says itself what to do.
        _ => None,
    }
}

/// Looks at everything. Starts MCP servers, and changes nothing.
pub(crate) async fn examine(host: &Host, store: &Store, auths: &Auths) -> Vec<HealthFinding> {
    let mut findings = database(store).await;
    findings.extend(keys(auths).await);
    findings.extend(sessions::examine(host, store).await);
    findings.extend(plugins(host));
    findings.push(sdk());
    findings.extend(kernel::examine());
    findings.extend(engines::examine(host).await);
    findings.extend(mcp::examine(host, store).await);
    findings
}

async fn database(store: &Store) -> Vec<HealthFinding> {
    let finding = HealthFinding::well("database", "check", "");
    let finding = match store.check().await {
        Ok(check) if check.is_sound() && store.is_read_only() => finding.ill(
            "sound, and it can only be read: no session can go on",
            READ_ONLY,
        ),
        Ok(check) if check.is_sound() => {
            let found = format!(
                "sound: {}, {}, {}",
                count(check.threads as u64, "thread"),
                count(check.entries, "entry"),
                count(check.events, "event")
            );
            HealthFinding { found, ..finding }
        }
        Ok(check) => finding.ill(check.problems.join("; "), DAMAGED),
        Err(error) => HealthFinding {
            state: Health::Ill,
            found: error.to_string(),
            remedy: remedy_of(&error).map(str::to_owned),
            ..finding
        },
    };
    vec![finding]
}

/// Whether every saved auth can be read.
async fn keys(auths: &Auths) -> Vec<HealthFinding> {
    let saved = match auths.list().await {
        Ok(saved) => saved,
        Err(error) => {
            let finding = HealthFinding::well("auth", "all", "");
            return vec![finding.ill(error.to_string(), "")];
        }
    };
    let mut findings = Vec::new();
    for auth in saved {
        let name = auth.full_name().to_string();
        let finding = HealthFinding::well("auth", &name, "can be read");
        findings.push(match auths.open_one(auth).await {
            Ok(_) => finding,
            // It says itself what to do.
            Err(error) => finding.ill(error.to_string(), ""),
        });
    }
    findings
}

/// Whether the data directory is the working directory, or below it.
fn is_in_working_dir(data_dir: &Path) -> bool {
    let dir = std::env::current_dir().and_then(|dir| dir.canonicalize());
    match (dir, data_dir.canonicalize()) {
        (Ok(dir), Ok(data_dir)) => data_dir.starts_with(dir),
        _ => false,
    }
}

fn plugins(host: &Host) -> Vec<HealthFinding> {
    let snapshot = host.registry().snapshot();
    if snapshot.plugins().is_empty() && snapshot.failed().is_empty() {
        let finding = HealthFinding::well("plugin", "all", "");
        let remedy = "`conjure plugin list` says where they are looked for";
        return vec![finding.note("there are none, so sessions have no tools", remedy)];
    }
    let holds_data = is_in_working_dir(host.data_dir());
    let loaded = snapshot.plugins().iter().map(|plugin| {
        let manifest = plugin.manifest();
        let found = format!("{} {}, loaded", manifest.kind, manifest.version);
        let finding = HealthFinding::well("plugin", &manifest.name, &found);
        let is_kept_out = plugin.isolation() == Isolation::Process && manifest.kind == "executor";
        match is_kept_out && holds_data {
            true => finding.note(
                format!(
                    "{found}, and no session can use it in this directory, which holds the host's data \
                     directory: no plugin in a process of its own reaches that"
                ),
                "work in another directory, such as one for the project, or run it in the host's \
                 process (`conjure plugin trust FILE`)",
            ),
            false => finding,
        }
    });
    let failed = snapshot.failed().iter().map(|failed| {
        let finding = HealthFinding::well("plugin", failed.path.display().to_string(), "");
        finding.ill(
            failed.reason.to_string(),
            format!("conjure plugin check {}", failed.path.display()),
        )
    });
    loaded.chain(failed).collect()
}

/// The SDK that the program carries for those who write plugins, with what it takes there.
fn sdk() -> HealthFinding {
    let kilobytes = conjure_sdk_source::COMPRESSED_SIZE.div_ceil(1000);
    let version = conjure_sdk_source::VERSION;
    let found = format!(
        "{version}, {kilobytes} KB of this program, compressed; `conjure plugin create` writes it into \
         the data directory"
    );
    HealthFinding::well("sdk", "conjure-skill-sdk", found)
}
