//! A native skill that keeps a cache for a session.
//!
//! The smallest skill with state across calls: one instance a session, two callbacks short enough
//! for `in_place`, and an upgrade that keeps the entries. Nothing is written to disk.

mod cache;
mod command;
#[cfg(test)]
mod testing;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::protocol::{Execute, Read, State, ToolResult};
use conjure_skill_sdk::{Error, Result, Skill, ToolOptions, export_skill};

use crate::cache::KeyValueCache;
use crate::command::{CacheCommand, GRAMMAR};

fn skill() -> Skill {
    let cache = SharedCache::default();
    let (executing, reading) = (cache.clone(), cache.clone());
    let (exporting, importing) = (cache.clone(), cache);
    Skill::new(
        "cache-manager",
        "Keeps values under keys for as long as the session lives.",
    )
    .execute(GRAMMAR, move |_cx, request: Execute| {
        execute(&mut executing.lock(), &request.command)
    })
    .with(ToolOptions::new().in_place())
    .read(
        "`stats`: hits, misses, entries, bytes",
        move |_cx, request: Read| read(&reading.lock(), &request.path),
    )
    .with(ToolOptions::new().in_place())
    .upgrade(
        move |_cx| Ok(serde_json::to_value(&*exporting.lock())?),
        move |_cx, state: State| {
            *importing.lock() = KeyValueCache::from_state(state.state)?;
            Ok(())
        },
    )
    .example(
        "execute",
        serde_json::json!({ "command": "set city Lyon" }),
        "stored",
    )
    .example(
        "execute",
        serde_json::json!({ "command": "get city" }),
        "Lyon",
    )
}

export_skill!(skill, name = "cache-manager");

fn execute(cache: &mut KeyValueCache, text: &str) -> Result<ToolResult> {
    Ok(match CacheCommand::parse(text)? {
        CacheCommand::Set { key, value } => {
            cache.set(key, value)?;
            ToolResult::text("stored")
        }
        CacheCommand::Get { key } => match cache.get(key) {
            Some(value) => ToolResult::text(value),
            None => ToolResult::error(format!(
                "`{key}` is not in the cache. `list` shows what is."
            )),
        },
        CacheCommand::Delete { key } => ToolResult::text(if cache.delete(key) {
            "deleted"
        } else {
            "there was nothing to delete"
        }),
        CacheCommand::Clear => ToolResult::text(match cache.clear() {
            1 => "cleared 1 entry".to_owned(),
            count => format!("cleared {count} entries"),
        }),
        CacheCommand::List { prefix } => ToolResult::text(cache.list(prefix)),
    })
}

fn read(cache: &KeyValueCache, path: &str) -> Result<ToolResult> {
    match path.trim().trim_start_matches('/') {
        "stats" => Ok(ToolResult::json(serde_json::to_value(cache.stats())?)),
        other => Err(Error::not_found(format!(
            "there is no `{other}` to read; `stats` is all there is. A value is read with the \
             command `get K`."
        ))),
    }
}

/// The cache of one instance.
#[derive(Clone, Default)]
struct SharedCache(Arc<Mutex<KeyValueCache>>);

impl SharedCache {
    fn lock(&self) -> MutexGuard<'_, KeyValueCache> {
        // No step leaves a cache half changed, so one that panicked has not broken it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::skill;
    use crate::testing::CacheInstance;

    #[test]
    fn values_stay_from_call_to_call() {
        let cache = CacheInstance::of(skill());
        assert_eq!(cache.execute("set city Lyon"), ok("stored"));
        assert_eq!(cache.execute("get city"), ok("Lyon"));
        assert_eq!(cache.execute("set city Nice"), ok("stored"));
        assert_eq!(cache.execute("get city"), ok("Nice"));
        assert_eq!(cache.execute("delete city"), ok("deleted"));
        assert_eq!(
            cache.execute("delete city"),
            ok("there was nothing to delete")
        );
        assert_eq!(
            cache.execute("get city"),
            error("`city` is not in the cache. `list` shows what is.")
        );
    }

    #[test]
    fn two_instances_share_nothing() {
        let (one, two) = (CacheInstance::of(skill()), CacheInstance::of(skill()));
        one.execute("set k 1");
        assert_eq!(
            two.execute("get k"),
            error("`k` is not in the cache. `list` shows what is.")
        );
        assert_eq!(one.execute("clear"), ok("cleared 1 entry"));
        assert_eq!(two.execute("clear"), ok("cleared 0 entries"));
    }

    #[test]
    fn the_stats_count_hits_and_misses() {
        let cache = CacheInstance::of(skill());
        cache.execute("set a 12345");
        cache.execute("set b 1");
        cache.execute("get a");
        cache.execute("get a");
        cache.execute("get nothing");
        let stats = json!({ "hits": 2, "misses": 1, "entries": 2, "bytes": 8 });
        assert_eq!(cache.read("stats")["structured"], stats);
        cache.execute("clear");
        let cleared = json!({ "hits": 2, "misses": 1, "entries": 0, "bytes": 0 });
        assert_eq!(cache.read("stats")["structured"], cleared);
    }

    #[test]
    fn a_mistake_is_answered_with_the_grammar() {
        let cache = CacheInstance::of(skill());
        let answer = cache.execute("increment k");
        assert_eq!(
            answer,
            error(
                "`increment` is not a command of this skill. \
                 Grammar: clear | set K V | get K | delete K | list [PREFIX]"
            )
        );
        assert_eq!(
            cache.read("keys")["is_error"],
            Value::Bool(true),
            "what cannot be read is an error result"
        );
    }

    #[test]
    fn an_upgrade_keeps_entries_and_counts() {
        let old = CacheInstance::of(skill());
        old.execute("set a 1");
        old.execute("get a");
        let state = old.call("state.export", &json!({})).unwrap();
        let new = CacheInstance::of(skill());
        new.call("state.import", &state).unwrap();
        assert_eq!(new.execute("get a"), ok("1"));
        assert_eq!(
            new.read("stats")["structured"],
            json!({ "hits": 2, "misses": 0, "entries": 1, "bytes": 2 })
        );
    }

    #[test]
    fn a_state_that_does_not_fit_changes_nothing() {
        let cache = CacheInstance::of(skill());
        cache.execute("set a 1");
        let bad = json!({ "version": "9", "state": { "entries": [1, 2] } });
        assert!(cache.call("state.import", &bad).is_err());
        assert_eq!(cache.execute("get a"), ok("1"));
    }

    fn ok(text: &str) -> Value {
        json!({ "content": [{ "type": "text", "text": text }], "is_error": false })
    }

    fn error(text: &str) -> Value {
        json!({ "content": [{ "type": "text", "text": text }], "is_error": true })
    }
}
