//! The agent's program as a file without a name, so that there is none which a command could find
//! or change.

use std::fs::File;
use std::io::{self, Write as _};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::Errno;

/// A file with this program that nobody changes any more. It is run as `/proc/self/fd/NUMBER`.
///
/// # Errors
/// When the system gives no such file.
pub fn in_memory(program: &[u8]) -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let made = match memfd_create("conjure-exec-agent", flags | MemfdFlags::EXEC) {
        // Systems that do not know this flag let every such file be run.
        Err(Errno::INVAL) => memfd_create("conjure-exec-agent", flags),
        made => made,
    };
    let mut file = File::from(made?);
    file.write_all(program)?;
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    fcntl_add_seals(&file, seals)?;
    Ok(file)
}
