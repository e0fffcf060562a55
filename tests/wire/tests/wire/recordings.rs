//! Where the recordings are, and what it means when they are not there.

use std::path::PathBuf;

use conjure_core::wire::Wire;
pub(crate) use conjure_wire_tests::Recorded;
use conjure_wire_tests::{Cassette, VARIABLE, cassettes, recorded};

/// All exchanges of one wire, of every provider that speaks it; none where nobody said where the
/// recordings are. Fails when there are none of it.
pub(crate) fn exchanges(wire: Wire) -> Option<Vec<Recorded>> {
    let found = recorded(&folder()?, wire).unwrap();
    assert!(!found.is_empty(), "no recorded exchange of {wire}");
    Some(found)
}

/// The recordings of one provider, or none where nobody said where they are.
pub(crate) fn recordings(provider: &str) -> Option<Vec<Cassette>> {
    let folder = folder()?.join(provider);
    let cassettes = cassettes(&folder).unwrap();
    assert!(
        !cassettes.is_empty(),
        "no recordings in {}",
        folder.display()
    );
    Some(cassettes)
}

/// The folder of recordings, or none where nobody said where it is: then that is told as left out.
fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os(VARIABLE).filter(|folder| !folder.is_empty());
    if folder.is_none() {
        println!("LEFT OUT: cassettes: {VARIABLE} is not set");
    }
    folder.map(PathBuf::from)
}
