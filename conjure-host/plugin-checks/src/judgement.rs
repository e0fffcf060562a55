//! What is to be said of a plugin's file and of its tools without running anything: names, schemas,
//! size, symbols, licence.

use std::path::{Path, PathBuf};

use conjure_core::repair::RepairTarget;
use conjure_core::request::{ModelRequest, ToolDefinition};
use conjure_core::routing::{Catalog, CatalogTool, EffectLevel, Naming, Prefix, RoutingTable};
use conjure_core::wire::{Endpoint, Wire};
use conjure_plugins::PluginFile;
use conjure_skill_sdk::protocol::{ToolDecl, op};
use serde::Serialize;

/// A description beyond so many characters is one that models read at every step for little.
const LONG_DESCRIPTION: usize = 1024;
/// A file beyond so many bytes is one that takes a while to fetch and to hash.
const LARGE_FILE_BYTES: usize = 20_000_000;

/// What is to be said of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Bytes of the file.
    pub size: usize,
    /// Bytes of it that only debuggers read.
    pub debug_bytes: u64,
    /// Bytes of names of functions.
    pub symbol_bytes: u64,
    /// How many exported names no host looks for.
    pub other_symbols: usize,
    /// The licence of the crate, where that is found.
    pub licence: Licence,
    /// What should be otherwise, or must.
    pub findings: Vec<Finding>,
}

/// What is known of a plugin's licence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "known")]
pub enum Licence {
    /// The crate names this licence.
    Named {
        /// An SPDX expression, or the name of a file.
        licence: String,
        /// The crate's manifest, which names it.
        manifest: PathBuf,
    },
    /// The crate names no licence.
    NotNamed {
        /// The crate's manifest, which could name one.
        manifest: PathBuf,
    },
    /// No crate of this name is around the file; a text lies beside the program's description.
    Text {
        /// The text.
        file: PathBuf,
    },
    /// No crate of this name is around the file, and no such text.
    NoCrate,
}

/// Something about a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: FindingLevel,
    /// Subject: `name`, `operation`, `schema`, `description`, `size`, `symbols`, `licence`.
    pub about: &'static str,
    /// What there is, and what to do.
    pub message: String,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingLevel {
    /// The plugin works as it is.
    Warning,
    /// A tool is not there for some or all models.
    Refusal,
}

impl Judgement {
    /// Judges a plugin's file, and these tools of it.
    #[must_use]
    pub fn of(file: &PluginFile, tools: &[ToolDecl]) -> Self {
        let contents = file.contents();
        let licence = match licence(&file.path, &file.header.name) {
            Licence::NoCrate if file.program.is_some() => licence_text(&file.path),
            licence => licence,
        };
        let mut judgement = Self {
            size: file.bytes.len(),
            debug_bytes: contents.debug_bytes,
            symbol_bytes: contents.symbol_bytes,
            other_symbols: contents.other_symbols.len(),
            licence,
            findings: Vec::new(),
        };
        judgement.check_tools(file.header.kind.as_str(), &file.header.name, tools);
        judgement.check_symbols(&contents.other_symbols);
        judgement.check_size();
        judgement.check_licence();
        judgement
    }

