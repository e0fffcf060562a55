//! What a program's author writes down about it, and what a host decides from that alone.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Component, Path};

use conjure_abi::{HeaderFields, PluginKind};
use serde::{Deserialize, Serialize};

use crate::PluginError;

/// The major version of the protocol that this host speaks with programs.
pub const PROTOCOL: u16 = 1;

/// The form of a description that this host reads.
const FORMAT_VERSION: u32 = 1;
/// The most bytes that a description may have.
const DESCRIPTION_LIMIT: u64 = 256 * 1024;
/// The most bytes that a name may have, as in the header of a library.
const MAX_NAME_BYTES: usize = 64;

/// The description of a program that is a plugin.
///
/// Keys that are not known are passed over, so that a later version may have more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramDescription {
    /// The form of the description; this one is 1.
    pub plugin: u32,
    /// The major version of the protocol that the program speaks.
    pub protocol: u16,
    /// `skill`, `executor` or `backend`.
    pub kind: String,
    /// The plugin's name.
    pub name: String,
    /// The plugin's version.
    pub version: String,
    /// What is started, and with which arguments: the name of a program of the system, or one of
    /// `files`.
    pub command: Vec<String>,
    /// The files that belong to it, each as a path below the description's directory. One that ends
    /// in `/` stands for all files below that directory.
    #[serde(default)]
    pub files: Vec<String>,
}

/// What is looked at before the rest is read: another form may have other fields.
#[derive(Deserialize)]
struct DescriptionFormat {
    plugin: u32,
    #[serde(default)]
    protocol: Option<u16>,
}

/// Whether the name is that of a description: `plugin.toml`, or one that ends in `.plugin.toml`.
pub fn is_description(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    name == "plugin.toml" || (!name.starts_with('.') && name.ends_with(".plugin.toml"))
}

/// Reads a description and judges it.
///
/// # Errors
/// The first thing that is wrong with it.
pub(crate) fn parse(path: &Path, text: &[u8]) -> Result<ProgramDescription, PluginError> {
    let wrong = |what: String| PluginError::Description {
        path: path.to_owned(),
        what,
    };
    judge_size(path, text.len() as u64)?;
    let text =
        std::str::from_utf8(text).map_err(|error| wrong(format!("it is not UTF-8 ({error})")))?;
    let table: toml::Table = toml::from_str(text)
        .map_err(|error| wrong(format!("it is not TOML ({})", error.message())))?;
    let form: DescriptionFormat = table
        .clone()
        .try_into()
        .map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
    if form.plugin != FORMAT_VERSION {
        return Err(wrong(format!(
            "its form is `plugin = {}`, and this host reads form {FORMAT_VERSION}",
            form.plugin
        )));
    }
    if let Some(found) = form.protocol.filter(|found| *found != PROTOCOL) {
        return Err(PluginError::Protocol {
            path: path.to_owned(),
            found,
            needed: PROTOCOL,
        });
    }
    let description: ProgramDescription = table
        .try_into()
        .map_err(|error: toml::de::Error| wrong(error.message().to_owned()))?;
    description.check().map_err(wrong)?;
    Ok(description)
}

/// Judges the size of a description, in bytes, before it is read.
///
/// # Errors
/// That it is too large.
pub(crate) fn judge_size(path: &Path, size: u64) -> Result<(), PluginError> {
    match size > DESCRIPTION_LIMIT {
        true => Err(PluginError::Description {
            path: path.to_owned(),
            what: format!("it has {size} bytes, and a description has at most {DESCRIPTION_LIMIT}"),
        }),
        false => Ok(()),
    }
}

impl ProgramDescription {
    /// Returns the description in the words of a library's header.
    pub(crate) fn header(&self) -> HeaderFields {
        HeaderFields {
            abi_major: self.protocol,
            abi_minor: 0,
            kind: self.kind().unwrap_or(PluginKind::Skill),
            panic_unwind: true,
            pointer_size: u8::try_from(size_of::<usize>()).unwrap_or_default(),
            name: self.name.clone(),
            version: self.version.clone(),
            sdk: String::new(),
            rustc: String::new(),
        }
    }

    /// The first word of its command, where that is one of its files and no program of the system.
    pub(crate) fn own_program(&self) -> Option<&str> {
        let program = self.command.first()?;
        self.includes(program).then_some(program)
    }

    /// Whether it names a file, itself or a directory that it is in.
    pub(super) fn includes(&self, file: &str) -> bool {
        let mut named = self.files.iter();
        named.any(|name| name == file || (name.ends_with('/') && file.starts_with(name.as_str())))
    }

    fn kind(&self) -> Option<PluginKind> {
        let kinds = [PluginKind::Skill, PluginKind::Executor, PluginKind::Backend];
        kinds.into_iter().find(|kind| kind.as_str() == self.kind)
    }

