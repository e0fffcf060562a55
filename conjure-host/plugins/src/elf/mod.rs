//! The structure of a library file: whether all of it is there, and where its header is.
//!
//! A file that was cut, or is still being copied, ends the process when its missing pages are
//! touched, and so does one whose tables lead the system's loader elsewhere; so every range that
//! the format promises must lie inside the file, and of a 64-bit ELF library all that the loader
//! reads, follows or writes must lie in its memory. Reads ELF and Mach-O, whichever this platform
//! loads, and judges nothing about code and data.

pub(super) mod any_machine;
mod contents;
mod dynamic;
mod image;
mod relocations;
mod symbols;
mod versions;

use object::elf as raw;
use object::macho;
use object::read::elf::{Dyn as _, ElfFile, FileHeader, ProgramHeader as _, SectionHeader as _};
use object::read::macho::{
    LoadCommandVariant, MachHeader as _, MachOFile64, Section as _, Segment as _,
};
use object::{
    Architecture, Endianness, FileKind, Object as _, ObjectSection as _, ObjectSymbol as _,
};

pub use contents::LibraryContents;
pub(super) use contents::contents;
use dynamic::Dynamic;
use image::Image;
use symbols::Symbols;

/// What the symbol of a plugin's root begins with; its major version follows.
const ROOT: &[u8] = b"conjure_root_v";

/// The section that holds the header.
pub(super) const SECTION: &str = if cfg!(target_os = "macos") {
    "__DATA,__conjure"
} else {
    ".conjure"
};

/// Why the bytes are not a whole library of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum StructureError {
    /// Something else than a shared library.
    NotALibrary {
        /// Kind of the file, as a phrase for the sentence.
        found: String,
    },
    /// A range that is promised lies outside the file, or the structure contradicts itself.
    Incomplete {
        /// What is missing or wrong.
        what: String,
    },
    /// For another machine.
    Target {
        /// Machine, word size and byte order of the file.
        found: String,
        /// Machine, word size and byte order of the host.
        needed: String,
    },
}

/// Checks the structure of a library of this platform and gives the section that holds a plugin's
/// header, if there is one.
///
/// # Errors
/// What is wrong with the structure.
pub(super) fn header_section(bytes: &[u8]) -> Result<Option<&[u8]>, StructureError> {
    let kind = match FileKind::parse(bytes) {
        Ok(kind) => kind,
        Err(_) => return Err(unknown_format(bytes)),
    };
    match kind {
        FileKind::Elf64 if cfg!(not(target_os = "macos")) => {
            elf::<raw::FileHeader64<Endianness>>(bytes)
        }
        FileKind::Elf32 if cfg!(not(target_os = "macos")) => {
            elf::<raw::FileHeader32<Endianness>>(bytes)
        }
        FileKind::MachO64 if cfg!(target_os = "macos") => mach_o(bytes),
        other => Err(StructureError::NotALibrary {
            found: name_of(other).to_owned(),
        }),
    }
}

/// What the library says of its compiler, whole; nothing where that was stripped. The header has
/// room for 64 characters of it.
pub(super) fn compiler(bytes: &[u8]) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    let section = file.section_by_name(".comment")?;
    let mut said = section.data().ok()?.split(|byte| *byte == 0);
    said.find_map(|text| {
        let text = std::str::from_utf8(text).ok()?;
        let version = text.strip_prefix("rustc version ")?;
        Some(format!("rustc {version}"))
    })
}

fn unknown_format(bytes: &[u8]) -> StructureError {
    let found = if bytes.is_empty() {
        "empty".to_owned()
    } else if bytes.starts_with(b"\x7fELF") || bytes.starts_with(&[0xcf, 0xfa, 0xed, 0xfe]) {
        return incomplete("it ends in its first header");
    } else if bytes.starts_with(b"!<arch>\n") {
        "an archive (a static library or an rlib)".to_owned()
    } else if bytes.starts_with(b"#!") {
        "a script".to_owned()
    } else if std::str::from_utf8(bytes.get(..bytes.len().min(512)).unwrap_or_default()).is_ok() {
        "a text file".to_owned()
    } else {
        "not a library".to_owned()
    };
    StructureError::NotALibrary { found }
}

fn name_of(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Elf32 | FileKind::Elf64 => "an ELF file",
        FileKind::MachO32 | FileKind::MachO64 => "a Mach-O file",
        FileKind::MachOFat32 | FileKind::MachOFat64 => {
            "a universal Mach-O file (take one machine out of it with `lipo -thin`)"
        }
        _ => "a file of another format",
    }
}

fn incomplete(what: impl Into<String>) -> StructureError {
    StructureError::Incomplete { what: what.into() }
}

/// Whether `offset..offset + size` lies inside the file.
fn check_inside(what: &str, bytes: &[u8], offset: u64, size: u64) -> Result<(), StructureError> {
    match offset.checked_add(size) {
        Some(end) if end <= bytes.len() as u64 => Ok(()),
        Some(end) => Err(incomplete(format!(
            "{what} ends at byte {end}, and the file at byte {}",
            bytes.len()
        ))),
        None => Err(incomplete(format!("{what} has an impossible size"))),
    }
}

