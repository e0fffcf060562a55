//! The program that plugins bring along, made something that can be run.

#[cfg(target_os = "linux")]
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The name under which it runs.
const NAME: &str = "conjure-exec-agent";

/// The agent's program. On Linux it is a file without a name, which no command finds or changes;
/// elsewhere a file that goes with the value.
#[derive(Debug)]
pub struct Program {
    #[cfg(target_os = "linux")]
    file: File,
    #[cfg(not(target_os = "linux"))]
    path: tempfile::TempPath,
}

impl Program {
    /// Makes one of these bytes.
    ///
    /// # Errors
    /// When the system gives no such file.
    #[cfg(target_os = "linux")]
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
        use rustix::io::Errno;

        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let made = match memfd_create(NAME, flags | MemfdFlags::EXEC) {
            // Systems that do not know this flag let every such file be run.
            Err(Errno::INVAL) => memfd_create(NAME, flags),
            made => made,
        };
        let mut file = File::from(made?);
        file.write_all(bytes)?;
        let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        fcntl_add_seals(&file, seals)?;
        Ok(Self { file })
    }

    /// Makes one of these bytes.
    ///
    /// # Errors
    /// When the system gives no such file.
    #[cfg(not(target_os = "linux"))]
    pub fn new(bytes: &[u8]) -> io::Result<Self> {
        use std::fs::Permissions;
        use std::os::unix::fs::PermissionsExt as _;

        let mut file = tempfile::Builder::new().prefix(NAME).tempfile()?;
        file.write_all(bytes)?;
        file.as_file()
            .set_permissions(Permissions::from_mode(0o500))?;
        Ok(Self {
            path: file.into_temp_path(),
        })
    }

    /// The program, to do this.
    #[must_use]
    pub fn command(&self, verb: &str) -> Command {
        #[cfg(target_os = "linux")]
        let mut command = {
            use std::os::fd::AsRawFd as _;
            Command::new(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
        };
        #[cfg(not(target_os = "linux"))]
        let mut command = Command::new(&self.path);
        command.arg0(NAME).arg(verb);
        command
    }
}