    /// Whether something must be otherwise.
    #[must_use]
    pub fn refuses(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.level == FindingLevel::Refusal)
    }

    fn warn(&mut self, about: &'static str, message: String) {
        self.add(FindingLevel::Warning, about, message);
    }

    fn add(&mut self, level: FindingLevel, about: &'static str, message: String) {
        self.findings.push(Finding {
            level,
            about,
            message,
        });
    }

    /// Names and schemas, as a session's table and the requests to providers have them.
    fn check_tools(&mut self, kind: &str, plugin: &str, tools: &[ToolDecl]) {
        let table = match table(kind, plugin, tools) {
            Ok(table) => table,
            Err(error) => {
                return self.add(FindingLevel::Refusal, "name", error);
            }
        };
        for tool in tools.iter().filter(|tool| !is_operation(&tool.op)) {
            self.warn(
                "operation",
                format!(
                    "the operation `{}` of the tool `{}` is none of the protocol's: a tool of a skill's own \
                     has `skill.tool.{}`, one of a backend's `backend.call`",
                    tool.op, tool.name, tool.name
                ),
            );
        }
        for route in table.routes() {
            let (own, public) = (route.tool(), route.name.as_str());
            if !public.ends_with(own) {
                self.warn(
                    "name",
                    format!(
                        "the tool `{own}` is `{public}` for models, which take letters, digits, `_` \
                         and `-`, 64 at the most together with the plugin's name"
                    ),
                );
            }
            let description = &route.definition.description;
            if description.trim().is_empty() {
                self.warn(
                    "description",
                    format!(
                        "the tool `{own}` has no description: say what it does and when to use it"
                    ),
                );
            } else if description.chars().count() > LONG_DESCRIPTION {
                self.warn(
                    "description",
                    format!(
                        "the description of `{own}` has {} characters, which each request carries: \
                         move what is rarely needed into the results",
                        description.chars().count()
                    ),
                );
            }
        }
        let definitions = table.routes().iter().map(|route| ToolDefinition {
            name: route.name.as_str().to_owned(),
            description: route.definition.description.clone(),
            input_schema: route.definition.input_schema.clone(),
        });
        self.check_schemas(&definitions.collect::<Vec<_>>());
    }

    /// What each wire makes of the tools.
    fn check_schemas(&mut self, tools: &[ToolDefinition]) {
        // By what is said: the wires that say it.
        let mut messages: Vec<(FindingLevel, String, Vec<&str>)> = Vec::new();
        for wire in Wire::ALL {
            let target = RepairTarget::new(wire.as_str(), "model").with_wire(wire);
            let request = ModelRequest {
                tools: tools.to_vec(),
                ..ModelRequest::empty(&target)
            };
            let encoded = wire.encode(&request, &Endpoint::new(wire.as_str()));
            let refused = encoded.quarantined.iter().map(|tool| {
                let words = format!(
                    "the tool `{}` is left out of requests: {}",
                    tool.tool, tool.reason
                );
                (FindingLevel::Refusal, words)
            });
            let recast = encoded.notes.iter();
            let recast = recast.map(|note| (FindingLevel::Warning, note.clone()));
            for (level, words) in refused.chain(recast) {
                match messages.iter_mut().find(|(_, known, _)| *known == words) {
                    Some((_, _, wires)) => wires.push(wire.as_str()),
                    None => messages.push((level, words, vec![wire.as_str()])),
                }
            }
        }
        for (level, words, wires) in messages {
            let wires = match wires.len() == Wire::ALL.len() {
                true => "every wire".to_owned(),
                false => wires.join(", "),
            };
            self.add(level, "schema", format!("{wires}: {words}"));
        }
    }

    fn check_symbols(&mut self, other: &[String]) {
        const SHOWN: usize = 3;
        if other.is_empty() {
            return;
        }
        let shown = other.get(..SHOWN.min(other.len())).unwrap_or_default();
        let more = match other.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        self.warn(
            "symbols",
            format!(
                "it exports {} beside the two of the SDK ({}{more}): functions with \
                 `#[no_mangle]`, or a C library that is linked in. Hide them (`-fvisibility=hidden` \
                 for C, no `#[no_mangle]` in Rust): a name that another library has too is a risk in \
                 the host's process",
                match other.len() {
                    1 => "1 name".to_owned(),
                    count => format!("{count} names"),
                },
                shown.join(", "),
            ),
        );
    }

    fn check_size(&mut self) {
        let extra = self.debug_bytes + self.symbol_bytes;
        if self.size > LARGE_FILE_BYTES && extra > self.size as u64 / 4 {
            self.warn(
                "size",
                format!(
                    "it has {} MB, {} MB of them for debuggers: build what you give away with \
                     `cargo build --release` and `strip = true` in `[profile.release]`",
                    megabytes(self.size as u64),
                    megabytes(extra),
                ),
            );
        } else if self.size > LARGE_FILE_BYTES {
            self.warn(
                "size",
                format!(
                    "it has {} MB: `lto = \"thin\"` and `codegen-units = 1` in `[profile.release]` make \
                     it smaller, and fewer features of what it depends on",
                    megabytes(self.size as u64)
                ),
            );
        }
    }

    fn check_licence(&mut self) {
        if let Licence::NotNamed { manifest } = &self.licence {
            let message = format!(
                "{} names no licence, so nobody may pass the plugin on: add `license = \"…\"`",
                manifest.display()
            );
            self.warn("licence", message);
        }
    }
}

