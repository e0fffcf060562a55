//! Plugins that are programs: any executable that speaks the worker's protocol.
//!
//! A program says nothing about itself before it runs, so a text file beside it does: its
//! *description* ([`ProgramDescription`]), from which is judged what a library's header says. Both
//! and all other files that it needs are one *bundle*, a ZIP archive: its bytes are what is hashed,
//! copied and installed, as those of a library are. Here files become a bundle and a bundle becomes
//! files; nothing is run here.

mod bundle;
mod description;
mod gather;

pub use description::{PROTOCOL, ProgramDescription, is_description};
pub use gather::program_files;

pub(super) use bundle::{FILES_EXTENSION, is_bundle, judge, open_bundle, unpack};
pub(super) use description::{judge_size, parse};
pub(super) use gather::{file_dirs, gather, has_file, paths, stamp};

/// The extension of a bundle.
pub(super) const EXTENSION: &str = "plugin";
