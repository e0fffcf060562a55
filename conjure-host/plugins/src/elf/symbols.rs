//! The symbols of a library and the hash tables that the system's loader finds them by.
//!
//! The loader divides by a table's number of buckets, follows its chains to their end and calls
//! what a symbol says is a resolver, so these are judged to the last number.

use object::elf as raw;

use super::dynamic::{Dynamic, SYMBOL, Section};
use super::image::{Image, Right, StructureResult, u16_at, u32_at, u64_at};
use super::incomplete;

/// A function that the loader calls to learn an address.
const STT_GNU_IFUNC: u8 = 10;
/// A number whose meaning the section does not change.
const SHN_ABS: u16 = 0xfff1;

/// The symbols of a library.
#[derive(Debug)]
pub(super) struct Symbols<'a> {
    table: &'a [u8],
    /// How many there are.
    pub(super) count: u64,
}

impl<'a> Symbols<'a> {
    /// Reads the symbols and judges them and their hash tables. How many there are only the
    /// section header tells.
    pub(super) fn of(
        image: &Image<'a>,
        dynamic: &Dynamic<'a>,
        sections: &[Section],
    ) -> StructureResult<Self> {
        let section = sections.iter().find(|s| s.kind == raw::SHT_DYNSYM.0);
        let section = section.ok_or_else(|| incomplete("it has no table of symbols"))?;
        if section.size == 0 || section.size % SYMBOL != 0 {
            return Err(incomplete("its table of symbols has an impossible size"));
        }
        let symbols = Self {
            table: image.bytes("the table of symbols", section.address, section.size)?,
            count: section.size / SYMBOL,
        };
        symbols.judge(image, dynamic)?;
        symbols.check_gnu_hash(image, dynamic)?;
        symbols.check_hash(image, dynamic)?;
        Ok(symbols)
    }

    /// The bytes of a symbol.
    fn at(&self, number: u64) -> &'a [u8] {
        let begin = usize::try_from(number * SYMBOL).unwrap_or(usize::MAX);
        let end = begin.saturating_add(SYMBOL as usize);
        self.table.get(begin..end).unwrap_or_default()
    }

    fn judge(&self, image: &Image<'_>, dynamic: &Dynamic<'_>) -> StructureResult {
        for number in 1..self.count {
            let symbol = self.at(number);
            dynamic.string(u32_at(symbol, 0, image.endian).into())?;
            let info = symbol.get(4).copied().unwrap_or_default();
            let visibility = symbol.get(5).copied().unwrap_or_default() & 3;
            let (binding, kind) = (info >> 4, info & 0xf);
            let section = u16_at(symbol, 6, image.endian);
            let value = u64_at(symbol, 8, image.endian);
            let is_code = kind == raw::STT_FUNC.0 || kind == STT_GNU_IFUNC;
            let fits = match section {
                // The loader takes one that others cannot see for the library's own, at no address.
                0 => binding != raw::STB_LOCAL.0 && visibility == raw::STV_DEFAULT.0,
                SHN_ABS => true,
                _ if kind == raw::STT_TLS.0 => {
                    image.thread_local.is_some_and(|memory| value <= memory)
                }
                _ if is_code && !image.contains(value, 1, Right::Execute) => false,
                _ => value <= image.end(),
            };
            if !fits {
                return Err(incomplete("a symbol lies outside its segments"));
            }
        }
        Ok(())
    }

    /// Whether a symbol is the library's own.
    pub(super) fn is_defined(&self, number: u64, image: &Image<'_>) -> bool {
        u16_at(self.at(number), 6, image.endian) != 0
    }

    /// The table of the GNU linkers: a filter, buckets, and a chain of hashes for the symbols from
    /// a first one on; the last hash of a bucket's chain is odd.
    fn check_gnu_hash(&self, image: &Image<'_>, dynamic: &Dynamic<'_>) -> StructureResult {
        let Some(address) = dynamic.get(raw::DT_GNU_HASH) else {
            return Ok(());
        };
        let broken = |what: &str| incomplete(format!("its hash table is damaged: {what}"));
        let read = |at: u64, size: u64| image.bytes("the hash table", at, size);
        let endian = image.endian;
        let head = read(address, 16)?;
        let buckets = u64::from(u32_at(head, 0, endian));
        let first = u64::from(u32_at(head, 4, endian));
        let filter = u64::from(u32_at(head, 8, endian));
        let shift = u32_at(head, 12, endian);
        if buckets == 0 || !filter.is_power_of_two() || shift > 63 {
            return Err(broken("its sizes are impossible"));
        }
        let filters = address + 16;
        read(filters, filter * 8)?;
        let bucket_table = read(filters + filter * 8, buckets * 4)?;
        let chained = self.count.checked_sub(first).filter(|_| first > 0);
        let is_empty = bucket_table.iter().all(|byte| *byte == 0);
        let chained = match chained {
            _ if is_empty => return Ok(()),
            Some(chained) if chained > 0 => chained,
            _ => return Err(broken("it begins behind the symbols")),
        };
        let chain = read(filters + filter * 8 + buckets * 4, chained * 4)?;
        let hash_at = |number: u64| {
            let at = usize::try_from((number - first) * 4).unwrap_or(usize::MAX);
            u32_at(chain, at, endian)
        };
        if hash_at(self.count - 1) & 1 == 0 {
            return Err(broken("its last chain has no end"));
        }
        for number in first..self.count {
            let name = dynamic.string(u32_at(self.at(number), 0, endian).into())?;
            if hash_at(number) | 1 != gnu_hash(name) | 1 {
                return Err(broken("a hash is another one than its symbol's"));
            }
        }
        for bucket in bucket_table.chunks_exact(4) {
            let begin = u64::from(u32_at(bucket, 0, endian));
            if begin != 0 && !(first..self.count).contains(&begin) {
                return Err(broken("a chain begins outside it"));
            }
        }
        Ok(())
    }

    /// The table of the System V ABI: buckets and a chain for all symbols, each a symbol's number.
    fn check_hash(&self, image: &Image<'_>, dynamic: &Dynamic<'_>) -> StructureResult {
        let Some(address) = dynamic.get(raw::DT_HASH) else {
            return Ok(());
        };
        let broken = || incomplete("its hash table is damaged");
        let endian = image.endian;
        let head = image.bytes("the hash table", address, 8)?;
        let buckets = u64::from(u32_at(head, 0, endian));
        let chained = u64::from(u32_at(head, 4, endian));
        if buckets == 0 || chained != self.count {
            return Err(broken());
        }
        let numbers = image.bytes("the hash table", address + 8, (buckets + chained) * 4)?;
        let number = |at: u64| {
            let at = usize::try_from(at * 4).unwrap_or(usize::MAX);
            u64::from(u32_at(numbers, at, endian))
        };
        if (0..buckets + chained).any(|at| number(at) >= chained) {
            return Err(broken());
        }
        // Every symbol is in one chain, so all of them together are no longer than there are
        // symbols, unless one runs in a circle.
        let mut steps = 0;
        for bucket in 0..buckets {
            let mut symbol = number(bucket);
            while symbol != 0 {
                steps += 1;
                if steps > chained {
                    return Err(broken());
                }
                symbol = number(buckets + symbol);
            }
        }
        Ok(())
    }
}

fn gnu_hash(name: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| hash.wrapping_mul(33).wrapping_add(u32::from(*byte));
    name.iter().fold(5381, step)
}