fn elf<Elf>(bytes: &[u8]) -> Result<Option<&[u8]>, StructureError>
where
    Elf: FileHeader<Endian = Endianness>,
{
    let broken = |e: object::read::Error| incomplete(e.to_string());
    let header = Elf::parse(bytes).map_err(broken)?;
    let endian = header.endian().map_err(broken)?;
    // The tables first: with a cut file nothing behind them can be trusted.
    let segments = header.program_headers(endian, bytes).map_err(broken)?;
    let sections = header.section_headers(endian, bytes).map_err(broken)?;
    let file = ElfFile::<Elf>::parse(bytes).map_err(broken)?;
    let found = (file.architecture(), file.is_64(), file.is_little_endian());
    check_target(found)?;
    if header.e_type(endian) != raw::ET_DYN {
        return Err(not_a_library());
    }
    for segment in segments {
        let (offset, size) = segment.file_range(endian);
        check_inside("a segment", bytes, offset, size)?;
        if segment.p_type(endian) == raw::PT_LOAD {
            let memory: u64 = segment.p_memsz(endian).into();
            let address: u64 = segment.p_vaddr(endian).into();
            if size > memory || address.checked_add(memory).is_none() {
                return Err(incomplete("a segment is larger in the file than in memory"));
            }
        }
    }
    for section in sections {
        if let Some((offset, size)) = section.file_range(endian) {
            check_inside("a section", bytes, offset, size)?;
        }
    }
    let dynamic = segments
        .iter()
        .find_map(|segment| segment.dynamic(endian, bytes).transpose())
        .ok_or_else(|| incomplete("it has no dynamic section"))?
        .map_err(broken)?;
    if dynamic.is_empty() {
        return Err(incomplete("its dynamic section is empty"));
    }
    // A program that can stand anywhere in memory has the type of a library, and this flag.
    let is_pie = |entry: &Elf::Dyn| {
        let flags: u64 = entry.d_val(endian).into();
        entry.d_tag(endian) == raw::DT_FLAGS_1 && flags & raw::DF_1_PIE.0 != 0
    };
    if dynamic.iter().any(is_pie) {
        return Err(not_a_library());
    }
    let Some(section) = file.section_by_name(SECTION) else {
        return Ok(None);
    };
    let data = section.data().map_err(broken)?;
    // Of whichever major version: the header says which, and a refusal says so.
    let is_root = |name: &[u8]| name.starts_with(ROOT);
    if !file
        .dynamic_symbols()
        .any(|symbol| symbol.is_definition() && symbol.name_bytes().is_ok_and(is_root))
    {
        return Ok(None);
    }
    Ok(Some(data))
}

/// Judges all that the system's loader reads of a library whose structure was found whole. Of a
/// library that is no 64-bit ELF library nothing more is known.
///
/// # Errors
/// What would lead the loader astray.
pub(super) fn check_loadable(bytes: &[u8]) -> Result<(), StructureError> {
    if !matches!(FileKind::parse(bytes), Ok(FileKind::Elf64)) {
        return Ok(());
    }
    let broken = |e: object::read::Error| incomplete(e.to_string());
    let header = raw::FileHeader64::<Endianness>::parse(bytes).map_err(broken)?;
    let endian = header.endian().map_err(broken)?;
    let segments = header.program_headers(endian, bytes).map_err(broken)?;
    let headers = header.section_headers(endian, bytes).map_err(broken)?;
    let image = Image::of(bytes, endian, segments, header.e_phoff(endian))?;
    let sections = dynamic::sections(headers, endian);
    let dynamic = Dynamic::of(&image)?;
    dynamic.check_sections(&sections)?;
    let symbols = Symbols::of(&image, &dynamic, &sections)?;
    versions::judge(&image, &dynamic, &symbols)?;
    relocations::judge(&image, &dynamic, &symbols)
}

fn not_a_library() -> StructureError {
    StructureError::NotALibrary {
        found: "an ELF program or object".to_owned(),
    }
}

