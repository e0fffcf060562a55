//! Packs the description of the API: as text it would be 400 KB of the program.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

use flate2::{Compression, GzBuilder};

/// The description, as the operations say of themselves.
const DESCRIPTION: &str = "../docs/openapi.json";

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed={DESCRIPTION}");
    println!("cargo::rerun-if-changed=build.rs");
    let description = fs::read(DESCRIPTION)?;
    let out = std::env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?;
    let file = File::create(Path::new(&out).join("openapi.json.gz"))?;
    // The same bytes whenever and wherever it is packed.
    let mut packed = GzBuilder::new().write(file, Compression::best());
    packed.write_all(&description)?;
    packed.finish().map(drop)
}
