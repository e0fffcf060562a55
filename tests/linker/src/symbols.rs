//! The functions that object files define.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use object::read::archive::ArchiveFile;
use object::{Object as _, ObjectSymbol as _, SymbolKind};

/// Every function that these files and archives define.
///
/// # Errors
/// When one of them cannot be read.
pub fn defined_functions(files: &[PathBuf]) -> Result<Vec<String>> {
    let mut symbols = Vec::new();
    for file in files {
        let bytes =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        add(file, &bytes, &mut symbols)?;
    }
    Ok(symbols)
}

fn add(file: &Path, bytes: &[u8], symbols: &mut Vec<String>) -> Result<()> {
    let failed = || format!("cannot read {} as an archive", file.display());
    if file.extension().is_some_and(|end| end == "rlib") {
        let archive = ArchiveFile::parse(bytes).with_context(failed)?;
        for member in archive.members() {
            let member = member.with_context(failed)?;
            add_object(member.data(bytes).with_context(failed)?, symbols);
        }
    } else {
        add_object(bytes, symbols);
    }
    Ok(())
}

/// Libraries of Rust also hold what is no object file.
fn add_object(bytes: &[u8], symbols: &mut Vec<String>) {
    if let Ok(defined) = functions(bytes) {
        symbols.extend(defined);
    }
}

/// Every function that an object file, a program or a library defines.
///
/// # Errors
/// When it is none of them.
pub fn functions(bytes: &[u8]) -> Result<Vec<String>> {
    let object = object::File::parse(bytes)?;
    let functions = object
        .symbols()
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition());
    let names = functions.filter_map(|symbol| symbol.name().ok().map(str::to_owned));
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_defines_the_function_that_tells() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let names: Vec<String> = functions(&own).unwrap();
        let names: Vec<String> = names.iter().map(|name| crate::name(name)).collect();
        assert!(
            names
                .iter()
                .any(|name| name == "conjure_linker::symbols::functions")
        );
        assert!(functions(b"no object file").is_err());
    }
}
