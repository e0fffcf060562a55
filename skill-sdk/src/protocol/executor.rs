//! The operations of an executor. The host, not the plugin, makes tools out of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::FileRef;

/// Prepares a session: `executor.init`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutorInit {
    /// Skill folders that commands must be able to read.
    #[serde(default)]
    pub skills: Vec<SkillMount>,
    /// Environment variables that every command gets; nothing else of the host's is passed on.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// What alone the session lets commands change. Absent: whatever the executor's user may. Only an
    /// executor that announces `executor.sandbox/1` is told, and keeps its commands to that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
}

/// What a session lets its commands, and the programs of its backends, do on this machine: they read, and
/// change what is below the working directory and the exchange directory.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Sandbox {
    /// Files and directories that they read although such are kept from them, such as `~/.ssh`; absolute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read: Vec<String>,
    /// More files and directories that they change; absolute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write: Vec<String>,
    /// Whether they reach the network.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub network: bool,
}

/// A skill folder, on the host or as commands see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkillMount {
    /// The skill's name.
    pub name: String,
    /// Its directory, absolute.
    pub dir: String,
}

/// How things look from inside.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutorReady {
    /// The working directory as commands see it, such as `/workspace`.
    pub working_dir: String,
    /// The skill folders as commands see them.
    #[serde(default)]
    pub skills: Vec<SkillMount>,
}

/// Runs a command in a POSIX shell: `executor.bash`.
///
/// Output streams through `emit` while the command runs; the reply holds what is kept of it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bash {
    /// The command.
    pub command: String,
    /// More environment variables, for this command.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// How many bytes of each of stdout and stderr to keep in the reply. What is more goes to a
    /// file in the exchange directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep_bytes: Option<u64>,
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BashOutput {
    /// The exit code; absent when a signal ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Standard output, as far as it is kept: its end when it was too much.
    #[serde(default)]
    pub stdout: String,
    /// Standard error, as far as it is kept: its end when it was too much.
    #[serde(default)]
    pub stderr: String,
    /// Bytes that the command wrote to standard output in all.
    #[serde(default)]
    pub stdout_bytes: u64,
    /// Bytes that the command wrote to standard error in all.
    #[serde(default)]
    pub stderr_bytes: u64,
    /// All of the output, when the reply holds only its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_output: Option<FileRef>,
    /// Whether the time limit ended it. The process tree is gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub timed_out: bool,
    /// Files in the working directory that the command made or changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FileRef>,
}

/// Shows a file or a directory: `executor.view`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct View {
    /// The path; relative ones start at the working directory.
    pub path: String,
    /// First and last line, counted from 1; -1 as the last is the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub view_range: Option<(i64, i64)>,
}

/// What a file or a directory holds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Viewed {
    /// The lines asked for, or a listing of two levels. Bytes that are not UTF-8 are replaced.
    pub content: String,
    /// Whether it is a directory.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub directory: bool,
    /// Lines of the whole file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_lines: Option<u64>,
    /// The whole content, when the reply holds only its beginning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub full_content: Option<FileRef>,
}

/// Writes a file: `executor.create_file`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CreateFile {
    /// The path; missing directories are made.
    pub path: String,
    /// Its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_text: Option<String>,
    /// Its content as a file, when it is too much for `file_text`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<FileRef>,
}

/// A file that was written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Written {
    /// The file.
    pub file: FileRef,
    /// Whether there was a file before.
    #[serde(default)]
    pub replaced: bool,
}

/// Replaces the only occurrence of a passage: `executor.str_replace`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StrReplace {
    /// The path.
    pub path: String,
    /// The passage; it must be in the file exactly once.
    pub old_str: String,
    /// What to put in its place; nothing when absent.
    #[serde(default)]
    pub new_str: String,
}
