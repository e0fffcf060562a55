//! A library for whichever machine: which one, and the section of its header. Nothing here says that
//! a host could load it.

use object::{Architecture, Object, ObjectKind, ObjectSection as _};

/// The machine that a library is for, as Rust names it, and the section that holds its header.
pub(crate) fn library(bytes: &[u8]) -> Option<(String, &[u8])> {
    let file = object::File::parse(bytes).ok()?;
    if file.kind() != ObjectKind::Dynamic {
        return None;
    }
    let target = target(&file)?;
    let section = file.sections().find(|section| {
        let is_elf = section.name_bytes().ok() == Some(b".conjure");
        let is_mach_o = section.name_bytes().ok() == Some(b"__conjure");
        is_elf || is_mach_o
    })?;
    Some((target, section.data().ok()?))
}

/// The machine that an executable or a library is for, where these bytes are one.
pub(crate) fn target_of(bytes: &[u8]) -> Option<String> {
    let file = object::File::parse(bytes).ok()?;
    let runs = matches!(file.kind(), ObjectKind::Dynamic | ObjectKind::Executable);
    runs.then(|| target(&file)).flatten()
}

fn target(file: &object::File<'_>) -> Option<String> {
    let machine = match file.architecture() {
        Architecture::X86_64 => "x86_64",
        Architecture::Aarch64 => "aarch64",
        Architecture::I386 => "i686",
        Architecture::Arm => "armv7",
        Architecture::Riscv64 => "riscv64gc",
        _ => return None,
    };
    let system = match file.format() {
        object::BinaryFormat::MachO => "apple-darwin",
        object::BinaryFormat::Elf => match needs_musl(file) {
            true => "unknown-linux-musl",
            false => "unknown-linux-gnu",
        },
        _ => return None,
    };
    Some(format!("{machine}-{system}"))
}

/// Whether the library is linked against musl's C library, which has a name of its own.
fn needs_musl(file: &object::File<'_>) -> bool {
    let names = file.section_by_name(".dynstr");
    let names = names.and_then(|section| section.data().ok());
    names.is_some_and(|names| {
        names
            .split(|byte| *byte == 0)
            .any(|name| name.starts_with(b"libc.musl-"))
    })
}
