//! The versions of a library's symbols: which it needs of which other library, and which it has.
//!
//! The loader takes a symbol's version as an index without looking, and ends the process where a
//! version is of a library that the other entries do not name.

use std::collections::HashSet;

use object::elf as raw;

use super::dynamic::Dynamic;
use super::image::{Image, StructureResult, u16_at, u32_at};
use super::incomplete;
use super::symbols::Symbols;

/// The bytes of a library that versions are needed of, of such a version, of a version that the
/// library has, and of such a version's name.
const NEED: u64 = 16;
const NEEDED: u64 = 16;
const DEFINITION: u64 = 20;
const NAME: u64 = 8;
/// The most of each that are read.
const MAX_ENTRIES: usize = 4096;

/// Judges the versions of all symbols.
pub(super) fn judge(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    symbols: &Symbols<'_>,
) -> StructureResult {
    // Local and global symbols have no version.
    let mut known = HashSet::from([0, 1]);
    check_needed(image, dynamic, &mut known)?;
    check_defined(image, dynamic, &mut known)?;
    let Some(address) = dynamic.get(raw::DT_VERSYM) else {
        return Ok(());
    };
    let versions = image.bytes("the table of versions", address, symbols.count * 2)?;
    let unknown = versions.chunks_exact(2).any(|version| {
        let version = u16_at(version, 0, image.endian) & 0x7fff;
        !known.contains(&version)
    });
    match unknown {
        true => Err(incomplete("a symbol has a version that is not there")),
        false => Ok(()),
    }
}

fn check_needed(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    known: &mut HashSet<u16>,
) -> StructureResult {
    let Some(first) = dynamic.get(raw::DT_VERNEED) else {
        return Ok(());
    };
    let endian = image.endian;
    walk_list(image, first, NEED, 12, 8, |need, at| {
        if u16_at(need, 0, endian) != 1 {
            return Err(damaged_error());
        }
        let library = dynamic.string(u32_at(need, 4, endian).into())?;
        if !dynamic.needed.contains(library) {
            return Err(incomplete(
                "it needs a version of a library that it does not need",
            ));
        }
        let versions = at.saturating_add(u32_at(need, 8, endian).into());
        walk_list(image, versions, NEEDED, 12, 0, |version, _| {
            let name = dynamic.string(u32_at(version, 8, endian).into())?;
            if u32_at(version, 0, endian) != elf_hash(name) {
                return Err(damaged_error());
            }
            known.insert(u16_at(version, 6, endian) & 0x7fff);
            Ok(())
        })
    })
}

fn check_defined(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    known: &mut HashSet<u16>,
) -> StructureResult {
    let Some(first) = dynamic.get(raw::DT_VERDEF) else {
        return Ok(());
    };
    let endian = image.endian;
    walk_list(image, first, DEFINITION, 16, 12, |version, at| {
        if u16_at(version, 0, endian) != 1 {
            return Err(damaged_error());
        }
        known.insert(u16_at(version, 4, endian) & 0x7fff);
        let names = at.saturating_add(u32_at(version, 12, endian).into());
        walk_list(image, names, NAME, 4, 0, |name, _| {
            dynamic.string(u32_at(name, 0, endian).into()).map(drop)
        })
    })
}

/// Goes through a list whose items say at `next` how far the next one is. `inner` is where one says
/// how far its own list is, which must be there.
fn walk_list<'a>(
    image: &Image<'a>,
    first: u64,
    size: u64,
    next: usize,
    inner: usize,
    mut each: impl FnMut(&'a [u8], u64) -> StructureResult,
) -> StructureResult {
    let mut at = first;
    for _ in 0..MAX_ENTRIES {
        if !at.is_multiple_of(4) {
            return Err(damaged_error());
        }
        let item = image.bytes("the table of versions", at, size)?;
        if inner != 0 && u32_at(item, inner, image.endian) == 0 {
            return Err(damaged_error());
        }
        each(item, at)?;
        match u32_at(item, next, image.endian) {
            0 => return Ok(()),
            step => at = at.saturating_add(step.into()),
        }
    }
    Err(damaged_error())
}

fn damaged_error() -> super::StructureError {
    incomplete("its table of versions is damaged")
}

fn elf_hash(name: &[u8]) -> u32 {
    name.iter().fold(0, |hash: u32, byte| {
        let hash = (hash << 4).wrapping_add(u32::from(*byte));
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) & !high
    })
}