    fn check(&self) -> Result<(), String> {
        if self.kind().is_none() {
            return Err(format!(
                "its kind is `{}`, and there are `skill`, `executor` and `backend`",
                self.kind
            ));
        }
        let fits = (1..=MAX_NAME_BYTES).contains(&self.name.len())
            && !self.name.chars().any(char::is_control);
        if !fits {
            return Err(format!(
                "its name is not one of 1 to {MAX_NAME_BYTES} bytes without control characters"
            ));
        }
        if semver::Version::parse(&self.version).is_err() {
            return Err(format!(
                "its version `{}` is not a semantic version",
                self.version
            ));
        }
        let mut named = HashMap::new();
        for file in &self.files {
            if !is_plain(file) {
                return Err(format!(
                    "its file `{file}` is not a plain path below its own directory"
                ));
            }
            if is_description(Path::new(file)) {
                return Err(format!("its file `{file}` has the name of a description"));
            }
            if named.insert(file.trim_end_matches('/'), file).is_some() {
                return Err(format!("its file `{file}` is named twice"));
            }
        }
        for file in &self.files {
            let mut above = dirs_above(file.trim_end_matches('/'));
            match above.find_map(|dir| named.get(dir)) {
                None => {}
                Some(dir) if dir.ends_with('/') => {
                    return Err(format!(
                        "its file `{file}` is named twice: its directory `{dir}` has it already"
                    ));
                }
                Some(dir) => {
                    return Err(format!(
                        "its file `{dir}` cannot be a directory too, and `{file}` is below it"
                    ));
                }
            }
        }
        let Some(program) = self.command.first() else {
            return Err("its command is empty".to_owned());
        };
        if self.command.iter().any(|word| word.contains('\0')) {
            return Err("a word of its command holds a zero byte".to_owned());
        }
        let is_own = is_plain(program) && !program.ends_with('/') && self.includes(program);
        if !is_own && (program.is_empty() || program.contains('/')) {
            return Err(format!(
                "its command begins with `{program}`, which is neither one of its files nor the plain \
                 name of a program"
            ));
        }
        Ok(())
    }
}

/// The directories that a plain path leads through, from the top.
pub(super) fn dirs_above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at))
}

/// Whether a path leads to something below a directory, wherever that is, and reads the same
/// everywhere.
pub(super) fn is_plain(path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    let is_odd = |part: &str| part.is_empty() || part == "." || part == "..";
    !path.split('/').any(is_odd)
        && !path.contains(['\\', '\0'])
        && Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
plugin = 1
protocol = 1
kind = "skill"
name = "greeter"
version = "0.1.0"
command = ["python3", "greeter.py"]
files = ["greeter.py", "lib/"]
later = "a key of a later version"
"#;

    fn said(text: &str) -> String {
        parse(Path::new("g.plugin.toml"), text.as_bytes())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_description_says_what_a_header_says() {
        let description = parse(Path::new("g.plugin.toml"), WHOLE.as_bytes()).unwrap();
        let header = description.header();
        assert_eq!(
            (header.kind, header.name.as_str(), header.version.as_str()),
            (PluginKind::Skill, "greeter", "0.1.0")
        );
        assert!(description.includes("greeter.py") && description.includes("lib/a/b.py"));
        assert!(!description.includes("library.py") && !description.includes("lib"));
    }

    #[test]
    fn what_is_wrong_with_one_is_said() {
        for (from, to, expected) in [
            ("plugin = 1", "plugin = 2", "form 1"),
            ("plugin = 1\n", "", "missing field `plugin`"),
            ("protocol = 1", "protocol = 2", "version 2 of the protocol"),
            ("protocol = 1\n", "", "missing field `protocol`"),
            ("\"skill\"", "\"tool\"", "`tool`"),
            ("\"greeter\"", "\"\"", "1 to 64 bytes"),
            ("\"greeter\"", "\"a\\tb\"", "control characters"),
            ("0.1.0", "1", "semantic version"),
            ("[\"python3\", \"greeter.py\"]", "[]", "command is empty"),
            ("\"python3\"", "\"/usr/bin/python3\"", "plain name"),
            ("\"python3\"", "\"./other\"", "plain name"),
            ("\"python3\"", "\"lib/../../../../tmp/x\"", "plain name"),
            ("\"python3\"", "\"lib/./x\"", "plain name"),
            ("\"python3\"", "\"lib//x\"", "plain name"),
            ("\"python3\"", "\"lib/\"", "plain name"),
            ("\"python3\"", "\"lib/x/\"", "plain name"),
            ("\"lib/\"", "\"greeter.py/\"", "named twice"),
            ("\"lib/\"", "\"greeter.py/a\"", "cannot be a directory too"),
            (
                "\"lib/\"",
                "\"lib/\", \"lib/a.py\"",
                "`lib/` has it already",
            ),
            ("\"lib/\"", "\"../up\"", "`../up` is not a plain path"),
            ("\"lib/\"", "\"/etc/passwd\"", "not a plain path"),
            ("\"lib/\"", "\"a//b\"", "not a plain path"),
            ("\"lib/\"", "\"greeter.py\"", "named twice"),
            ("\"lib/\"", "\"plugin.toml\"", "name of a description"),
            ("plugin = 1", "plugin 1", "not TOML"),
        ] {
            let text = WHOLE.replace(from, to);
            assert_ne!(text, WHOLE, "{from}");
            let said = said(&text);
            assert!(
                said.starts_with("g.plugin.toml") && said.contains(expected),
                "{said}"
            );
        }
    }

    #[test]
    fn descriptions_are_told_by_their_names() {
        for name in ["plugin.toml", "dir/a.plugin.toml"] {
            assert!(is_description(Path::new(name)), "{name}");
        }
        for name in [".a.plugin.toml", "aplugin.toml", "a.toml", "a.plugin"] {
            assert!(!is_description(Path::new(name)), "{name}");
        }
    }
}
