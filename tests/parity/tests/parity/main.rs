//! The numbered cases of behaviour to match (`p…`), to beat (`b…`) and of the hybrid session
//! (`h…`), end to end: real libraries behind the ABI, a provider over HTTP, the real binary.
//!
//! A case that could go wrong in several places is checked where a person or a model would see it:
//! in a request that the provider received, in what the program printed, in `/proc`.

mod commands;
mod conversation;
mod files;
mod folders;
mod interrupted;
mod misbehaving;
mod native;
mod packages;
mod processes;
mod registry;
mod requests;
mod routing;
mod stage;
