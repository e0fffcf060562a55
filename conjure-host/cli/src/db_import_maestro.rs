//! `conjure db import --from the-maestro`: sessions, chats and saved auths of the web application
//! the-maestro, out of its PostgreSQL database.
//!
//! Nothing is written there. Saved auths are sealed here before anything refers to them, and removed
//! again when the rest cannot be written, so that all of it comes or nothing; a program that is
//! killed in between leaves auths, which the next import knows.

use std::collections::BTreeMap;

use conjure_config::{AuthName, AuthRef};
use conjure_providers::auths::{AuthError, AuthKind, Auths, Credential, NewAuth};
use conjure_store::{Maestro, MaestroAuth, MaestroChoices, MaestroReport, MaestroSecret};
use jiff::Timestamp;
use secrecy::SecretString;
use serde::Serialize;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, RESET, YELLOW, clean, print_note};

/// The arguments of an import from Maestro.
pub(crate) struct MaestroImport {
    /// The URL of the database there.
    pub(crate) url: String,
    /// The saved auth of sessions whose own cannot be taken.
    pub(crate) auth: Option<AuthRef>,
    /// Whether it is only tried.
    pub(crate) dry_run: bool,
}

pub(crate) async fn run(global: &Global, import: MaestroImport) -> Result<Exit, CliError> {
    let maestro = Maestro::read(&SecretString::from(import.url)).await?;
    let store = global.store().await?;
    let auths = global.auths_over(&store);
    let fallback = match &import.auth {
        Some(auth) => Some(auths.find(auth, None).await?.id),
        None => None,
    };
    let mut taken = AuthImport::default();
    let done = async {
        taken
            .import_auths(&auths, maestro.auths(), import.dry_run)
            .await?;
        let choices = MaestroChoices {
            auths: taken.ids.clone(),
            auth: fallback,
            working_dir: working_dir()?,
            dry_run: import.dry_run,
        };
        Ok(store.import_maestro(&maestro, &choices).await?)
    };
    let done: Result<MaestroReport, CliError> = done.await;
    match done {
        Ok(report) => {
            print_report(global, &report, &taken, import.dry_run);
            Ok(Exit::Success)
        }
        Err(error) => Err(taken.undo(&auths, error).await),
    }
}

fn working_dir() -> Result<String, CliError> {
    let dir = std::env::current_dir().map_err(|error| {
        CliError::host_from(error).context("the current directory cannot be found")
    })?;
    Ok(dir.display().to_string())
}

/// The result of importing saved auths.
#[derive(Default, Serialize)]
struct AuthImport {
    /// Ids here, by ids there.
    #[serde(skip)]
    ids: BTreeMap<String, String>,
    /// Auths that were saved; a dry run saves none.
    #[serde(skip)]
    added: Vec<AuthName>,
    /// Auths that are new here.
    new: Vec<AuthName>,
    /// Auths that were here already, by their name.
    known: Vec<AuthName>,
    /// Auths that could not be taken, with the reasons.
    left_out: Vec<SkippedAuth>,
    /// Taken auths that are tokens, which nothing here renews, with the time when each ends.
    tokens: Vec<TokenExpiry>,
}

#[derive(Debug, PartialEq, Serialize)]
struct SkippedAuth {
    auth: String,
    reason: String,
}

#[derive(Serialize)]
struct TokenExpiry {
    auth: AuthName,
    expires_at: Option<String>,
    has_expired: bool,
}

impl AuthImport {
    /// Saves those that can be read. In a dry run nothing is sealed.
    async fn import_auths(
        &mut self,
        auths: &Auths,
        theirs: &[MaestroAuth],
        dry_run: bool,
    ) -> Result<(), AuthError> {
        let here = auths.list().await?;
        for their in theirs {
            let (kind, secret) = match &their.secret {
                MaestroSecret::ApiKey(key) => (AuthKind::ApiKey, key),
                MaestroSecret::Token(token) => (AuthKind::BearerToken, token),
                MaestroSecret::Unreadable(reason) => {
                    self.skip_auth(their, reason);
                    continue;
                }
            };
            let name = AuthName {
                provider: their.provider.clone(),
                kind: kind.to_string(),
                name: their.name.clone(),
            };
            if let Some(known) = here.iter().find(|auth| auth.full_name() == name) {
                self.ids.insert(their.id.clone(), known.id.clone());
                self.known.push(name);
                continue;
            }
            let new = NewAuth {
                name: their.name.clone(),
                provider: their.provider.clone(),
                base_url: None,
            };
            let credential = Credential::read(kind, secret).map_err(AuthError::from);
            let credential = match new.check(kind).and(credential) {
                Ok(credential) => credential,
                Err(error) => {
                    self.skip_auth(their, &error.to_string());
                    continue;
                }
            };
            let id = if dry_run {
                format!("not-saved-{}", their.id)
            } else {
                let id = auths.add(new, credential).await?.id;
                self.added.push(name.clone());
                id
            };
            self.ids.insert(their.id.clone(), id);
            if kind == AuthKind::BearerToken {
                self.tokens
                    .push(TokenExpiry::of(&name, their.expires_at_ms));
            }
            self.new.push(name);
        }
        Ok(())
    }

