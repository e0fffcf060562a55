//! The licences of everything that is inside, in full: most of them ask for that.

use std::{collections::BTreeMap, fs, path::PathBuf};

use anyhow::{Context, Result};

use super::sbom::Crate;

/// How names of files with licences begin.
const NAMES: [&str; 4] = ["license", "licence", "copying", "notice"];

/// One text: each licence once, with the crates that it is of.
pub(super) fn texts(crates: &[Crate]) -> Result<String> {
    let mut whole = String::from(
        "Conjure contains these works. Each is used under its licence, which stands below.\n",
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for one in crates {
        whole.push_str(&format!("\n{} {}: {}", one.name, one.version, one.licence));
        for file in files(one)? {
            let text = fs::read_to_string(&file)
                .with_context(|| format!("cannot read `{}`", file.display()))?;
            let of = texts.entry(text.trim().to_owned()).or_default();
            of.push(format!("{} {}", one.name, one.version));
        }
    }
    for (text, of) in texts {
        let line = "-".repeat(80);
        whole.push_str(&format!("\n\n{line}\n{}\n{line}\n\n{text}", of.join(", ")));
    }
    whole.push('\n');
    Ok(whole)
}

fn files(one: &Crate) -> Result<Vec<PathBuf>> {
    let failed = || format!("cannot read `{}`", one.folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(&one.folder).with_context(failed)? {
        let path = entry.with_context(failed)?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .to_lowercase();
        if path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
