//! `conjure persona`: who the model is to be, kept under a name and a version.

use clap::Subcommand;
use conjure_store::{Persona, Store};
use serde_json::{Value, json};

use super::args::Global;
use super::error::CliError;
use super::exit::Exit;
use super::output::{self, BOLD, RESET, Table, clean, line, print_note};
use super::person::confirm;
use super::session_change::text_of;
use super::shorten::one_line;

/// Personas that are read at once.
const PAGE: u64 = 200;
/// The most characters of a name and of a version.
const MAX_NAME_CHARS: usize = 100;

/// Keeps personas. A session that chooses one gets a copy: what becomes of the persona later
/// changes nothing about it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  conjure persona create keeper \"You keep a lighthouse.\"
  conjure persona create reviewer @reviewer.md --persona-version 2
  conjure session create site --auth work --model claude-sonnet-4-5 --persona-name keeper
  conjure session set site --persona-name reviewer@2")]
pub(crate) struct PersonaArgs {
    #[command(subcommand)]
    verb: PersonaVerb,
}

#[derive(Subcommand)]
enum PersonaVerb {
    /// List the personas, the oldest first
    List,
    /// Show a persona
    Show {
        /// The persona: NAME, NAME@VERSION, or its id; of a name alone the newest version
        persona: String,
    },
    /// Save a persona
    Create {
        /// The name of the persona
        name: String,
        /// What the model is told: the text, or `@FILE`
        text: String,
        /// The version of the persona
        #[arg(long, value_name = "VERSION", default_value = "1")]
        persona_version: String,
    },
    /// Change a persona; what is not named stays. Sessions keep the copy that they have
    Set {
        /// The persona: NAME, NAME@VERSION, or its id
        persona: String,
        /// The new name
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// The new version
        #[arg(long, value_name = "VERSION")]
        persona_version: Option<String>,
        /// What the model is told: the text, or `@FILE`
        #[arg(long, value_name = "TEXT")]
        text: Option<String>,
    },
    /// Delete a persona. Sessions keep the copy that they have
    #[command(alias = "remove")]
    Delete {
        /// The persona: NAME, NAME@VERSION, or its id
        persona: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(global: &Global, args: PersonaArgs) -> Result<Exit, CliError> {
    let store = global.store().await?;
    match args.verb {
        PersonaVerb::List => {
            let all = all_personas(&store).await?;
            list(global, &all);
        }
        PersonaVerb::Show { persona } => show(global, &find(&store, &persona).await?),
        PersonaVerb::Create {
            name,
            text,
            persona_version: version,
        } => {
            let new = Persona::new(parse_name(&name)?, parse_name(&version)?, text_of(&text)?);
            show(global, &store.create_persona(new).await?);
        }
        PersonaVerb::Set {
            persona,
            name,
            persona_version: version,
            text,
        } => {
            if name.is_none() && version.is_none() && text.is_none() {
                return Err(CliError::usage("nothing is to change").hint("`--help` shows what can"));
            }
            let mut changed = find(&store, &persona).await?;
            if let Some(name) = &name {
                changed.name = parse_name(name)?.to_owned();
            }
            if let Some(version) = &version {
                changed.version = parse_name(version)?.to_owned();
            }
            if let Some(text) = &text {
                changed.persona_text = text_of(text)?;
            }
            show(global, &store.update_persona(changed).await?);
        }
        PersonaVerb::Delete { persona, yes } => {
            let removed = find(&store, &persona).await?;
            let what = format!(
                "This deletes the persona {} {}, for good.",
                clean(&removed.name),
                clean(&removed.version)
            );
            if !confirm(yes, what, "Delete it?").await? {
                return Ok(Exit::Interrupted);
            }
            store.delete_persona(&removed.id).await?;
            if global.json {
                output::json(&json!({ "removed": removed.id }));
            } else {
                print_note("It is gone; sessions keep the copy that they have.");
            }
        }
    }
    Ok(Exit::Success)
}

/// The persona that is meant: by its id, its name and version, or the newest of its name.
pub(super) async fn find(store: &Store, wanted: &str) -> Result<Persona, CliError> {
    let all = all_personas(store).await?;
    let (name, version) = match wanted.rsplit_once('@') {
        Some((name, version)) => (name, Some(version)),
        None => (wanted, None),
    };
    let exact = all
        .iter()
        .find(|known| known.id == wanted || (version.is_none() && known.name == wanted));
    let found = match (version, exact) {
        (Some(version), None) => all
            .iter()
            .find(|known| known.name == name && known.version == version),
        (None, Some(known)) if known.name == wanted => {
            let of_name = all.iter().filter(|known| known.name == wanted);
            of_name.max_by_key(|known| known.created_at_ms)
        }
        (_, exact) => exact,
    };
    found.cloned().ok_or_else(|| {
        CliError::usage(format!("there is no persona `{}`", clean(wanted)))
            .hint("`conjure persona list` lists them")
    })
}

async fn all_personas(store: &Store) -> Result<Vec<Persona>, CliError> {
    let mut all: Vec<Persona> = Vec::new();
    loop {
        let after = all.last().map(|persona| persona.id.clone());
        let page = store.personas(after.as_deref(), PAGE).await?;
        let is_last = (page.len() as u64) < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

fn parse_name(text: &str) -> Result<&str, CliError> {
    let text = text.trim();
    let is_line = !text.is_empty() && !text.contains(char::is_control);
    if is_line && text.chars().count() <= MAX_NAME_CHARS && !text.contains('@') {
        return Ok(text);
    }
    Err(CliError::usage(format!(
        "a name and a version are one line of 1 to {MAX_NAME_CHARS} characters without `@`"
    )))
}

fn list(global: &Global, all: &[Persona]) {
    if global.json {
        let all: Vec<Value> = all.iter().map(persona_json).collect();
        output::json(&json!({ "personas": all }));
        return;
    }
    if all.is_empty() {
        print_note("There is no persona yet; `conjure persona create NAME TEXT` saves one.");
        return;
    }
    let mut table = Table::new(["NAME", "VERSION", "ID", "TEXT"]);
    for persona in all {
        table.row([
            persona.name.clone(),
            persona.version.clone(),
            persona.id.clone(),
            one_line(&persona.persona_text, 60),
        ]);
    }
    table.print();
}

fn show(global: &Global, persona: &Persona) {
    if global.json {
        output::json(&persona_json(persona));
        return;
    }
    line(format_args!(
        "{BOLD}{}{RESET} {}",
        clean(&persona.name),
        clean(&persona.version)
    ));
    line(clean(&persona.persona_text));
}

fn persona_json(persona: &Persona) -> Value {
    json!({
        "id": persona.id,
        "name": persona.name,
        "version": persona.version,
        "persona_text": persona.persona_text,
        "created_at_ms": persona.created_at_ms,
        "updated_at_ms": persona.updated_at_ms,
    })
}
