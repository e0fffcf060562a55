//! Relocations: where the system's loader writes addresses into a library before it runs.
//!
//! The loader writes wherever a relocation says and calls the resolvers that they name, so each
//! must be of a kind that this machine has, write into the library's own memory that can be
//! written, and lead into its own memory.

use object::elf as raw;

use super::dynamic::{Dynamic, POINTER, RELA, TableRange};
use super::image::{Image, Right, StructureResult, u64_at};
use super::incomplete;
use super::symbols::Symbols;

/// What a relocation is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RelocationKind {
    /// The library's own address and a number.
    Relative,
    /// Like [`Self::Relative`], but the code there is called for the address.
    Resolver,
    /// A symbol's address and a number.
    Symbol,
    /// A symbol's address in the table that code takes it from.
    Entry,
    /// A place in thread-local memory.
    ThreadLocal,
    /// Two words that say how a place in thread-local memory is found.
    ThreadLocalPair,
}

/// The kinds that the machines at hand have in a library, by the numbers of their ABIs.
fn kind(number: u32) -> Option<RelocationKind> {
    let x86_64 = cfg!(target_arch = "x86_64");
    let aarch64 = cfg!(target_arch = "aarch64");
    Some(match number {
        8 if x86_64 => RelocationKind::Relative,
        37 if x86_64 => RelocationKind::Resolver,
        1 if x86_64 => RelocationKind::Symbol,
        6 | 7 if x86_64 => RelocationKind::Entry,
        16..=18 if x86_64 => RelocationKind::ThreadLocal,
        36 if x86_64 => RelocationKind::ThreadLocalPair,
        1027 if aarch64 => RelocationKind::Relative,
        1032 if aarch64 => RelocationKind::Resolver,
        257 if aarch64 => RelocationKind::Symbol,
        1025 | 1026 if aarch64 => RelocationKind::Entry,
        1028..=1030 if aarch64 => RelocationKind::ThreadLocal,
        1031 if aarch64 => RelocationKind::ThreadLocalPair,
        // Of other machines the numbers are not known here; where it writes is looked at.
        _ if !x86_64 && !aarch64 => RelocationKind::Symbol,
        _ => return None,
    })
}

/// Judges all relocations.
pub(super) fn judge(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    symbols: &Symbols<'_>,
) -> StructureResult {
    let mut written = Vec::new();
    let mut pointers = Vec::new();
    if let Some(calls) = dynamic.table(raw::DT_JMPREL, raw::DT_PLTRELSZ) {
        check_table(image, symbols, calls, &mut written, &mut pointers)?;
        check_adjacent(calls, &mut written)?;
    }
    if let Some(table) = dynamic.table(raw::DT_RELA, raw::DT_RELASZ) {
        check_table(image, symbols, table, &mut written, &mut pointers)?;
    }
    if let Some(count) = dynamic.get(raw::DT_RELACOUNT) {
        check_relative_first(image, dynamic, count)?;
    }
    check_packed(image, dynamic, &mut written, &mut pointers)?;
    check_disjoint(image, &mut written)?;
    check_arrays(image, dynamic, &mut pointers)
}

/// Judges each relocation of a table. Notes what it writes, and the pointers that it makes.
fn check_table(
    image: &Image<'_>,
    symbols: &Symbols<'_>,
    table: TableRange,
    written: &mut Vec<TableRange>,
    pointers: &mut Vec<(u64, Option<u64>)>,
) -> StructureResult {
    let (address, size) = table;
    if size % RELA != 0 {
        return Err(incomplete("its relocations have an impossible size"));
    }
    let bytes = image.bytes("a table of relocations", address, size)?;
    for relocation in bytes.chunks_exact(RELA as usize) {
        let place = u64_at(relocation, 0, image.endian);
        let info = u64_at(relocation, 8, image.endian);
        let addend = u64_at(relocation, 16, image.endian);
        let (symbol, number) = (info >> 32, info as u32);
        // Linkers leave room for relocations that they then do not need.
        if number == 0 {
            continue;
        }
        let kind = kind(number)
            .ok_or_else(|| incomplete(format!("a relocation is of the unknown kind {number}")))?;
        if symbol >= symbols.count {
            return Err(incomplete(
                "a relocation is about a symbol that is not there",
            ));
        }
        let fits = match kind {
            RelocationKind::Relative => {
                symbol == 0 && addend <= image.end() && is_placeholder(image, place, addend)
            }
            RelocationKind::Resolver => symbol == 0 && image.contains(addend, 1, Right::Execute),
            RelocationKind::Symbol => true,
            RelocationKind::Entry => symbol != 0 && addend == 0,
            RelocationKind::ThreadLocal | RelocationKind::ThreadLocalPair => {
                let own = symbol == 0 || symbols.is_defined(symbol, image);
                !own || image.thread_local.is_some_and(|memory| addend <= memory)
            }
        };
        if !fits {
            return Err(incomplete("a relocation leads outside its segments"));
        }
        let width = match kind {
            RelocationKind::ThreadLocalPair => 2 * POINTER,
            _ => POINTER,
        };
        written.push((place, width));
        match kind {
            RelocationKind::Relative => pointers.push((place, Some(addend))),
            RelocationKind::Symbol => pointers.push((place, None)),
            _ => {}
        }
    }
    Ok(())
}

