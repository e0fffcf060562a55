//! Sessions that could not be opened.

use super::HealthFinding;
use conjure_runtime::Host;
use conjure_store::{SavedAuth, SavedSession, Store, StoreError};

/// Sessions that are read at once.
const PAGE: u64 = 200;

pub(super) async fn examine(host: &Host, store: &Store) -> Vec<HealthFinding> {
    let mut findings = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = match store.sessions(after.as_deref(), PAGE).await {
            Ok(page) => page,
            Err(error) => {
                let finding = HealthFinding::well("session", "all", "");
                findings.push(finding.ill(error.to_string(), ""));
                return findings;
            }
        };
        let Some(last) = page.last() else {
            return findings;
        };
        after = Some(last.id.clone());
        for session in &page {
            findings.push(session_finding(host, store, session).await);
        }
    }
}

async fn session_finding(host: &Host, store: &Store, session: &SavedSession) -> HealthFinding {
    let name = session.name.clone().unwrap_or_else(|| session.id.clone());
    let set = |option: &str| format!("conjure session set {name} {option}");
    let finding = HealthFinding::well("session", &name, "");
    let auth = match store.auth(&session.auth_id).await {
        Ok(auth) => auth,
        Err(StoreError::NotFound { .. }) => {
            return finding.ill("it has no saved auth", set("--auth NAME"));
        }
        Err(error) => return finding.ill(error.to_string(), ""),
    };
    if auth.sealed.is_empty() {
        return finding.ill(
            format!(
                "the credential of its auth `{}` was left out of an import",
                auth.name
            ),
            set("--auth NAME"),
        );
    }
    if !conjure_config::fs::is_dir(std::path::Path::new(&session.working_dir)).unwrap_or_default() {
        return finding.ill(
            format!("its working directory {} is not there", session.working_dir),
            set("--working-dir DIR"),
        );
    }
    if session.chat_thread_id.is_none() {
        return finding.note(
            "it has no thread any more",
            format!("conjure session new-chat {name}"),
        );
    }
    match tools_problem(host, session, &auth) {
        Some(why) => finding.ill(why, set("--tools FILE")),
        None => HealthFinding {
            found: format!("{} / {}", auth.provider, session.model_id),
            ..finding
        },
    }
}

/// What is wrong with its tools, as far as can be said without opening it.
fn tools_problem(host: &Host, session: &SavedSession, auth: &SavedAuth) -> Option<String> {
    let spec = match conjure_runtime::manager::spec_of(host, session, auth) {
        Ok(spec) => spec,
        Err(error) => return Some(error.to_string()),
    };
    let loaded = host.registry().snapshot();
    let missing = spec
        .backends
        .iter()
        .find(|backend| !backend.is_native() && loaded.get(&backend.kind).is_none())?;
    Some(format!(
        "no plugin `{}` is loaded, which its tools need",
        missing.kind
    ))
}
