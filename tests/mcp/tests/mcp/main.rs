//! Conjure against MCP programs that others wrote: the official conformance suite, the Inspector,
//! the reference servers, and the clients of both official SDKs.
//!
//! `tests/mcp/install.sh DIR` installs them, pinned; `CONJURE_MCP_PEERS=DIR` says where they are.
//! Where they are not the tests are left out and say so, which fails CI. Beside them what only
//! whole programs show: several processes with one login, a gateway in front of a server.

#[cfg(test)]
mod all_servers;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod held;
#[cfg(test)]
mod logins;
#[cfg(test)]
mod lossless;
#[cfg(test)]
mod made_files;
#[cfg(test)]
mod notices;
#[cfg(test)]
mod own;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod resources;
#[cfg(test)]
mod servers;
#[cfg(test)]
mod serving;
#[cfg(test)]
mod told;
#[cfg(test)]
mod wire;
#[cfg(test)]
mod word_for_word;
