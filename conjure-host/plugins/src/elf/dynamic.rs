//! The dynamic section: where the system's loader finds each of its tables.
//!
//! The loader believes every entry, so each must lie in memory and have the size that its kind
//! has. The section headers tell most of it a second time, and where the two differ one of them
//! was altered.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;

use object::Endianness;
use object::elf::{self as raw, DynamicTag};

use super::image::{Image, Right, StructureResult, u64_at};
use super::incomplete;

/// Bytes of an entry of the dynamic section, of a symbol, of a relocation and of a pointer.
const ENTRY: u64 = 16;
pub(super) const SYMBOL: u64 = 24;
pub(super) const RELA: u64 = 24;
pub(super) const POINTER: u64 = 8;

/// A table with its address and its size in bytes.
pub(super) type TableRange = (u64, u64);

/// The entries of a dynamic section.
#[derive(Debug)]
pub(super) struct Dynamic<'a> {
    entries: HashMap<DynamicTag, u64>,
    /// The names of libraries that it needs.
    pub(super) needed: HashSet<&'a [u8]>,
    strings: &'a [u8],
}

/// A section as its header tells it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Section {
    pub(super) kind: u32,
    pub(super) address: u64,
    pub(super) size: u64,
    /// Whether it is in memory.
    loaded: bool,
    executable: bool,
}

/// The numbers of entries that the ABI gives out: its own, to systems and to machines.
const TAGS: [RangeInclusive<i64>; 3] =
    [0..=63, 0x6000_000d..=0x6fff_ffff, 0x7000_0000..=0x7fff_ffff];

/// Entries that make the loader do what no plugin needs, with what that is.
const REFUSED: [(DynamicTag, &str); 6] = [
    (raw::DT_TEXTREL, "relocations of code"),
    (
        raw::DT_REL,
        "relocations of a form that this machine does not have",
    ),
    (raw::DT_AUXILIARY, "another library in its place"),
    (raw::DT_FILTER, "another library in its place"),
    (raw::DT_AUDIT, "a library that audits it"),
    (raw::DT_DEPAUDIT, "a library that audits others"),
];

impl<'a> Dynamic<'a> {
    /// Reads the section and judges its entries.
    pub(super) fn of(image: &Image<'a>) -> StructureResult<Self> {
        let (address, size) = image.dynamic;
        let bytes = image.bytes("the dynamic section", address, size)?;
        if address % POINTER != 0 {
            return Err(incomplete("its dynamic section is not aligned"));
        }
        let mut entries = HashMap::new();
        let mut needed = Vec::new();
        let mut is_closed = false;
        for entry in bytes.chunks_exact(ENTRY as usize) {
            let tag = DynamicTag(u64_at(entry, 0, image.endian).cast_signed());
            let value = u64_at(entry, 8, image.endian);
            match tag {
                raw::DT_NULL => {
                    is_closed = true;
                    break;
                }
                raw::DT_NEEDED => needed.push(value),
                DynamicTag(number) if !TAGS.iter().any(|tags| tags.contains(&number)) => {
                    return Err(incomplete(
                        "its dynamic section says what nothing has a name for",
                    ));
                }
                _ => {
                    if entries.insert(tag, value).is_some() {
                        return Err(incomplete("its dynamic section says one thing twice"));
                    }
                }
            }
        }
        if !is_closed {
            return Err(incomplete("its dynamic section has no end"));
        }
        let mut dynamic = Self {
            entries,
            needed: HashSet::new(),
            strings: &[],
        };
        let (strings, size) = dynamic
            .table(raw::DT_STRTAB, raw::DT_STRSZ)
            .ok_or_else(|| incomplete("it has no table of strings"))?;
        dynamic.strings = image.bytes("the table of strings", strings, size)?;
        if dynamic.strings.last() != Some(&0) {
            return Err(incomplete("its table of strings has no end"));
        }
        for name in needed {
            let name = dynamic.string(name)?;
            dynamic.needed.insert(name);
        }
        dynamic.judge(image)?;
        Ok(dynamic)
    }

    /// The value of an entry.
    pub(super) fn get(&self, tag: DynamicTag) -> Option<u64> {
        self.entries.get(&tag).copied()
    }

    /// A table by the entries for its address and its size.
    pub(super) fn table(&self, address: DynamicTag, size: DynamicTag) -> Option<TableRange> {
        Some((self.get(address)?, self.get(size).unwrap_or(0)))
    }

