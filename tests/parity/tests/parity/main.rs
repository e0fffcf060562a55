//! The numbered cases of behaviour to match (`p…`), to beat (`b…`) and of the hybrid session
//! (`h…`), end to end: real libraries behind the ABI, a provider over HTTP, the real binary.
//!
//! A case that could go wrong in several places is checked where a person or a model would see it:
//! in a request that the provider received, in what the program printed, in `/proc`.

// Clippy lets tests be blunt only where it sees that they are tests.
#[cfg(test)]
mod attribution;
#[cfg(test)]
mod call_failures;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod confined;
#[cfg(test)]
mod conversation;
#[cfg(test)]
mod cut;
#[cfg(test)]
mod docker;
#[cfg(test)]
mod docker_ends;
#[cfg(test)]
mod docker_files;
#[cfg(test)]
mod docker_stage;
#[cfg(test)]
mod elsewhere;
#[cfg(test)]
mod every_backend;
#[cfg(test)]
mod files;
#[cfg(test)]
mod folders;
#[cfg(test)]
mod hosted;
#[cfg(test)]
mod hosted_delegated;
#[cfg(test)]
mod hosted_stage;
#[cfg(test)]
mod interrupted;
#[cfg(test)]
mod isolated;
#[cfg(test)]
mod killed;
mod long_talks;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod mcp_client;
#[cfg(test)]
mod mcp_serve;
#[cfg(test)]
mod misbehaving;
#[cfg(test)]
mod native;
#[cfg(test)]
mod one_call;
#[cfg(test)]
mod packages;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod registry;
#[cfg(test)]
mod requests;
#[cfg(test)]
mod routing;
#[cfg(test)]
mod sandboxed;
#[cfg(test)]
mod sandboxed_machine;
#[cfg(test)]
mod ssh;
#[cfg(test)]
mod stage;
