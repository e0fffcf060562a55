//! What a library's file holds beside what a host needs of it: names that others could take for their
//! own, tables for debuggers.

use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

use super::ROOT;

/// What every plugin exports beside its root.
const HEADER: &[u8] = b"conjure_header_v";

/// What a library's file holds beside what a host needs of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LibraryContents {
    /// Exported names that no host looks for, by name.
    pub other_symbols: Vec<String>,
    /// Bytes of tables for debuggers.
    pub debug_bytes: u64,
    /// Bytes of the names and addresses of functions, which panics show.
    pub symbol_bytes: u64,
}

/// Looks at a library whose structure was found whole.
pub(crate) fn contents(bytes: &[u8]) -> LibraryContents {
    let Ok(file) = object::File::parse(bytes) else {
        return LibraryContents::default();
    };
    let exported = file.dynamic_symbols().filter(|symbol| {
        let name = symbol.name_bytes().unwrap_or_default();
        // Mach-O puts a sign in front of each name.
        let name = name.strip_prefix(b"_").unwrap_or(name);
        symbol.is_definition() && !name.starts_with(ROOT) && !name.starts_with(HEADER)
    });
    let mut other_symbols: Vec<String> = exported
        .filter_map(|symbol| symbol.name().ok().map(str::to_owned))
        .filter(|name| !name.is_empty())
        .collect();
    other_symbols.sort();
    other_symbols.dedup();
    let size_of = |is_meant: fn(&str) -> bool| -> u64 {
        let sections = file.sections();
        let meant = sections.filter(|section| section.name().is_ok_and(is_meant));
        meant.map(|section| section.size()).sum()
    };
    LibraryContents {
        other_symbols,
        debug_bytes: size_of(|name| name.starts_with(".debug_") || name.starts_with("__debug_")),
        symbol_bytes: size_of(|name| name == ".symtab" || name == ".strtab"),
    }
}
