//! The memory that the system's loader makes of a 64-bit ELF library: which addresses its segments
//! hold, with which rights, and which bytes of the file are at them.
//!
//! Everything that the loader follows is an address, so every table is looked up here. What the
//! loader takes for granted of segments is judged here too.

use object::Endianness;
use object::elf::{
    PF_W, PF_X, PT_DYNAMIC, PT_GNU_EH_FRAME, PT_GNU_PROPERTY, PT_GNU_RELRO, PT_GNU_STACK, PT_LOAD,
    PT_NOTE, PT_PHDR, PT_TLS, ProgramHeader64,
};
use object::read::elf::ProgramHeader as _;

use super::{StructureError, incomplete};

/// The most memory that a library's segments may span, in bytes.
const SPAN: u64 = 4 << 30;
/// The most that a segment may be aligned to; linkers use 4 KiB to 2 MiB.
const ALIGNMENT: u64 = 64 << 20;
/// The smallest page of the systems at hand, in bytes.
const PAGE: u64 = 4096;
/// The alignment of notes that the loader reads, and the bytes before a note's name.
const WORD: u64 = 8;
const NOTE: usize = 12;
/// The most thread-local memory, in bytes: each thread of the host gets it.
const THREAD_LOCAL: u64 = 64 << 20;

/// What is wrong, if anything is.
pub(super) type StructureResult<T = ()> = Result<T, StructureError>;

/// A loaded segment.
#[derive(Debug, Clone, Copy)]
struct Load {
    address: u64,
    memory: u64,
    offset: u64,
    file: u64,
    writable: bool,
    executable: bool,
}

/// Rights that an address must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Right {
    /// Any right: the address is in the library's memory.
    Any,
    Write,
    Execute,
}

/// The memory of a library.
#[derive(Debug)]
pub(super) struct Image<'a> {
    bytes: &'a [u8],
    loads: Vec<Load>,
    pub(super) endian: Endianness,
    /// Address and size of the dynamic section.
    pub(super) dynamic: (u64, u64),
    /// Bytes of thread-local memory; nothing where the library has none.
    pub(super) thread_local: Option<u64>,
    /// Address and size of what becomes read-only after relocation.
    pub(super) relro: Option<(u64, u64)>,
}

impl<'a> Image<'a> {
    /// Reads the segments and judges them.
    pub(super) fn of(
        bytes: &'a [u8],
        endian: Endianness,
        segments: &[ProgramHeader64<Endianness>],
        table: u64,
    ) -> StructureResult<Self> {
        let mut image = Self {
            bytes,
            loads: Vec::new(),
            endian,
            dynamic: (0, 0),
            thread_local: None,
            relro: None,
        };
        for segment in segments {
            if segment.p_type(endian) == PT_LOAD {
                image.load(segment)?;
            }
        }
        let (Some(first), Some(last)) = (image.loads.first(), image.loads.last()) else {
            return Err(incomplete("it has no segment to load"));
        };
        if last.address + last.memory - first.address > SPAN {
            return Err(incomplete(
                "its segments span more memory than a host gives",
            ));
        }
        for segment in segments {
            image.segment(segment, segments.len(), table)?;
        }
        if image.dynamic.1 == 0 {
            return Err(incomplete("it has no dynamic section"));
        }
        Ok(image)
    }

