//! Libraries with an altered byte in a table that the system's loader reads: refused before they
//! are opened, or opened without harm. Each that is not refused is opened in a process of its own.

use std::ops::Range;
use std::path::PathBuf;

use conjure_host::plugin::PluginFile;
use conjure_plugin_tests::{Bench, run_child};
use object::{Object as _, ObjectSection as _};

use super::sources::marked;

/// The loader's tables.
const TABLES: [&str; 8] = [
    ".dynamic",
    ".dynsym",
    ".gnu.hash",
    ".gnu.version",
    ".gnu.version_r",
    ".rela.dyn",
    ".rela.plt",
    ".relr.dyn",
];

/// Altered bytes a table.
const TRIES: u64 = 16;

/// Bytes of a relocation. Of those that are relative, which come first, the third to sixteenth say
/// where about it writes and what it is. That it writes a little further on, into other data that is
/// empty, or another address, nothing tells.
const RELOCATION: usize = 24;
const JUDGED: Range<usize> = 2..16;

/// Where the tables are in the file, and the table of segments.
fn tables(library: &[u8]) -> Vec<(String, Range<usize>)> {
    let file = object::File::parse(library).unwrap();
    let segments = 64..64 + 56 * usize::from(u16::from_le_bytes([library[56], library[57]]));
    let named = |name: &&str| {
        let (offset, size) = file.section_by_name(name)?.file_range()?;
        let range = usize::try_from(offset).unwrap()..usize::try_from(offset + size).unwrap();
        (!range.is_empty()).then(|| ((*name).to_owned(), range))
    };
    let mut tables: Vec<_> = TABLES.iter().filter_map(named).collect();
    tables.push(("the table of segments".to_owned(), segments));
    tables
}

#[test]
#[cfg(target_os = "linux")]
fn a_library_with_an_altered_table_is_refused_or_harmless() {
    let library = std::fs::read(marked()).unwrap();
    let bench = Bench::new();
    // Numbers without a pattern, the same in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut number = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 16).unwrap()
    };
    let tables = tables(&library);
    assert!(tables.len() > 4, "the library has tables: {tables:?}");
    let (mut refused, mut opened) = (0, 0);
    for (name, range) in tables {
        for _ in 0..TRIES {
            let mut into = number() % range.len();
            if name.starts_with(".rela.") {
                into /= 2;
                into -= into % RELOCATION;
                into += JUDGED.start + number() % JUDGED.len();
            }
            let change = u8::try_from(number() % 255 + 1).unwrap();
            let mut altered = library.clone();
            altered[range.start + into] ^= change;
            let path = bench.put("libaltered.so", &altered);
            if PluginFile::read(&path, true).is_err() {
                refused += 1;
                continue;
            }
            opened += 1;
            let file = path.to_str().unwrap();
            let exit = run_child("altered::child", &[("CONJURE_TEST_FILE", file)]);
            assert!(
                exit.success,
                "{name}, byte {into:#x} changed by {change:#x}: {:?}\n{}",
                exit.signal, exit.output
            );
        }
    }
    assert!(refused > opened, "{refused} were refused, {opened} opened");
}

#[test]
#[ignore = "runs in a child of the other test"]
fn child() {
    let Some(file) = std::env::var_os("CONJURE_TEST_FILE") else {
        return;
    };
    let bench = Bench::new();
    // Whether it works is not the question: the process must go on.
    let _ = bench.loader.load(&PathBuf::from(file), true);
}
