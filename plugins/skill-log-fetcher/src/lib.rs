//! A native skill that fetches log entries from a file or a URL.
//!
//! Reads JSON arrays and lines (those of the systemd journal too), logfmt, access logs of web servers
//! and plain text lines, brings them into one form and writes them as JSON lines into the working
//! directory, where the tools of other backends find them. It looks for nothing in the entries:
//! analysis is another skill's work.

mod access;
mod command;
mod content;
mod entry;
mod fetch;
mod journal;
mod output;
mod reader;
mod source;
mod structured;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod timestamp;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use conjure_skill_sdk::protocol::{Execute, Permissions, Read, ToolResult};
use conjure_skill_sdk::{Error, Result, Skill, ToolOptions, export_skill};
use serde::Deserialize;
use serde_json::json;

use crate::command::{FetchCommand, GRAMMAR};
use crate::fetch::LastFetch;

/// How many entries `read recent` gives when the call does not say.
const DEFAULT_RECENT: u64 = 20;
/// A large log from a slow server takes its time.
const TIMEOUT_MS: u64 = 120_000;

/// What a person can configure.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FetcherConfig {
    /// Directories whose files may be fetched, besides the working directory.
    #[serde(default)]
    roots: Vec<PathBuf>,
}

fn skill() -> Skill {
    let roots = Arc::new(OnceLock::<Vec<PathBuf>>::new());
    let last = Arc::new(Mutex::new(None::<LastFetch>));
    let (configured, reading) = (Arc::clone(&roots), Arc::clone(&last));
    Skill::new(
        "log-fetcher",
        "Fetches log entries from a file or a URL and writes them as JSON lines. Reads JSON, \
         `journalctl -o json`, logfmt, access logs of nginx and Apache, syslog and text lines.",
    )
    .execute(GRAMMAR, move |cx, request: Execute| {
        let command = FetchCommand::parse(&request.command)?;
        let roots = roots.get().map(Vec::as_slice).unwrap_or_default();
        let (result, fetched) = fetch::run(cx, &command, roots)?;
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(fetched);
        Ok::<_, Error>(result)
    })
    .with(ToolOptions::new().timeout_ms(TIMEOUT_MS))
    .read(
        "`recent`: the newest entries of the last fetch (offset and limit count from the newest \
         one back), or `stats`: its figures",
        move |_cx, request: Read| {
            let last = reading.lock().unwrap_or_else(PoisonError::into_inner);
            read(last.as_ref(), &request)
        },
    )
    .permissions(Permissions {
        http: vec!["*".to_owned()],
        ..Permissions::default()
    })
    .config_schema(json!({
        "type": "object",
        "properties": {
            "roots": {
                "type": "array",
                "items": { "type": "string" },
                "description": "Absolute directories whose files may be fetched, besides the \
                                working directory, such as /var/log"
            }
        },
        "additionalProperties": false
    }))
    .on_create(move |setup| {
        let config: FetcherConfig = setup.config()?;
        if let Some(root) = config.roots.iter().find(|root| !root.is_absolute()) {
            return Err(Error::invalid(format!(
                "`roots` holds `{}`; it must be an absolute directory",
                root.display()
            )));
        }
        let _ = configured.set(config.roots);
        Ok(())
    })
    .example(
        "execute",
        json!({ "command": "fetch app.log --limit 500 --level WARN" }),
        "Kept 23 of 500 entries",
    )
}

export_skill!(skill, name = "log-fetcher");

fn read(last: Option<&LastFetch>, request: &Read) -> Result<ToolResult> {
    let path = request.path.trim().trim_start_matches('/');
    if !matches!(path, "recent" | "stats") {
        return Err(Error::not_found(format!(
            "there is no `{path}` to read; there are `recent` and `stats`"
        )));
    }
    let last = last.ok_or_else(|| {
        Error::not_found(format!("nothing was fetched yet. Fetch first: {GRAMMAR}"))
    })?;
    Ok(match path {
        "stats" => ToolResult::json(last.stats()?),
        _ => ToolResult::text(last.recent(
            request.offset.unwrap_or(0),
            request.limit.unwrap_or(DEFAULT_RECENT),
        )),
    })
}