    fn skip_auth(&mut self, their: &MaestroAuth, reason: &str) {
        self.left_out.push(SkippedAuth {
            auth: format!("{}/{}", their.provider, their.name),
            reason: reason.to_owned(),
        });
    }

    /// Removes what was saved, and adds to the error what could not be removed.
    async fn undo(&self, auths: &Auths, mut error: CliError) -> CliError {
        for name in &self.added {
            let removed = async { auths.remove(&name.to_string().parse::<AuthRef>()?).await };
            if let Err(kept) = removed.await {
                error = error.hint(format!(
                    "the saved auth `{name}` was added before that and is still there: {kept}"
                ));
            }
        }
        error
    }
}

impl TokenExpiry {
    fn of(auth: &AuthName, expires_at_ms: Option<i64>) -> Self {
        let ends = expires_at_ms.and_then(|at_ms| Timestamp::from_millisecond(at_ms).ok());
        Self {
            auth: auth.clone(),
            expires_at: ends.map(|ends| ends.strftime("%Y-%m-%d %H:%M UTC").to_string()),
            has_expired: ends.is_some_and(|ends| ends < Timestamp::now()),
        }
    }
}

/// The whole result, for `--json`.
#[derive(Serialize)]
struct MaestroOutput<'a> {
    dry_run: bool,
    auths: &'a AuthImport,
    #[serde(flatten)]
    report: &'a MaestroReport,
}

fn print_report(global: &Global, report: &MaestroReport, taken: &AuthImport, dry_run: bool) {
    if global.json {
        output::json(&MaestroOutput {
            dry_run,
            auths: taken,
            report,
        });
        return;
    }
    let (is, are) = match dry_run {
        true => ("would be", "would be"),
        false => ("is", "are"),
    };
    let new = |count: usize, one: &str, many: &str| match count {
        1 => format!("1 {one} {is} new"),
        count => format!("{count} {many} {are} new"),
    };
    let sessions = report.sessions.len();
    print_note(format_args!(
        "{BOLD}{}{RESET}; {} here already.",
        new(sessions, "session", "sessions"),
        known_count(report.known_sessions)
    ));
    print_note(format_args!(
        "{}, with {} turns and {} entries; {} of them forks; {} here already.",
        new(report.threads, "thread", "threads"),
        report.turns,
        report.entries,
        report.forks,
        known_count(report.known_threads)
    ));
    print_note(format_args!(
        "{}; {} here already.",
        new(taken.new.len(), "saved auth", "saved auths"),
        known_count(taken.known.len())
    ));
    print_note(format_args!(
        "{}; {}.",
        new(report.personas, "persona", "personas"),
        new(report.mcp_servers, "MCP server", "MCP servers")
    ));
    for note in notes(report, taken) {
        print_note(format_args!("{YELLOW}note{RESET} {}", clean(&note)));
    }
    if dry_run {
        print_note("Nothing was changed: without `--dry-run` it is done.");
    }
}

fn known_count(count: usize) -> String {
    match count {
        0 => "none was".to_owned(),
        1 => "1 was".to_owned(),
        count => format!("{count} were"),
    }
}

/// What a person should look at.
fn notes(report: &MaestroReport, taken: &AuthImport) -> Vec<String> {
    let mut notes = Vec::new();
    let mut of_sessions = |sessions: &[String], said: &str| {
        if !sessions.is_empty() {
            notes.push(format!("{said}: {}", sessions.join(", ")));
        }
    };
    of_sessions(
        &report.without_auth,
        "left out, since they have no saved auth that can be taken; their threads are here, and \
         `--auth NAME` gives them one",
    );
    of_sessions(&report.given_auth, "these got the auth of `--auth`");
    of_sessions(&report.without_model, "these name no model; choose one");
    of_sessions(
        &report.without_working_dir,
        "these name no absolute working directory, and work in the current one",
    );
    of_sessions(
        &report.secret_mcp_servers,
        "MCP servers that were left out, since they come with what may be a secret; add them with \
         `conjure mcp import`",
    );
    for SkippedAuth { auth, reason } in &taken.left_out {
        notes.push(format!("the saved auth {auth} was left out: {reason}"));
    }
    for token in &taken.tokens {
        let ends = token
            .expires_at
            .as_deref()
            .unwrap_or("a time that is not told");
        notes.push(match token.has_expired {
            true => format!("the token {} ended at {ends}; replace it", token.auth),
            false => format!(
                "the token {} ends at {ends}, and nothing here renews it",
                token.auth
            ),
        });
    }
    let left_out = report.left_out.all();
    notes.extend(left_out.map(|(what, number)| format!("{number} {}", what.describe())));
    notes
}

