//! Why a plugin was not loaded, or why no instance of it was made: one enum up to the first answer, so
//! that `plugin list` can show any failure. Each names the file, what was found and needed, what to do.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::full_disk::store_remedy;
use conjure_core::sentence::sentence;

/// Why a plugin was refused.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum PluginError {
    /// The system does not let the host read the file.
    #[error("{}: cannot be read: {source}. Check the path and its permissions", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: Arc<std::io::Error>,
    },
    /// A link, a directory, a pipe, a device.
    #[error(
        "{}: is {found}, and a plugin is a regular file. Name the library file itself{}",
        path.display(),
        target.as_ref().map(|t| format!(" ({})", t.display())).unwrap_or_default()
    )]
    NotRegular {
        /// The path.
        path: PathBuf,
        /// Kind of file that is there, with an article.
        found: &'static str,
        /// Where a link leads.
        target: Option<PathBuf>,
    },
    /// The file or its directory belongs to somebody else.
    #[error(
        "{}: {what} belongs to user {owner}, and must belong to user {user} or to root, because \
         loading a library runs its code. Run `chown {user} {}` if you trust it, or copy it",
        path.display(), subject.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// `the file` or `its directory`.
        what: &'static str,
        /// The file or the directory.
        subject: PathBuf,
        /// Numeric id of the owner.
        owner: u32,
        /// Numeric id of the host's user.
        user: u32,
    },
    /// The file or its directory can be written by others.
    #[error(
        "{}: {what} can be written by {by} (mode {mode:04o}), so anyone of them could make this \
         host run code. Run `chmod go-w {}`, or move the plugin to a directory of your own",
        path.display(), subject.display()
    )]
    Writable {
        /// The file.
        path: PathBuf,
        /// `the file` or `its directory`.
        what: &'static str,
        /// The file or the directory.
        subject: PathBuf,
        /// `everyone` or `its group`.
        by: &'static str,
        /// Permission bits.
        mode: u32,
    },
    /// The file is not the library that the lock names.
    #[error(
        "{}: is not the library of {name} {version} that {} names, so nothing of it runs: it was \
         altered, or put there by hand. `conjure plugin install` puts back what the lock names; \
         `conjure plugin add` takes a build of your own",
        path.display(), lock.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
        /// The plugin.
        name: String,
        /// The version that is locked.
        version: String,
        /// The lock.
        lock: PathBuf,
    },
    /// Nobody knows what the lock says.
    #[error("{}: nothing of it runs, because {reason}", path.display())]
    Lock {
        /// The file.
        path: PathBuf,
        /// What is wrong with the lock.
        reason: String,
    },
    /// The file is larger than any plugin may be.
    #[error(
        "{}: has {size} bytes, and a plugin has at most {limit}. Build it in release, or strip it",
        path.display()
    )]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Size of the file in bytes.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// Somebody wrote to the file while it was read.
    #[error(
        "{}: changed while it was read. Put a complete file there, best by renaming it into \
         place, and load it again",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// Not a shared library of this platform.
    #[error(
        "{}: is {found}, and a plugin is {needed}. Name a library that was built with \
         `crate-type = [\"cdylib\"]`",
        path.display()
    )]
    NotALibrary {
        /// The file.
        path: PathBuf,
        /// Kind of the file, as a phrase for the sentence.
        found: String,
        /// What this platform loads.
        needed: &'static str,
    },
    /// The file is shorter than its own structure says, or the structure contradicts itself.
    #[error(
        "{}: is not complete: {what}. Copy or build it again, best under another name that is \
         then renamed",
        path.display()
    )]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What is missing or wrong.
        what: String,
    },
    /// A library for another machine.
    #[error(
        "{}: was built for {found}, and this host runs on {needed}. Build it for this machine",
        path.display()
    )]
    Target {
        /// The file.
        path: PathBuf,
        /// Machine, word size and byte order of the file.
        found: String,
        /// Machine, word size and byte order of the host.
        needed: String,
    },
    /// A library without a header of ours.
    #[error(
        "{}: is a shared library but not a Conjure plugin: it has no section `{section}`. Build \
         it on `conjure-skill-sdk` with one of its export macros",
        path.display()
    )]
    NoHeader {
        /// The file.
        path: PathBuf,
        /// The section that was looked for.
        section: &'static str,
    },
    /// The header is broken.
    #[error(
        "{}: its Conjure header cannot be read: {what}. Build it again with the current \
         `conjure-skill-sdk`",
        path.display()
    )]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Built for another major version of the ABI.
    #[error(
        "{}: was built for version {found} of the plugin ABI, and this host loads version \
         {needed}. Build it with `conjure-skill-sdk` of this host, or use a host of its version",
        path.display()
    )]
    Major {
        /// The file.
        path: PathBuf,
        /// The plugin's version.
        found: u16,
        /// The host's.
        needed: u16,
    },
    /// Built for pointers of another size.
    #[error(
        "{}: its header says {found}-byte pointers, and this host has {needed}-byte ones. Build \
         it for this machine",
        path.display()
    )]
    PointerSize {
        /// The file.
        path: PathBuf,
        /// Bytes of a pointer in the plugin.
        found: u8,
        /// Bytes of a pointer in the host.
        needed: usize,
    },
    /// A program's description is not one, or what it names is not there.
    #[error(
        "{}: is no description of a plugin that is a program: {what}. Mend it as \
         `conjure schema protocol guide` says", path.display()
    )]
    Description {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A bundle does not hold what it should.
    #[error(
        "{}: is no bundle of a plugin that is a program: {what}. Make it again, of its description and \
         the files that this names", path.display()
    )]
    Bundle {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A package, which is judged as a whole before what is in it is a file.
    #[error("{}: is a package, and no plugin by itself: `conjure plugin install` takes it", path.display())]
    Package {
        /// The file.
        path: PathBuf,
    },
    /// A program speaks another major version of the protocol.
    #[error(
        "{}: speaks version {found} of the protocol for plugins, and this host speaks version \
         {needed}. Use a host that speaks that, or a version of the plugin for this one",
        path.display()
    )]
    Protocol {
        /// The file.
        path: PathBuf,
        /// The plugin's version.
        found: u16,
        /// The host's.
        needed: u16,
    },
    /// The program that runs a plugin is not on this machine.
    #[error(
        "{}: {plugin} is run by `{program}`, which is in none of the places of the system's programs \
         ({places}). Install it there, or put it among the plugin's own files", path.display()
    )]
    NoProgram {
        /// The file.
        path: PathBuf,
        /// Name and version.
        plugin: String,
        /// The program, as the plugin's command begins.
        program: String,
        /// Directories that were searched for the program.
        places: String,
    },
    /// A program, or a stranger's library, and the host has no workers.
    #[error(
        "{}: {name} is a program or came in a package, so it runs in a process of its own, and this \
         host runs no workers. Load it in a host that does", path.display()
    )]
    NeedsWorker {
        /// The file.
        path: PathBuf,
        /// The plugin's name.
        name: String,
    },
    /// Built with `panic = "abort"`.
    #[error(
        "{}: was built with `panic = \"abort\"`, so a panic in {name} would end this host, and this \
         host runs no workers. Remove `panic = \"abort\"` from its profile and build it again",
        path.display()
    )]
    PanicAbort {
        /// The file.
        path: PathBuf,
        /// The plugin's name.
        name: String,
    },
    /// Not trusted enough to run inside the host.
    #[error(
        "{}: is in a place that others than you and root can change ({reason}), so it may not \
         run inside this host. Name it with `--plugin`, or move it to a directory of your own",
        path.display()
    )]
    NotPinned {
        /// The file.
        path: PathBuf,
        /// The place, and why others can change it.
        reason: String,
    },
    /// The copy that is opened could not be made.
    #[error(
        "{}: no copy could be made in {}: {source}. {}",
        path.display(), store.display(), store_remedy(source)
    )]
    Store {
        /// The plugin's file.
        path: PathBuf,
        /// The place of the copies.
        store: PathBuf,
        /// What the system says.
        source: Arc<std::io::Error>,
    },
    /// The dynamic linker refused the library.
    #[error(
        "{}: the system cannot open it: {reason}. Install what it needs, or build it for this \
         system",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// What the linker says.
        reason: String,
    },
    /// Loading did not end in time.
    #[error(
        "{}: {stage} did not end within {limit:?}; its thread is lost. Mend the plugin, then \
         restart this host",
        path.display()
    )]
    Hung {
        /// The file.
        path: PathBuf,
        /// What was going on.
        stage: &'static str,
        /// The limit.
        limit: Duration,
    },
    /// An earlier library still hangs inside the dynamic linker.
    #[error(
        "{}: was not opened, because {} still hangs while it is opened and the system opens one \
         library at a time. Remove that one, then restart this host",
        path.display(), culprit.display()
    )]
    Blocked {
        /// The file.
        path: PathBuf,
        /// The library that hangs.
        culprit: PathBuf,
    },
    /// What a plugin's worker says of the library.
    #[error("{reason}")]
    InWorker {
        /// The reason, which names the file.
        reason: String,
    },
    /// No worker could be started.
    #[error(
        "{}: no worker process could be started for {plugin}: {reason}. Look whether {} can be \
         run, and whether the limits of processes and memory allow it",
        path.display(), program.display()
    )]
    NoWorker {
        /// The file.
        path: PathBuf,
        /// Name and version.
        plugin: String,
        /// The program that workers are.
        program: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// The plugin's manifest asks for what no worker gets.
    #[error(
        "{}: {plugin} runs in no worker: {}{remedy}",
        path.display(), sentence(reason)
    )]
    NotGranted {
        /// The remedy, behind a space: who is to be told, or what else can be done; empty without one.
        remedy: String,
        /// The file.
        path: PathBuf,
        /// Name and version.
        plugin: String,
        /// What it asks for, and why it does not get it.
        reason: String,
    },
    /// The plugin's worker ended before there was an instance.
    #[error(
        "{}: the worker process of {plugin} {end}, before the plugin could be used. Tell its \
         author, or use another version",
        path.display()
    )]
    WorkerEnded {
        /// The file.
        path: PathBuf,
        /// Name and version.
        plugin: String,
        /// End of the worker process, as a phrase for the sentence.
        end: String,
    },
    /// The plugin's worker did not answer in time.
    #[error(
        "{}: {plugin} did not answer within {limit:?} while it was loaded or an instance of it was \
         made; its worker process was ended. Tell its author, or use another version",
        path.display()
    )]
    HungInWorker {
        /// The file.
        path: PathBuf,
        /// Name and version.
        plugin: String,
        /// The limit.
        limit: Duration,
    },
    /// The plugin hung when it was loaded last, and its file is the same.
    #[error(transparent)]
    PreviousHang(#[from] super::PreviousHang),
    /// The plugin's workers end again and again.
    #[error(
        "{}: the worker process of {plugin} ended {ends} times without an answer in between, and \
         is not started again for {} ms; the last one {} Tell its author, or use another version",
        path.display(), left.as_millis(), sentence(end)
    )]
    WorkerPaused {
        /// The file.
        path: PathBuf,
        /// Name and version.
        plugin: String,
        /// How many ended.
        ends: u32,
        /// End of the last one, as a phrase for the sentence.
        end: String,
        /// How long none is started.
        left: Duration,
    },
    /// Header and contents contradict each other.
    #[error(
        "{}: exports no `{symbol}`, though its header says that it is a plugin. Build it again \
         with one of the SDK's export macros",
        path.display()
    )]
    Symbol {
        /// The file.
        path: PathBuf,
        /// The symbol.
        symbol: &'static str,
    },
    /// Types that cross the boundary have other layouts in the plugin.
    #[error(
        "{}: {plugin} (built with {built}) lays out types of the plugin ABI in another way than \
         this host: {reason}. Build it with `conjure-skill-sdk` of this host",
        path.display()
    )]
    Layout {
        /// The file.
        path: PathBuf,
        /// Name and version.
        plugin: String,
        /// The SDK it was built with and the compiler it was built by.
        built: String,
        /// The first difference.
        reason: String,
    },
    /// The plugin's own builder failed.
    #[error(
        "{}: {name} could not describe itself: {} Tell its author, or use another version",
        path.display(), sentence(reason)
    )]
    Builder {
        /// The file.
        path: PathBuf,
        /// The plugin's name.
        name: String,
        /// What it says.
        reason: String,
    },
    /// The manifest is another one than when the plugin was allowed, though the library is the same.
    #[error(
        "{}: {name} says something else of itself than when it was installed and allowed, though its \
         library is the same, so it is not used. Ask its author why; `conjure plugin install` shows and \
         allows what it says now", path.display()
    )]
    OtherManifest {
        /// The file.
        path: PathBuf,
        /// The plugin's name.
        name: String,
    },
    /// The manifest is not one.
    #[error(
        "{}: the manifest of {name} cannot be used: {} {remedy}", path.display(), sentence(reason)
    )]
    Manifest {
        /// The file.
        path: PathBuf,
        /// The plugin's name.
        name: String,
        /// What is wrong.
        reason: String,
        /// What to do.
        remedy: &'static str,
    },
    /// The plugin needs a host operation that this host does not serve.
    #[error(
        "{}: {name} {version} needs the host operation `{operation}`, and this host does not \
         serve it. Use a newer host, or a version of the plugin that does without",
        path.display()
    )]
    Requires {
        /// The file.
        path: PathBuf,
        /// The plugin's name.
        name: String,
        /// The plugin's version.
        version: String,
        /// The operation.
        operation: String,
    },
    /// The process has no room for another library.
    #[error(
        "{}: this host has opened {opened} different libraries since it started, and each takes \
         a system resource of which a process has few. Restart the host to load more",
        path.display()
    )]
    TooMany {
        /// The file.
        path: PathBuf,
        /// How many libraries were opened.
        opened: usize,
    },
    /// Another plugin has the same name and version.
    #[error(
        "{}: is {name} {version}, which is already loaded from {}. Remove one of the two, or give \
         this one another version",
        path.display(), other.display()
    )]
    Duplicate {
        /// The file.
        path: PathBuf,
        /// The name of both.
        name: String,
        /// The version of both.
        version: String,
        /// Where the other one is.
        other: PathBuf,
    },
    /// The plugin refused to make an instance.
    #[error("{plugin}: no instance could be made: {reason} Check its configuration")]
    Create {
        /// Name and version.
        plugin: String,
        /// What it says, ended as a sentence.
        reason: String,
    },
    /// A new instance did not answer.
    #[error(
        "{plugin}: a new instance did not answer its first request, a ping: {reason}. Tell its author, \
         or use another version"
    )]
    Ping {
        /// Name and version.
        plugin: String,
        /// What went wrong.
        reason: String,
    },
    /// The plugin may not be used any more.
    #[error("{plugin}: {} Reload it to try again", sentence(reason))]
    Quarantined {
        /// Name and version.
        plugin: String,
        /// What it did.
        reason: String,
    },
    /// The plugin was removed; only what already runs may end.
    #[error("{plugin}: was removed from this host. Add its file again to use it")]
    Removed {
        /// Name and version.
        plugin: String,
    },
    /// The host itself could not go on, for example because it has no threads left.
    #[error("{}: the host could not load it: {reason}. Try again when the machine has room", path.display())]
    Host {
        /// The file.
        path: PathBuf,
        /// What failed.
        reason: String,
    },
}

impl PluginError {
    /// Whether the file may be fine a moment later: it was being written.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Changed { .. } | Self::Incomplete { .. })
    }
}
