//! `conjure doctor`: what works on this machine, what does not, and what to do about it.

use crate::diagnosis::{Health, HealthFinding, examine};
use serde_json::json;

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, DIM, GREEN, RED, RESET, YELLOW, clean, line};
use super::plugin_args::PluginArgs;
use super::sessions::SavedSessions;
use super::signals::Signals;

/// Looks at the database, keys, sessions, plugins, container engines and MCP servers.
#[derive(clap::Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    plugins: PluginArgs,
}

pub(crate) async fn run(global: &Global, args: DoctorArgs) -> Result<Exit, CliError> {
    let mut signals = Signals::listen()?;
    let looking = async {
        let sessions = SavedSessions::with_plugins(global, &args.plugins).await?;
        let manager = sessions.manager();
        let auths = global.auths();
        let findings = examine(manager.host(), manager.store(), &auths).await;
        sessions.close().await;
        Ok(findings)
    };
    let findings: Vec<HealthFinding> = signals.unless(looking).await?;
    let is_well = findings.iter().all(|finding| finding.state < Health::Ill);
    if global.json {
        output::json(&json!({ "ok": is_well, "findings": findings }));
    } else {
        print(&findings);
    }
    Ok(if is_well { Exit::Fine } else { Exit::No })
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