#[cfg(test)]
mod tests {
    use conjure_providers::auths::KeySources;
    use conjure_store::{Location, Options, SavedSession, Store};
    use serde_json::json;

    use super::*;

    fn their(id: &str, provider: &str, name: &str, secret: MaestroSecret) -> MaestroAuth {
        MaestroAuth {
            id: id.to_owned(),
            provider: provider.to_owned(),
            name: name.to_owned(),
            secret,
            expires_at_ms: Some(1_000),
        }
    }

    async fn auths(dir: &std::path::Path) -> (Store, Auths) {
        let store = Store::open(&Location::Memory, &Options::default())
            .await
            .unwrap();
        let keys = KeySources {
            key_file: Some(dir.join("key")),
            ..KeySources::new(dir)
        };
        (store.clone(), Auths::over(store, keys))
    }

    #[tokio::test]
    async fn auths_are_taken_once_and_what_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (store, auths) = auths(dir.path()).await;
        let theirs = [
            their(
                "1",
                "openai",
                "work",
                MaestroSecret::ApiKey("sk-hidden".into()),
            ),
            their(
                "2",
                "anthropic",
                "work",
                MaestroSecret::Token("oat-hidden".into()),
            ),
            their(
                "3",
                "gemini",
                "home",
                MaestroSecret::Unreadable("it is encrypted"),
            ),
            their(
                "4",
                "elsewhere",
                "home",
                MaestroSecret::ApiKey("sk-hidden".into()),
            ),
            their(
                "5",
                "openai",
                "x y",
                MaestroSecret::ApiKey("sk-hidden".into()),
            ),
            their(
                "6",
                "openai",
                "lines",
                MaestroSecret::ApiKey("sk-hid\nden".into()),
            ),
        ];
        let mut tried = AuthImport::default();
        tried.import_auths(&auths, &theirs, true).await.unwrap();
        assert_eq!((tried.new.len(), tried.ids.len()), (2, 2));
        assert!(auths.list().await.unwrap().is_empty());

        let mut taken = AuthImport::default();
        taken.import_auths(&auths, &theirs, false).await.unwrap();
        let names: Vec<String> = taken.new.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            ["openai/api_key/work", "anthropic/bearer_token/work"]
        );
        let left_out: Vec<&str> = taken.left_out.iter().map(|n| n.auth.as_str()).collect();
        assert_eq!(
            left_out,
            [
                "gemini/home",
                "elsewhere/home",
                "openai/x y",
                "openai/lines"
            ]
        );
        assert!(taken.tokens[0].has_expired);
        let told = format!(
            "{}{:?}",
            json!(taken),
            notes(&MaestroReport::default(), &taken)
        );
        assert!(!told.contains("hid"), "{told}");
        let saved = store.auth(&taken.ids["1"]).await.unwrap();
        assert_eq!(saved.kind, "api_key");

        let mut again = AuthImport::default();
        again.import_auths(&auths, &theirs, false).await.unwrap();
        assert_eq!((again.new.len(), again.known.len()), (0, 2));
        assert_eq!(again.ids, taken.ids);
    }

    #[tokio::test]
    async fn what_was_saved_is_given_back_when_the_rest_fails() {
        let dir = tempfile::tempdir().unwrap();
        let (store, auths) = auths(dir.path()).await;
        let theirs = |id: &str| {
            let key = MaestroSecret::ApiKey("sk-hidden".into());
            [their(id, "openai", id, key)]
        };
        let mut before = AuthImport::default();
        before
            .import_auths(&auths, &theirs("before"), false)
            .await
            .unwrap();
        let mut taken = AuthImport::default();
        taken
            .import_auths(&auths, &theirs("before"), false)
            .await
            .unwrap();
        taken
            .import_auths(&auths, &theirs("new"), false)
            .await
            .unwrap();
        let error = taken.undo(&auths, CliError::host("no")).await;
        assert!(error.hints().is_empty(), "{error:?}");
        let left: Vec<String> = auths
            .list()
            .await
            .unwrap()
            .into_iter()
            .map(|a| a.name)
            .collect();
        assert_eq!(left, ["before"]);

        // One that somebody uses meanwhile stays, and that is said.
        taken
            .import_auths(&auths, &theirs("used"), false)
            .await
            .unwrap();
        let session = SavedSession::new(&taken.ids["used"], "m", "/");
        store.create_session(session).await.unwrap();
        let error = taken.undo(&auths, CliError::host("no")).await;
        let told = error.hints().concat();
        assert!(told.contains("openai/api_key/used"), "{told}");
    }
}