    fn load(&mut self, segment: &ProgramHeader64<Endianness>) -> StructureResult {
        let endian = self.endian;
        let flags = segment.p_flags(endian);
        let load = Load {
            address: segment.p_vaddr(endian),
            memory: segment.p_memsz(endian),
            offset: segment.p_offset(endian),
            file: segment.p_filesz(endian),
            writable: flags.0 & PF_W.0 != 0,
            executable: flags.0 & PF_X.0 != 0,
        };
        let align = segment.p_align(endian).max(1);
        let end = load.address.checked_add(load.memory);
        if load.file > load.memory || end.is_none_or(|end| end > SPAN) {
            return Err(incomplete("a segment is larger in the file than in memory"));
        }
        if !align.is_power_of_two() || align > ALIGNMENT {
            return Err(incomplete(
                "a segment has an alignment that no system gives",
            ));
        }
        let page = align.max(PAGE);
        if load.address % page != load.offset % page {
            return Err(incomplete(
                "a segment stands at another place of its page in memory than in the file",
            ));
        }
        if load.memory > load.file && !load.writable {
            return Err(incomplete(
                "a segment that nobody can write has room to be filled",
            ));
        }
        if load.writable && load.executable {
            return Err(incomplete("a segment can be written and run"));
        }
        let before = self.loads.last();
        if before.is_some_and(|before| {
            (before.address + before.memory).div_ceil(PAGE) > load.address / PAGE
                && before.address + before.memory > load.address
        }) {
            return Err(incomplete(
                "its segments overlap, or are not in their order",
            ));
        }
        self.loads.push(load);
        Ok(())
    }

    fn segment(
        &mut self,
        segment: &ProgramHeader64<Endianness>,
        count: usize,
        table: u64,
    ) -> StructureResult {
        let endian = self.endian;
        let (address, memory) = (segment.p_vaddr(endian), segment.p_memsz(endian));
        let file = segment.p_filesz(endian);
        match segment.p_type(endian) {
            PT_DYNAMIC => {
                if self.dynamic.1 != 0 {
                    return Err(incomplete("it has two dynamic sections"));
                }
                self.check_file_offset("the dynamic section", segment)?;
                self.check_writable("the dynamic section", address, file)?;
                self.dynamic = (address, file);
            }
            PT_TLS => {
                if memory < file || memory > THREAD_LOCAL {
                    return Err(incomplete("its thread-local memory has an impossible size"));
                }
                let align = segment.p_align(endian).max(1);
                if !align.is_power_of_two() || align > ALIGNMENT {
                    return Err(incomplete(
                        "its thread-local memory has an alignment that no system gives",
                    ));
                }
                self.bytes("the thread-local memory", address, file)?;
                self.thread_local = Some(memory);
            }
            PT_GNU_RELRO => {
                self.check_writable("what becomes read-only", address, 1)?;
                let end = address.checked_add(memory);
                let within = self.load_at(address).zip(end).is_some_and(|(load, end)| {
                    end <= (load.address + load.memory).next_multiple_of(PAGE)
                });
                if !within {
                    return Err(incomplete(
                        "what becomes read-only is larger than its segment",
                    ));
                }
                self.relro = Some((address, memory));
            }
            PT_GNU_STACK if segment.p_flags(endian).0 & PF_X.0 != 0 => {
                return Err(incomplete(
                    "it asks for a stack that can be run, which no plugin needs",
                ));
            }
            PT_PHDR => {
                self.check_file_offset("the table of segments", segment)?;
                let size = (count * size_of::<ProgramHeader64<Endianness>>()) as u64;
                if segment.p_offset(endian) != table || file != size {
                    return Err(incomplete(
                        "it tells of another table of segments than it has",
                    ));
                }
            }
            PT_NOTE | PT_GNU_PROPERTY => {
                self.check_file_offset("a note", segment)?;
                self.check_notes(segment)?;
            }
            PT_GNU_EH_FRAME => self.check_file_offset("the table for unwinding", segment)?,
            _ => {}
        }
        Ok(())
    }

    /// Whether notes are as long as they say: the loader goes from one to the next where they are
    /// aligned like words.
    fn check_notes(&self, segment: &ProgramHeader64<Endianness>) -> StructureResult {
        if segment.p_align(self.endian) != WORD {
            return Ok(());
        }
        let (address, size) = (segment.p_vaddr(self.endian), segment.p_filesz(self.endian));
        let bytes = self.bytes("a note", address, size)?;
        let mut rest = bytes;
        while rest.len() > NOTE {
            let name = u64::from(u32_at(rest, 0, self.endian));
            let said = u64::from(u32_at(rest, 4, self.endian));
            let begin = (NOTE as u64 + name).next_multiple_of(WORD);
            let end = usize::try_from(begin + said)
                .ok()
                .filter(|end| *end <= rest.len());
            let end = end.ok_or_else(|| incomplete("a note is longer than its segment"))?;
            rest = rest
                .get(end.next_multiple_of(WORD as usize)..)
                .unwrap_or_default();
        }
        Ok(())
    }

