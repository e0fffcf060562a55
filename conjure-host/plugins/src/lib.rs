//! Plugins, from a file to an instance: found, judged, opened, called, replaced.
//!
//! [`PluginFile`] judges a file before any of its code runs, [`Loader`] opens it, [`LoadedPlugin`]
//! makes instances, [`Instance`] takes requests, [`PluginRegistry`] holds all plugins of a host and
//! [`Watcher`] keeps it up to date with the plugin directories. What a request means is not known
//! here: bytes of the protocol go in and come out. Touches files, watches directories, loads libraries and
//! runs their code on threads of its own; the one crate of the host with unsafe code for that. Begin
//! at `load.rs` for loading, at `instance.rs` for calls.

mod access;
mod adopted_skills;
mod call;
mod clock;
mod conditional_change;
mod elf;
mod emit;
mod error;
mod file;
mod find;
mod full_disk;
mod grant;
mod hang_records;
mod hash;
mod health;
mod in_place;
mod install_change;
mod install_history;
mod installed;
mod installed_build;
mod instance;
mod layout;
mod library_records;
mod link;
mod load;
mod loaded;
mod lock;
mod open;
mod owners_list;
mod packaged;
mod parallel_load;
mod pending;
mod placement;
mod pool;
mod program;
mod registry;
mod services;
mod signers;
mod store;
mod target;
mod watch;
mod worker;

pub use conditional_change::InstalledState;
pub use elf::LibraryContents;
pub use emit::{EMIT_BYTES, EMIT_ITEMS, EMIT_PIECE, Emit, EmitSink, EmitStream, emit_channel};
pub use error::PluginError;
pub use file::{FILE_LIMIT, FileStamp, Pin, PluginFile};
pub use find::{FoundLibrary, SearchPath, is_library_name, libraries};
pub use grant::{
    GrantError, InstanceGrant, allowed_permissions, covers_host, covers_secret, permission_phrases,
};
pub use hang_records::PreviousHang;
pub use hash::Sha256;
pub use health::{PluginHealth, PluginLimits};
pub use install_change::{InstallAction, InstallChange, InstallError, InstalledVersion};
pub use installed::InstalledPlugins;
pub use installed_build::SkillArchive;
pub use instance::{Instance, ReplyBytes};
pub use load::{LIBRARY_LIMIT, Loader, LoaderOptions};
pub use loaded::{LoadedPlugin, PluginSource};
pub use lock::{LOCK_FILE, LockError, LockedPlugin, PluginLock};
pub use open::end_process;
pub use packaged::PackagedPlugins;
pub use program::{PROTOCOL, ProgramDescription, is_description, program_files};
pub use registry::{FailedPlugin, PluginRegistry, PluginSnapshot, RegistryChange, RegistryEvent};
pub use services::{
    AfterStop, CallMeta, CallOptions, HostServices, NoServices, PluginCallFailure, PluginId,
};
pub use signers::{TrustedSigner, TrustedSigners};
pub use store::CopyStore;
pub use target::{ANY_TARGET, LibraryTarget};
pub use watch::{WatchOptions, Watcher};
pub use worker::{
    ConfinementGaps, DEMO_WORK_DIR, InstanceDirs, Isolation, IsolationReason, PluginTrust,
    TrustedLibrary, WorkerLimits, WorkerOptions, confinement_gaps, landlock_version, worker_main,
};
