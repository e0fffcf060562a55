//! Wakes a thread that waits for descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

#[cfg(target_os = "linux")]
type Ends = (std::os::fd::OwnedFd, ());
#[cfg(not(target_os = "linux"))]
type Ends = (io::PipeReader, io::PipeWriter);

/// Something that is readable once it was woken.
#[derive(Debug)]
pub struct Wake(Ends);

impl Wake {
    /// One that nobody woke yet.
    ///
    /// # Errors
    /// When there are no more descriptors.
    #[cfg(target_os = "linux")]
    pub fn new() -> io::Result<Self> {
        use rustix::event::{EventfdFlags, eventfd};
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        Ok(Self((eventfd(0, flags)?, ())))
    }

    /// One that nobody woke yet.
    ///
    /// # Errors
    /// When there are no more descriptors.
    #[cfg(not(target_os = "linux"))]
    pub fn new() -> io::Result<Self> {
        let (reads, writes) = io::pipe()?;
        rustix::io::ioctl_fionbio(&reads, true)?;
        rustix::io::ioctl_fionbio(&writes, true)?;
        Ok(Self((reads, writes)))
    }

    /// Wakes whoever waits.
    pub fn wake(&self) {
        #[cfg(target_os = "linux")]
        let writes = &self.0.0;
        #[cfg(not(target_os = "linux"))]
        let writes = &self.0.1;
        let _ = rustix::io::write(writes, &1_u64.to_ne_bytes());
    }

    /// From now on only who wakes it again does.
    pub fn clear(&self) {
        // A pipe has as much in it as it was woken, the kernel's counter is empty after once.
        let mut bytes = [0; 1024];
        let _ = rustix::io::read(&self.0.0, &mut bytes);
    }
}

impl AsFd for Wake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.as_fd()
    }
}
