//! Open files that are sent to another process, over a Unix socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The most that are sent at once.
const MAX_DESCRIPTORS: usize = 2;

/// Sends descriptors, with one byte that means nothing.
///
/// # Errors
/// When they are more than two, or the socket takes nothing.
pub fn send_descriptors(socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut along = SendAncillaryBuffer::new(&mut space);
    let fits = descriptors.len() <= MAX_DESCRIPTORS;
    if !fits || !along.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("there is no room for a descriptor"));
    }
    let byte = [IoSlice::new(b"i")];
    #[cfg(target_os = "linux")]
    let flags = SendFlags::NOSIGNAL;
    #[cfg(not(target_os = "linux"))]
    let flags = SendFlags::empty();
    sendmsg(socket, &byte, &mut along, flags)?;
    Ok(())
}

/// Reads bytes, and the descriptors that came with them. No program that is started later has
/// them.
///
/// # Errors
/// When the socket cannot be read, or there is no room for all descriptors.
pub fn receive_descriptors(
    socket: &UnixStream,
    bytes: &mut [u8],
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut along = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(bytes)];
    #[cfg(target_os = "linux")]
    let flags = RecvFlags::CMSG_CLOEXEC;
    #[cfg(not(target_os = "linux"))]
    let flags = RecvFlags::empty();
    let read = recvmsg(socket, into, &mut along, flags)?;
    if read.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::Error::other("not all descriptors that were sent came"));
    }
    let mut sent = Vec::new();
    for message in along.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            sent.extend(descriptors);
        }
    }
    #[cfg(not(target_os = "linux"))]
    for descriptor in &sent {
        rustix::io::fcntl_setfd(descriptor, rustix::io::FdFlags::CLOEXEC)?;
    }
    Ok((read.bytes, sent))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn what_is_sent_is_the_same_open_file_and_no_program_inherits_it() {
        let (here, there) = UnixStream::pair().unwrap();
        let (mut reads, writes) = io::pipe().unwrap();
        send_descriptors(&here, &[writes.as_fd(), reads.as_fd()]).unwrap();
        drop(writes);
        let mut bytes = [0; 8];
        let (count, sent) = receive_descriptors(&there, &mut bytes).unwrap();
        assert_eq!((count, sent.len()), (1, 2));
        for descriptor in &sent {
            let flags = rustix::io::fcntl_getfd(descriptor).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
        }
        let first = sent.into_iter().next().unwrap();
        File::from(first).write_all(b"through").unwrap();
        let mut said = String::new();
        reads.read_to_string(&mut said).unwrap();
        assert_eq!(said, "through");
    }

    #[test]
    fn bytes_come_without_any_and_three_are_not_sent() {
        let (mut here, there) = UnixStream::pair().unwrap();
        here.write_all(b"plain").unwrap();
        let mut bytes = [0; 8];
        let (count, sent) = receive_descriptors(&there, &mut bytes).unwrap();
        assert_eq!((&bytes[..count], sent.len()), (&b"plain"[..], 0));
        assert!(send_descriptors(&here, &[here.as_fd(); 3]).is_err());
    }
}
