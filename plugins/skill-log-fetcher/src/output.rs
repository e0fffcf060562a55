//! Writes entries as JSON lines into the working directory, under a name that is free.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::Path;

use conjure_skill_sdk::protocol::FileRef;
use conjure_skill_sdk::{Error, Result};

use crate::entry::LogEntry;

/// How many names are tried.
const MAX_NAMES: u32 = 10_000;

/// Writes the entries, one object a line, and gives the file.
pub(crate) fn write<'a>(
    dir: &Path,
    entries: impl Iterator<Item = &'a LogEntry>,
) -> Result<FileRef> {
    let (file, name) = create(dir)?;
    let path = dir.join(&name);
    let write = |file: File| -> std::io::Result<u64> {
        let mut out = BufWriter::new(file);
        for entry in entries {
            serde_json::to_writer(&mut out, entry)?;
            out.write_all(b"\n")?;
        }
        let file = out
            .into_inner()
            .map_err(std::io::IntoInnerError::into_error)?;
        Ok(file.metadata()?.len())
    };
    let size = write(file).map_err(|error| {
        let _ = std::fs::remove_file(&path);
        Error::new(format!("{} cannot be written: {error}", path.display()))
    })?;
    Ok(FileRef {
        media_type: Some("application/jsonl".to_owned()),
        size: Some(size),
        ..FileRef::at(path.to_string_lossy())
    })
}

/// `logs.jsonl`, or `logs-2.jsonl` when that is there already, and so on.
fn create(dir: &Path) -> Result<(File, String)> {
    for number in 1..=MAX_NAMES {
        let name = match number {
            1 => "logs.jsonl".to_owned(),
            number => format!("logs-{number}.jsonl"),
        };
        // `create_new` follows no link and takes nobody's file.
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).open(dir.join(&name)) {
            Ok(file) => return Ok((file, name)),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(Error::new(format!(
                    "{} cannot be written: {error}",
                    dir.join(&name).display()
                )));
            }
        }
    }
    Err(Error::new(format!(
        "{} holds too many files logs-N.jsonl; remove some",
        dir.display()
    )))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::entry::LogSeverity;

    #[test]
    fn fields_are_in_order_and_absent_ones_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let text = |text: &str| Some(text.to_owned());
        let entries = [
            LogEntry {
                message: text("m \"1\""),
                service: text("s"),
                host: text("h"),
                level: Some(LogSeverity::Warn),
                timestamp: text("t"),
                client: None,
            },
            LogEntry {
                message: text("m"),
                ..LogEntry::default()
            },
        ];
        let file = write(dir.path(), entries.iter()).unwrap();
        let written = fs::read_to_string(dir.path().join("logs.jsonl")).unwrap();
        assert_eq!(
            written,
            "{\"timestamp\":\"t\",\"level\":\"WARN\",\"host\":\"h\",\"service\":\"s\",\"message\":\"m \\\"1\\\"\"}\n\
             {\"message\":\"m\"}\n"
        );
        assert_eq!(file.size, Some(written.len() as u64));
    }

    #[test]
    fn no_file_is_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("logs.jsonl"), "mine").unwrap();
        std::os::unix::fs::symlink("/nowhere", dir.path().join("logs-2.jsonl")).unwrap();
        let file = write(dir.path(), std::iter::empty()).unwrap();
        assert_eq!(file.name, "logs-3.jsonl");
        assert_eq!(
            fs::read_to_string(dir.path().join("logs.jsonl")).unwrap(),
            "mine"
        );
    }
}