/// Whether a host knows what it asks with this operation.
fn is_operation(name: &str) -> bool {
    match name.strip_prefix(op::SKILL_TOOL) {
        Some(tool) => !tool.is_empty(),
        None => op::ALL.contains(&name),
    }
}

fn megabytes(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

/// The table of a session that has this plugin and nothing else.
fn table(kind: &str, plugin: &str, tools: &[ToolDecl]) -> Result<RoutingTable, String> {
    let is_skill = kind == "skill";
    let tools = tools.iter().map(|tool| {
        let skill = match is_skill {
            true => Some(plugin.to_owned()),
            false => tool.skill.clone(),
        };
        let effects = EffectLevel::Write;
        CatalogTool {
            skill,
            description: tool.description.clone(),
            input_schema: tool.input_schema.clone(),
            ..CatalogTool::new(&tool.name, &tool.op, effects)
        }
        .into()
    });
    let catalog = Catalog {
        backend: if is_skill { "native" } else { plugin }.to_owned(),
        kind: if is_skill { "native" } else { plugin }.to_owned(),
        naming: Prefix::default(),
        tools: tools.collect(),
    };
    RoutingTable::build(1, &[catalog], &Naming::default()).map_err(|error| error.to_string())
}

/// The licence that the crate around a file names, such as that of `target/debug/libx.so`.
fn licence(file: &Path, plugin: &str) -> Licence {
    let file = conjure_config::fs::real_path(file);
    for dir in file.ancestors().skip(1).take(5) {
        let manifest = dir.join("Cargo.toml");
        let Ok(text) = conjure_config::fs::read_to_string(&manifest) else {
            continue;
        };
        let Ok(table) = toml::from_str::<toml::Table>(&text) else {
            continue;
        };
        let Some(package) = table.get("package").and_then(toml::Value::as_table) else {
            continue;
        };
        let text = |key: &str| package.get(key).and_then(toml::Value::as_str);
        if text("name") != Some(plugin) {
            continue;
        }
        let is_elsewhere = package.get("license").is_some_and(toml::Value::is_table);
        return match text("license").or(text("license-file")) {
            Some(licence) => Licence::Named {
                licence: licence.to_owned(),
                manifest,
            },
            // A workspace says it for all of its crates.
            None if is_elsewhere => Licence::Named {
                licence: "the workspace's".to_owned(),
                manifest,
            },
            None => Licence::NotNamed { manifest },
        };
    }
    Licence::NoCrate
}

/// The text of a licence beside a program's description.
fn licence_text(description: &Path) -> Licence {
    let dir = description.parent().unwrap_or(Path::new(""));
    // A name alone stands in the current directory.
    let is_here = dir.as_os_str().is_empty();
    let dir = if is_here { Path::new(".") } else { dir };
    let entries = conjure_config::fs::entries(dir).unwrap_or_default();
    let is_text = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_ascii_uppercase();
        let mut words = ["LICENSE", "LICENCE", "COPYING"].into_iter();
        words.any(|word| name.starts_with(word)) && path.is_file()
    };
    match entries.into_iter().find(is_text) {
        Some(file) => Licence::Text { file },
        None => Licence::NoCrate,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judged(tools: &[(&str, &str, Value)]) -> Vec<String> {
        let tools: Vec<ToolDecl> = tools
            .iter()
            .map(|(name, description, schema)| ToolDecl::new(*name, *description, schema.clone()))
            .collect();
        let mut judgement = Judgement {
            size: 0,
            debug_bytes: 0,
            symbol_bytes: 0,
            other_symbols: 0,
            licence: Licence::NoCrate,
            findings: Vec::new(),
        };
        judgement.check_tools("skill", "notes", &tools);
        let findings = judgement.findings.into_iter();
        findings
            .map(|finding| format!("{:?} {}: {}", finding.level, finding.about, finding.message))
            .collect()
    }

    #[test]
    fn ordinary_tools_have_no_findings() {
        let schema = json!({
            "type": "object", "properties": { "a": { "type": "string" } }, "required": ["a"],
        });
        assert_eq!(judged(&[("find", "Finds notes", schema)]), [""; 0]);
    }

    #[test]
    fn what_some_wires_do_not_take_is_said_with_them() {
        let own = json!({
            "type": "object", "properties": { "next": { "$ref": "#/$defs/node" } },
            "$defs": { "node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/node" } } } },
        });
        let found = judged(&[("walk", "Walks", own)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("Refusal schema: gemini: the tool `notes_walk`"),
            "{found:?}"
        );
        let wrong = json!({ "type": "object", "properties": { "a": { "type": "text" } } });
        let found = judged(&[("find", "Finds", wrong)]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with("Refusal schema: every wire: the tool `notes_find`")
                && found[0].contains("/properties/a/type"),
            "{found:?}"
        );
    }

    #[test]
    fn a_schema_that_is_told_otherwise_is_a_warning() {
        let choice = json!({ "type": "object", "oneOf": [
            { "properties": { "a": { "type": "string" } } },
            { "properties": { "b": { "type": "string" } } },
        ] });
        let found = judged(&[("find", "Finds", choice)]);
        assert!(
            !found.is_empty() && found.iter().all(|it| it.starts_with("Warning schema")),
            "{found:?}"
        );
    }

    #[test]
    fn names_and_descriptions_are_looked_at() {
        let schema = json!({ "type": "object" });
        let found = judged(&[
            ("naïve search", "Finds", schema.clone()),
            ("plain", " ", schema.clone()),
            ("long", &"a".repeat(2000), schema),
        ]);
        let about: Vec<&str> = found
            .iter()
            .map(|it| it.split(':').next().unwrap())
            .collect();
        assert_eq!(
            about,
            ["Warning description", "Warning name", "Warning description"],
            "{found:?}"
        );
    }

    #[test]
    fn the_licence_is_that_of_the_crate_around_the_file() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let file = root.join("target/debug/libnotes.so");
        conjure_config::fs::create_dir_all(file.parent().unwrap()).unwrap();
        let manifest = root.join("Cargo.toml");
        let write = |text: &str| conjure_config::fs::write(&manifest, text).unwrap();
        assert_eq!(licence(&file, "notes"), Licence::NoCrate);
        write("[package]\nname = \"notes\"\nlicense = \"MIT\"\n");
        let named = Licence::Named {
            licence: "MIT".to_owned(),
            manifest: manifest.clone(),
        };
        assert_eq!(licence(&file, "notes"), named);
        assert_eq!(licence(&file, "other"), Licence::NoCrate);
        write("[package]\nname = \"notes\"\n");
        let not_named = Licence::NotNamed {
            manifest: manifest.clone(),
        };
        assert_eq!(licence(&file, "notes"), not_named);
    }

    #[test]
    fn an_operation_that_is_none_is_told() {
        let schema = json!({ "type": "object" });
        let tool = |op: &str| {
            let tool = ToolDecl::new("count", "Counts", schema.clone());
            let op = op.to_owned();
            ToolDecl { op, ..tool }
        };
        let judged = |op: &str| {
            let mut judgement = Judgement {
                size: 0,
                debug_bytes: 0,
                symbol_bytes: 0,
                other_symbols: 0,
                licence: Licence::NoCrate,
                findings: Vec::new(),
            };
            judgement.check_tools("skill", "notes", &[tool(op)]);
            judgement.findings
        };
        for op in ["skill.tool.count", "skill.execute", "backend.call"] {
            assert!(judged(op).is_empty(), "{op}");
        }
        for op in ["skill.count", "skill.tool.", ""] {
            let found = judged(op);
            assert_eq!((found.len(), found[0].about), (1, "operation"), "{op}");
            assert!(found[0].message.contains("`skill.tool.count`"), "{found:?}");
        }
    }

    #[test]
    fn the_licence_of_a_program_is_the_text_beside_its_description() {
        let root = tempfile::tempdir().unwrap();
        let description = root.path().join("notes.plugin.toml");
        assert_eq!(licence_text(&description), Licence::NoCrate);
        let file = root.path().join("License.txt");
        conjure_config::fs::write(&file, "Do what you want.").unwrap();
        assert_eq!(licence_text(&description), Licence::Text { file });
    }
}