    /// Whether a segment's address and its place in the file are the same bytes.
    fn check_file_offset(
        &self,
        what: &str,
        segment: &ProgramHeader64<Endianness>,
    ) -> StructureResult {
        let (address, size) = (segment.p_vaddr(self.endian), segment.p_filesz(self.endian));
        self.bytes(what, address, size)?;
        let place = self
            .load_at(address)
            .map(|l| l.offset + (address - l.address));
        if place != Some(segment.p_offset(self.endian)) || segment.p_memsz(self.endian) != size {
            return Err(incomplete(format!(
                "{what} stands at another place in memory than in the file"
            )));
        }
        Ok(())
    }

    fn load_at(&self, address: u64) -> Option<&Load> {
        self.loads
            .iter()
            .find(|load| load.address <= address && address < load.address + load.memory)
    }

    /// Whether so many bytes from an address on are in one segment with a right.
    pub(super) fn contains(&self, address: u64, size: u64, right: Right) -> bool {
        let load = self.loads.iter().find(|load| {
            let end = load.address + load.memory;
            load.address <= address && address.checked_add(size).is_some_and(|to| to <= end)
        });
        load.is_some_and(|load| match right {
            Right::Any => true,
            Right::Write => load.writable,
            Right::Execute => load.executable && size > 0,
        })
    }

    /// The end of all memory.
    pub(super) fn end(&self) -> u64 {
        self.loads
            .last()
            .map_or(0, |load| load.address + load.memory)
    }

    fn check_writable(&self, what: &str, address: u64, size: u64) -> StructureResult {
        match self.contains(address, size, Right::Write) {
            true => Ok(()),
            false => Err(incomplete(format!(
                "{what} lies in no memory that can be written"
            ))),
        }
    }

    /// The bytes of the file that are at an address.
    pub(super) fn bytes(&self, what: &str, address: u64, size: u64) -> StructureResult<&'a [u8]> {
        let outside = || {
            incomplete(format!(
                "{what} (address {address:#x}, {size} bytes) lies outside its segments"
            ))
        };
        let load = self.load_at(address).ok_or_else(outside)?;
        let into = address - load.address;
        if into.checked_add(size).is_none_or(|end| end > load.file) {
            return Err(outside());
        }
        let begin = usize::try_from(load.offset + into).ok();
        let size = usize::try_from(size).ok();
        begin
            .zip(size)
            .and_then(|(begin, size)| self.bytes.get(begin..begin.checked_add(size)?))
            .ok_or_else(outside)
    }
}

/// A number at a place of some bytes; zero where they end before, which the caller has ruled out.
pub(super) fn u16_at(bytes: &[u8], at: usize, endian: Endianness) -> u16 {
    let number = bytes.get(at..at + 2).and_then(|b| b.try_into().ok());
    let number = number.unwrap_or_default();
    match endian {
        Endianness::Little => u16::from_le_bytes(number),
        Endianness::Big => u16::from_be_bytes(number),
    }
}

/// As [`u16_at`].
pub(super) fn u32_at(bytes: &[u8], at: usize, endian: Endianness) -> u32 {
    let number = bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    let number = number.unwrap_or_default();
    match endian {
        Endianness::Little => u32::from_le_bytes(number),
        Endianness::Big => u32::from_be_bytes(number),
    }
}

/// As [`u16_at`].
pub(super) fn u64_at(bytes: &[u8], at: usize, endian: Endianness) -> u64 {
    let number = bytes.get(at..at + 8).and_then(|b| b.try_into().ok());
    let number = number.unwrap_or_default();
    match endian {
        Endianness::Little => u64::from_le_bytes(number),
        Endianness::Big => u64::from_be_bytes(number),
    }
}
