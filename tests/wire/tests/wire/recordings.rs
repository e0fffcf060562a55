//! Where the recordings are, and what it means when they are not there.

use std::path::PathBuf;

use conjure_wire_tests::{Cassette, VARIABLE, cassettes};

/// The recordings of one wire, or none where nobody said where they are: then that is told as left out.
pub(crate) fn recordings(wire: &str) -> Option<Vec<Cassette>> {
    let Some(folder) = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty()) else {
        println!("LEFT OUT: cassettes: {VARIABLE} is not set");
        return None;
    };
    let folder = PathBuf::from(folder).join(wire);
    let cassettes = cassettes(&folder).unwrap();
    assert!(
        !cassettes.is_empty(),
        "no recordings in {}",
        folder.display()
    );
    Some(cassettes)
}
