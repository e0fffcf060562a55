//! Write native skills, executors and backends for Conjure.
//!
//! An author writes a builder and one macro line; this crate turns it into a shared library that
//! any Conjure host of the same ABI major version loads, whatever compiler built the host. A
//! panic in author code is caught here, inside the plugin, and becomes an error.
//!
//! ```
//! use conjure_skill_sdk::{Skill, export_skill, protocol::Execute};
//!
//! fn skill() -> Skill {
//!     Skill::new("greeter", "Greets people")
//!         .execute("greet NAME", |_cx, command: Execute| format!("Hello, {}!", command.command))
//! }
//!
//! export_skill!(skill, name = "greeter");
//! # fn main() {}
//! ```
//!
//! [`Skill`] is for code that *is* the tool; [`Executor`] for something that runs commands and
//! keeps files; [`Backend`] for everything else that offers tools. The last two need the feature
//! `async`. The feature `testkit` drives a plugin through the real ABI without a host.
//!
//! What crosses the boundary is in [`protocol`]; what is frozen and how it grows is told in
//! `skill-sdk/docs/abi.md`. `skill-sdk/docs/writing-a-skill.md` is a tutorial, and
//! `skill-sdk/docs/mcp.md` says what MCP clients get of a plugin. Whole plugins that run without a
//! host are in `skill-sdk/examples`: `notes` (a skill with tools and state), `counted_words` (one as an `impl` block), `memory_executor`,
//! `rooms_backend`, and `tested_skill` (the test kit);
//! `cargo run -p conjure-skill-sdk --features testkit --example notes` runs one.

#[cfg(feature = "async")]
mod backend;
mod block_on;
mod cx;
mod dispatch;
mod envelope;
mod error;
#[cfg(feature = "async")]
mod executor;
#[doc(hidden)]
pub mod export;
#[cfg(feature = "frames")]
pub mod frames;
mod guard;
#[cfg(feature = "macros")]
mod macro_support;
mod manifest_base;
mod output;
#[cfg(feature = "async")]
mod parked;
pub mod protocol;
#[cfg(feature = "async")]
mod runtime;
mod setup;
mod skill;
mod spill;
#[cfg(feature = "testkit")]
pub mod testkit;

pub use conjure_abi as abi;

#[cfg(feature = "async")]
pub use backend::{
    Backend, BackendPlugin, Contributes, Files, Prompts, Reopens, Resources, Subscriptions, Upgrade,
};
/// Makes a skill of an `impl` block: sugar over [`Skill`].
///
/// ```
/// use std::sync::Mutex;
///
/// use conjure_skill_sdk::{Error, Result, export_skill, skill};
///
/// /// What one session noted.
/// #[derive(Default)]
/// struct Notes(Mutex<Vec<String>>);
///
/// /// Keeps notes
/// #[skill(name = "notes")]
/// impl Notes {
///     /// Adds a note
///     #[tool]
///     fn add(
///         &self,
///         /// What to remember
///         text: String,
///     ) -> Result<String> {
///         let mut notes = self.0.lock().map_err(|_| Error::new("the notes are broken"))?;
///         notes.push(text);
///         Ok(format!("{} notes", notes.len()))
///     }
/// }
///
/// export_skill!(Notes::skill, name = "notes");
/// # fn main() {}
/// ```
///
/// The attribute leaves the block as it is and adds a function `skill() -> Skill` to the type. The
/// doc comment above the block is the skill's description; without `name` it is called like its
/// crate, and with `shared` all sessions have one state. `skill-sdk/docs/attribute.md` tells what
/// stands above the functions.
#[cfg(feature = "macros")]
pub use conjure_skill_macros::skill;
pub use cx::Cx;
pub use error::{Error, Result};
#[cfg(feature = "async")]
pub use executor::{Blocking, BlockingExecutor, BlockingFiles, Executor, ExecutorPlugin};
pub use export::Exported;
pub use output::{IntoToolResult, Json};
pub use setup::Setup;
pub use skill::{Contents, ResourceTemplate, Skill, ToolOptions};

/// Compiles the tutorial's examples.
#[cfg(all(doctest, feature = "testkit"))]
#[doc = include_str!("../docs/writing-a-skill.md")]
pub struct Tutorial;

/// Compiles the examples of the page about the attribute.
#[cfg(all(doctest, feature = "macros", feature = "testkit"))]
#[doc = include_str!("../docs/attribute.md")]
pub struct WithAttribute;

/// Compiles the examples of the page about MCP.
#[cfg(all(doctest, feature = "testkit"))]
#[doc = include_str!("../docs/mcp.md")]
pub struct ForMcp;

/// The version of this SDK, as plugins carry it in their header.
pub const SDK_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The compiler that built this SDK, as plugins carry it in their header.
pub const RUSTC_VERSION: &str = env!("CONJURE_RUSTC");