/// Whether what a relocation overwrites is room for it: linkers leave it empty, or write there what
/// the relocation says, and they align it. Where other data stands, the relocation was altered.
fn is_placeholder(image: &Image<'_>, place: u64, addend: u64) -> bool {
    let before = image.bytes("what a relocation writes", place, POINTER);
    let before = before.map_or(0, |bytes| u64_at(bytes, 0, image.endian));
    place.is_multiple_of(POINTER) && (before == 0 || before == addend)
}

/// Code calls other libraries through one table, each of whose entries has its relocation.
fn check_adjacent(calls: TableRange, written: &mut [TableRange]) -> StructureResult {
    let (_, size) = calls;
    written.sort_unstable();
    let mut pairs = written.iter().zip(written.iter().skip(1));
    let is_whole =
        pairs.all(|((place, width), (next, _))| place.checked_add(*width) == Some(*next));
    match is_whole && written.len() as u64 == size / RELA {
        true => Ok(()),
        false => Err(incomplete(
            "an entry of its table of calls has no relocation",
        )),
    }
}

/// The first so many relocations are taken for relative ones without being looked at.
fn check_relative_first(image: &Image<'_>, dynamic: &Dynamic<'_>, count: u64) -> StructureResult {
    let wrong = || incomplete("it has fewer relative relocations than it says");
    let (address, size) = dynamic
        .table(raw::DT_RELA, raw::DT_RELASZ)
        .ok_or_else(wrong)?;
    let length = count.checked_mul(RELA).filter(|length| *length <= size);
    let bytes = image.bytes("a table of relocations", address, length.ok_or_else(wrong)?)?;
    let is_relative = |relocation: &[u8]| {
        let info = u64_at(relocation, 8, image.endian);
        kind(info as u32) == Some(RelocationKind::Relative)
    };
    match bytes.chunks_exact(RELA as usize).all(is_relative) {
        true => Ok(()),
        false => Err(wrong()),
    }
}

/// Relative relocations in their short form: an even number is an address, an odd one says with its
/// other bits which of the 63 words behind are relocated too. The addend is what stands there.
fn check_packed(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    written: &mut Vec<TableRange>,
    pointers: &mut Vec<(u64, Option<u64>)>,
) -> StructureResult {
    let Some((address, size)) = dynamic.table(raw::DT_RELR, raw::DT_RELRSZ) else {
        return Ok(());
    };
    let bytes = image.bytes("a table of relocations", address, size)?;
    let mut places = Vec::new();
    let mut next: Option<u64> = None;
    for word in bytes.chunks(POINTER as usize) {
        let word = u64_at(word, 0, image.endian);
        if word & 1 == 0 {
            places.push(word);
            next = word.checked_add(POINTER);
            continue;
        }
        let base = next.ok_or_else(|| incomplete("its relocations begin nowhere"))?;
        for bit in 0..63 {
            if word >> (bit + 1) & 1 == 1 {
                places.push(base.saturating_add(bit * POINTER));
            }
        }
        next = base.checked_add(63 * POINTER);
    }
    for place in places {
        let addend = image.bytes("what a relocation writes", place, POINTER)?;
        let addend = u64_at(addend, 0, image.endian);
        if addend > image.end() {
            return Err(incomplete("a relocation leads outside its segments"));
        }
        written.push((place, POINTER));
        pointers.push((place, Some(addend)));
    }
    Ok(())
}

/// Relocations write into memory that can be written, each elsewhere, and none into the entries
/// that the loader reads.
fn check_disjoint(image: &Image<'_>, written: &mut Vec<TableRange>) -> StructureResult {
    written.push(image.dynamic);
    written.sort_unstable();
    let mut end = 0;
    for (place, width) in written.iter() {
        if !image.contains(*place, *width, Right::Write) {
            return Err(incomplete(
                "a relocation writes outside the memory that can be written",
            ));
        }
        if *place < end {
            return Err(incomplete("two relocations write to one place"));
        }
        end = place + width;
    }
    written.clear();
    Ok(())
}

/// What is run at the beginning and the end is code of the library.
fn check_arrays(
    image: &Image<'_>,
    dynamic: &Dynamic<'_>,
    pointers: &mut [(u64, Option<u64>)],
) -> StructureResult {
    pointers.sort_unstable();
    let wrong = || incomplete("what it runs at its beginning or end is no code");
    for (address, size) in [
        (raw::DT_INIT_ARRAY, raw::DT_INIT_ARRAYSZ),
        (raw::DT_FINI_ARRAY, raw::DT_FINI_ARRAYSZ),
    ] {
        let Some((begin, size)) = dynamic.table(address, size) else {
            continue;
        };
        if size % POINTER != 0 || begin % POINTER != 0 || !image.contains(begin, size, Right::Any) {
            return Err(wrong());
        }
        for place in (begin..begin + size).step_by(POINTER as usize) {
            let at = pointers.binary_search_by_key(&place, |(place, _)| *place);
            let target = at.ok().and_then(|at| pointers.get(at)).ok_or_else(wrong)?;
            let is_code = target
                .1
                .is_none_or(|code| image.contains(code, 1, Right::Execute));
            if !is_code {
                return Err(wrong());
            }
        }
    }
    Ok(())
}
