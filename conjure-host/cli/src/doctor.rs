//! `conjure doctor`: what works on this machine, what does not, and what to do about it.
//!
//! A database or a directory of data that cannot be used is a finding as others are: what is left is
//! looked at without it.

use conjure_providers::auths::{Auths, KeySources};
use conjure_runtime::{Host, HostError};
use conjure_store::{Location, Options, Store, StoreError};
use serde_json::json;

use crate::diagnosis::{Health, HealthFinding, examine, remedy_of};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, GREEN, RED, RESET, YELLOW, clean, line};
use super::person::Terminal;
use super::plugin_args::PluginArgs;
use super::signals::Signals;

/// The area of findings about the database.
const DATABASE: &str = "database";
/// Looks at the database, keys, sessions, plugins, container engines and MCP servers.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    plugins: PluginArgs,
}

pub(crate) async fn run(global: &Global, args: DoctorArgs) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let looking = Box::pin(collect_findings(global, &args.plugins));
    let findings: Vec<HealthFinding> = signals.unless(looking).await?;
    let is_well = findings.iter().all(|finding| finding.state < Health::Ill);
    if global.json {
        output::json(&json!({ "ok": is_well, "findings": findings }));
    } else {
        print(&findings);
    }
    Ok(if is_well { Exit::Success } else { Exit::No })
}

/// Looks at everything that can be looked at.
async fn collect_findings(
    global: &Global,
    plugins: &PluginArgs,
) -> Result<Vec<HealthFinding>, CliError> {
    let mut findings = Vec::new();
    let opened = conjure_store::open(&global.data_dir()).await;
    let is_there = opened.is_ok();
    let store = match opened {
        Ok(store) => store,
        Err(error) => {
            findings.push(unopenable_database(&error));
            Store::open(&Location::Memory, &Options::default()).await?
        }
    };
    let keys = KeySources::from_env(global.data_dir());
    let auths = Auths::over(store.clone(), keys);
    let examined = match prepare_host(global, plugins, &store, &auths).await {
        Ok(host) => examine(&host, &store, &auths).await,
        Err(error) => {
            findings.push(not_ready(global, &error));
            without_data_dir(global, plugins, &store, &auths).await
        }
    };
    // The database that stands in for one that cannot be opened is sound, which helps nobody.
    let examined = examined
        .into_iter()
        .filter(|finding| is_there || finding.area != DATABASE);
    findings.extend(examined);
    findings.sort_by_key(|finding| finding.area != DATABASE);
    store.close().await;
    Ok(findings)
}

async fn prepare_host(
    global: &Global,
    plugins: &PluginArgs,
    store: &Store,
    auths: &Auths,
) -> Result<Host, HostError> {
    let builder = plugins.host(global).auths(auths.clone());
    builder.log(store.clone()).asker(Terminal).build().await
}

/// Looks with an empty directory of data instead of one that cannot be used; finds nothing where not
/// even that can be made.
async fn without_data_dir(
    global: &Global,
    plugins: &PluginArgs,
    store: &Store,
    auths: &Auths,
) -> Vec<HealthFinding> {
    let Ok(dir) = tempfile::tempdir() else {
        return Vec::new();
    };
    let builder = plugins.host(global).auths(auths.clone());
    let builder = builder.log(store.clone()).asker(Terminal);
    match builder.data_dir(dir.path()).build().await {
        Ok(host) => examine(&host, store, auths).await,
        Err(_) => Vec::new(),
    }
}

/// The database cannot be opened.
fn unopenable_database(error: &StoreError) -> HealthFinding {
    ill(DATABASE, "check", error.to_string(), remedy_of(error))
}

/// No host can be made with the directory of data.
fn not_ready(global: &Global, error: &HostError) -> HealthFinding {
    let remedy = match error {
        HostError::Store(_) => Some(
            "see that the data directory can be written and belongs to this user, or name another with \
             `--data-dir`",
        ),
        _ => None,
    };
    let dir = global.data_dir().display().to_string();
    ill("plugin", &dir, error.to_string(), remedy)
}

fn ill(
    area: &'static str,
    subject: &str,
    found: String,
    remedy: Option<&'static str>,
) -> HealthFinding {
    HealthFinding {
        area,
        subject: subject.to_owned(),
        state: Health::Ill,
        found,
        remedy: remedy.map(str::to_owned),
    }
}

fn print(findings: &[HealthFinding]) {
    let mut area = "";
    for finding in findings {
        if finding.area != area {
            area = finding.area;
            line(format_args!("{BOLD}{area}{RESET}"));
        }
        let mark = match finding.state {
            Health::Well => format!("{GREEN}✓{RESET}"),
            Health::Note => format!("{YELLOW}!{RESET}"),
            Health::Ill => format!("{RED}✗{RESET}"),
        };
        let (subject, found) = (clean(&finding.subject), clean(&finding.found));
        line(format_args!("  {mark} {subject}  {DIM}{found}{RESET}"));
        if let Some(remedy) = &finding.remedy {
            line(format_args!("      {}", clean(remedy)));
        }
    }
}
