//! The local executor: commands and files on this machine.