    /// A string by its place in the table of strings.
    pub(super) fn string(&self, at: u64) -> StructureResult<&'a [u8]> {
        let rest = usize::try_from(at)
            .ok()
            .and_then(|at| self.strings.get(at..));
        let rest = rest.filter(|rest| !rest.is_empty());
        let rest = rest.ok_or_else(|| incomplete("a name lies outside its table of strings"))?;
        let end = rest
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(rest.len());
        Ok(rest.get(..end).unwrap_or_default())
    }

    fn judge(&self, image: &Image<'_>) -> StructureResult {
        for (tag, what) in REFUSED {
            if self.entries.contains_key(&tag) {
                return Err(incomplete(format!(
                    "it asks for {what}, which no plugin needs"
                )));
            }
        }
        for (table, tag, size, what) in [
            (raw::DT_SYMTAB, raw::DT_SYMENT, SYMBOL, "a symbol"),
            (raw::DT_RELA, raw::DT_RELAENT, RELA, "a relocation"),
            (
                raw::DT_RELR,
                raw::DT_RELRENT,
                POINTER,
                "a relative relocation",
            ),
        ] {
            if self.get(table).is_some() && self.get(tag) != Some(size) {
                return Err(incomplete(format!("{what} has another size than it says")));
            }
        }
        if self.get(raw::DT_JMPREL).is_some()
            && self.get(raw::DT_PLTREL) != Some(raw::DT_RELA.0.cast_unsigned())
        {
            return Err(incomplete(
                "the relocations of calls have another form than it says",
            ));
        }
        for name in [raw::DT_SONAME, raw::DT_RPATH, raw::DT_RUNPATH] {
            if let Some(at) = self.get(name) {
                self.string(at)?;
            }
        }
        if let Some(flags) = self.get(raw::DT_FLAGS)
            && flags & raw::DF_TEXTREL.0 != 0
        {
            return Err(incomplete(
                "it asks for relocations of code, which no plugin needs",
            ));
        }
        if let Some(table) = self.get(raw::DT_PLTGOT)
            && !image.contains(table, 3 * POINTER, Right::Write)
        {
            return Err(incomplete(
                "its table of calls lies in no memory that can be written",
            ));
        }
        Ok(())
    }

    /// Compares the entries with what the section headers tell of the same tables.
    pub(super) fn check_sections(&self, sections: &[Section]) -> StructureResult {
        let one = |kind: u32| sections.iter().find(|s| s.kind == kind && s.loaded);
        let differs = |what: &str| {
            Err(incomplete(format!(
                "its dynamic section and its section headers tell different things of {what}"
            )))
        };
        for (kind, address, size, what) in [
            (raw::SHT_DYNSYM.0, raw::DT_SYMTAB, None, "its symbols"),
            (
                raw::SHT_GNU_HASH.0,
                raw::DT_GNU_HASH,
                None,
                "its hash table",
            ),
            (raw::SHT_HASH.0, raw::DT_HASH, None, "its hash table"),
            (raw::SHT_GNU_VERSYM.0, raw::DT_VERSYM, None, "its versions"),
            (
                raw::SHT_GNU_VERNEED.0,
                raw::DT_VERNEED,
                None,
                "the versions that it needs",
            ),
            (
                raw::SHT_GNU_VERDEF.0,
                raw::DT_VERDEF,
                None,
                "the versions that it has",
            ),
            (
                raw::SHT_INIT_ARRAY.0,
                raw::DT_INIT_ARRAY,
                Some(raw::DT_INIT_ARRAYSZ),
                "what it runs at its beginning",
            ),
            (
                raw::SHT_FINI_ARRAY.0,
                raw::DT_FINI_ARRAY,
                Some(raw::DT_FINI_ARRAYSZ),
                "what it runs at its end",
            ),
        ] {
            let section = one(kind).filter(|section| section.size > 0);
            let said = section.map(|section| (section.address, size.map(|_| section.size)));
            let entry = self
                .get(address)
                .map(|at| (at, size.and_then(|size| self.get(size))));
            let is_empty = entry.is_some_and(|(_, size)| size == Some(0));
            if said != entry && !(said.is_none() && is_empty) {
                return differs(what);
            }
        }
        // Code that runs at the beginning and the end stands in sections of its own.
        for function in [raw::DT_INIT, raw::DT_FINI] {
            let begins = |at| sections.iter().any(|s| s.executable && s.address == at);
            if self.get(function).is_some_and(|at| at != 0 && !begins(at)) {
                return Err(incomplete(
                    "what it runs at its beginning or end is a function in the middle of its \
                     code (`-init` or `-fini` of a linker), which no plugin needs",
                ));
            }
        }
        self.check_relocations(sections)
    }

    /// Each relocation that a section header tells of is in a table of the loader, and the other
    /// way round.
    fn check_relocations(&self, sections: &[Section]) -> StructureResult {
        let tables = [
            self.table(raw::DT_RELA, raw::DT_RELASZ),
            self.table(raw::DT_JMPREL, raw::DT_PLTRELSZ),
            self.table(raw::DT_RELR, raw::DT_RELRSZ),
        ];
        let tables = spans(tables.into_iter().flatten());
        let kinds = [raw::SHT_RELA.0, raw::SHT_RELR.0];
        let told = sections
            .iter()
            .filter(|s| kinds.contains(&s.kind) && s.loaded);
        let told = spans(told.map(|section| (section.address, section.size)));
        match tables == told {
            true => Ok(()),
            false => Err(incomplete(
                "its dynamic section and its section headers tell different things of its \
                 relocations",
            )),
        }
    }
}

/// The memory that tables cover, adjacent ones joined.
fn spans(tables: impl Iterator<Item = TableRange>) -> Vec<TableRange> {
    let mut tables: Vec<TableRange> = tables.filter(|(_, size)| *size > 0).collect();
    tables.sort_unstable();
    let mut joined: Vec<TableRange> = Vec::new();
    for (address, size) in tables {
        match joined.last_mut() {
            Some((begin, length)) if begin.saturating_add(*length) == address => *length += size,
            _ => joined.push((address, size)),
        }
    }
    joined
}

/// What the section headers tell, in their order.
pub(super) fn sections<S>(headers: &[S], endian: Endianness) -> Vec<Section>
where
    S: object::read::elf::SectionHeader<Endian = Endianness, Word = u64>,
{
    let section = |header: &S| {
        let flags = header.sh_flags(endian).0;
        Section {
            kind: header.sh_type(endian).0,
            address: header.sh_addr(endian),
            size: header.sh_size(endian),
            loaded: flags & raw::SHF_ALLOC.0 != 0,
            executable: flags & raw::SHF_EXECINSTR.0 != 0,
        }
    };
    headers.iter().map(section).collect()
}