fn mach_o(bytes: &[u8]) -> Result<Option<&[u8]>, StructureError> {
    let broken = |e: object::read::Error| incomplete(e.to_string());
    let file = MachOFile64::<Endianness>::parse(bytes).map_err(broken)?;
    let endian = file.endian();
    check_target((file.architecture(), file.is_64(), file.is_little_endian()))?;
    let kind = file.macho_header().filetype(endian);
    if kind != macho::MH_DYLIB && kind != macho::MH_BUNDLE {
        return Err(StructureError::NotALibrary {
            found: "a Mach-O program or object".to_owned(),
        });
    }
    let mut commands = file.macho_load_commands().map_err(broken)?;
    while let Some(command) = commands.next().map_err(broken)? {
        match command.variant().map_err(broken)? {
            LoadCommandVariant::Segment64(segment, sections) => {
                let (offset, size) = segment.file_range(endian);
                check_inside("a segment", bytes, offset, size)?;
                for section in segment.sections(endian, sections).map_err(broken)? {
                    if let Some((offset, size)) =
                        section.file_range(endian, section.offset.get(endian).into())
                    {
                        check_inside("a section", bytes, offset, size)?;
                    }
                }
            }
            LoadCommandVariant::Symtab(table) => {
                let entry = size_of::<macho::Nlist64<Endianness>>() as u64;
                let symbols = u64::from(table.nsyms.get(endian)) * entry;
                check_inside(
                    "the symbol table",
                    bytes,
                    table.symoff.get(endian).into(),
                    symbols,
                )?;
                let strings = table.strsize.get(endian).into();
                check_inside(
                    "the string table",
                    bytes,
                    table.stroff.get(endian).into(),
                    strings,
                )?;
            }
            LoadCommandVariant::LinkeditData(data) => {
                let (offset, size) = (data.dataoff.get(endian), data.datasize.get(endian));
                check_inside("link-edit data", bytes, offset.into(), size.into())?;
            }
            _ => {}
        }
    }
    let section = file.sections().find(|s| {
        s.name_bytes().ok() == Some(b"__conjure")
            && s.segment_name().ok().flatten() == Some("__DATA")
    });
    section.map(|s| s.data().map_err(broken)).transpose()
}

fn check_target(found: (Architecture, bool, bool)) -> Result<(), StructureError> {
    let needed = (
        match std::env::consts::ARCH {
            "x86_64" => Architecture::X86_64,
            "aarch64" => Architecture::Aarch64,
            "x86" => Architecture::I386,
            "arm" => Architecture::Arm,
            "riscv64" => Architecture::Riscv64,
            _ => found.0,
        },
        size_of::<usize>() == 8,
        cfg!(target_endian = "little"),
    );
    if found == needed {
        return Ok(());
    }
    let name = |(machine, wide, little): (Architecture, bool, bool)| {
        format!(
            "{machine:?} ({} bits, {}-endian)",
            if wide { 64 } else { 32 },
            if little { "little" } else { "big" }
        )
    };
    Err(StructureError::Target {
        found: name(found),
        needed: name(needed),
    })
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    /// A real library that this program is linked with, by what its path has.
    fn library(names: [&str; 2]) -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps
            .lines()
            .filter_map(|line| line.split_whitespace().nth(5))
            .find(|path| names.iter().any(|name| path.contains(name)))
            .unwrap();
        std::fs::read(path).unwrap()
    }

    fn libc() -> Vec<u8> {
        library(["/libc.so", "/libc-"])
    }

    #[test]
    fn a_library_without_our_section_is_whole_and_has_none() {
        assert_eq!(header_section(&libc()), Ok(None));
        assert_eq!(check_loadable(&libc()), Ok(()));
    }

    #[test]
    fn what_other_linkers_made_is_whole() {
        // What these ask for no plugin needs: they are parts of the loader itself, stand in for
        // others, or begin with a function that their linker was told.
        let is_of_the_loader = |path: &std::path::Path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("ld-") || name.contains("_audit") || name.starts_with("libnuma")
        };
        let mut seen = 0;
        for directory in [
            "/lib/x86_64-linux-gnu",
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib64",
        ] {
            let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
            let libraries = files
                .map(|file| file.path())
                .filter(|path| path.to_string_lossy().contains(".so") && !is_of_the_loader(path));
            for path in libraries.take(150) {
                let Ok(bytes) = std::fs::read(&path) else {
                    continue;
                };
                if !bytes.starts_with(b"\x7fELF") {
                    continue;
                }
                let judged = check_loadable(&bytes);
                assert_eq!(judged, Ok(()), "{}", path.display());
                seen += 1;
            }
        }
        assert!(seen > 0 || !cfg!(target_arch = "x86_64"));
    }

    #[test]
    fn every_cut_is_noticed() {
        let library = libc();
        for length in (64..library.len()).step_by(997) {
            let found = header_section(&library[..length]);
            assert!(
                matches!(found, Err(StructureError::Incomplete { .. })),
                "{length}: {found:?}"
            );
        }
        for length in 0..64 {
            assert!(header_section(&library[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn no_byte_of_the_tables_makes_the_check_panic() {
        // A small one, since all of it is read again for each byte.
        let mut library = library(["/libgcc_s.so", "/libgcc_s-"]);
        let tables = (0..2048).chain(library.len() - 4096..library.len());
        for at in tables {
            let change = [0xff, 0x80, 0x01][at % 3];
            library[at] ^= change;
            let _ = header_section(&library);
            let _ = check_loadable(&library);
            library[at] ^= change;
        }
    }

    #[test]
    fn a_program_is_no_library() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(matches!(
            header_section(&program),
            Err(StructureError::NotALibrary { .. })
        ));
    }
}
