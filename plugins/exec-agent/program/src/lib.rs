//! The agent as a program without libraries, for executors that bring it along: into a container,
//! or onto this machine. Built once for all of them. Begin at `build.rs`, which builds it.

/// The bytes of the program, built for the system that this crate was built for.
pub const PROGRAM: &[u8] = include_bytes!(env!("CONJURE_EXEC_AGENT"));
