//! The worker's own side: opens one library and serves it over standard input and output, or becomes
//! the program that does that itself.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use conjure_abi::{CallContext, Fault, PluginObject, RootRef, code};
use conjure_config::platform::{self, ProcessStreams};
use conjure_confinement::{ConfinementGaps, WorkerConfinement};
#[cfg(target_os = "linux")]
use conjure_skill_sdk::frames::FrameServer;
use conjure_skill_sdk::frames::PluginRoot;
use rustix::process::{Resource, Rlimit, Signal};
use tokio::runtime::Runtime;

#[cfg(target_os = "linux")]
use super::readers::FrameReaders;
use crate::PROTOCOL;
use crate::open::{LibraryLabel, exit_immediately, open};

/// How long what runs in a worker may take to end, once its host has ended or needs it no more.
const END_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of addresses beside the memory that a worker may use: libraries, files, stacks, and what
/// allocators set apart.
const ADDRESS_SPACE_MARGIN: u64 = 4 * 1024 * 1024 * 1024;

/// The allocator of this program, which is the plugin's in a worker, counts what it uses against the
/// limit of memory, not what it sets apart.
pub(super) const ALLOCATOR: [(&str, &str); 1] = [("MIMALLOC_ARENA_EAGER_COMMIT", "0")];

/// The only argument of a process that supervises a worker.
pub(super) const SUPERVISE: &str = "supervise";

/// Runs as a worker or as the supervisor of one, and ends the process. `args` is what a host hands over
/// behind the arguments of [`WorkerOptions`](super::WorkerOptions).
///
/// To be called first thing in `main`, while there is one thread: it takes standard input and
/// output for the host's frames. What the plugin prints goes to standard error, and reading finds
/// the end of input.
pub fn worker_main(args: impl Iterator<Item = OsString>) -> ! {
    let args: Vec<OsString> = args.collect();
    let served = match args.as_slice() {
        [verb] if verb == SUPERVISE => supervise(),
        _ => run(args.into_iter()),
    };
    let code = match served {
        Ok(()) => 0,
        Err(reason) => {
            let line = format!("error: a worker for plugins cannot run: {reason}\n");
            let _ = std::io::stderr().write_all(line.as_bytes());
            2
        }
    };
    exit_immediately(code)
}

/// What a worker is told when it is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerArguments {
    /// The host, where that starts it itself; without it a supervisor does. It ends with whichever
    /// starts it.
    pub(super) parent: Option<u32>,
    /// Bytes of memory.
    pub(super) memory: u64,
    /// Open files.
    pub(super) open_files: u64,
    /// Seconds of processors, where they are limited.
    pub(super) processor_seconds: Option<u64>,
    /// The copy that is opened, or the directory of the program's files.
    pub(super) copy: PathBuf,
    /// What it becomes, where it is a program: the path of that, and its arguments.
    pub(super) command: Option<Vec<String>>,
    /// The file that it is a copy of, for errors.
    pub(super) file: PathBuf,
    /// What the file's header says, for errors.
    pub(super) label: LibraryLabel,
    /// What it may reach; without it, what its user may.
    pub(super) confinement: Option<WorkerConfinement>,
}

impl WorkerArguments {
    /// As arguments of a program.
    ///
    /// # Errors
    /// That a path of the confinement is not UTF-8.
    pub(super) fn to_args(&self) -> Result<[OsString; 12], String> {
        let unsayable = |error| format!("what it is to run cannot be said: {error}");
        let command = serde_json::to_string(&self.command).map_err(unsayable)?;
        let confinement = serde_json::to_string(&self.confinement)
            .map_err(|error| format!("what it may reach cannot be said: {error}"))?;
        Ok([
            self.parent.unwrap_or_default().to_string().into(),
            self.memory.to_string().into(),
            self.open_files.to_string().into(),
            self.processor_seconds
                .unwrap_or_default()
                .to_string()
                .into(),
            self.copy.clone().into(),
            command.into(),
            self.file.clone().into(),
            self.label.name.clone().into(),
            self.label.version.clone().into(),
            self.label.sdk.clone().into(),
            self.label.rustc.clone().into(),
            confinement.into(),
        ])
    }

    fn read(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let mut number = || args.next()?.to_str()?.parse::<u64>().ok();
        let parent = u32::try_from(number()?).ok()?;
        let (memory, open_files, processor_seconds) = (number()?, number()?, number()?);
        let copy = args.next()?.into();
        let command = serde_json::from_str(args.next()?.to_str()?).ok()?;
        let file = args.next()?.into();
        let mut text = || args.next()?.into_string().ok();
        let label = LibraryLabel {
            name: text()?,
            version: text()?,
            sdk: text()?,
            rustc: text()?,
        };
        let confinement = serde_json::from_str(&text()?).ok()?;
        let arguments = Self {
            parent: (parent > 0).then_some(parent),
            memory,
            open_files,
            processor_seconds: (processor_seconds > 0).then_some(processor_seconds),
            copy,
            command,
            file,
            label,
            confinement,
        };
        args.next().is_none().then_some(arguments)
    }
}

/// Starts the worker that the host orders, and ends it and all that it leaves behind.
fn supervise() -> Result<(), String> {
    #[cfg(target_os = "linux")]
    close_inherited();
    match conjure_process_tree::supervise() {
        // Whether the worker could be started, the host was told.
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn run(args: impl Iterator<Item = OsString>) -> Result<(), String> {
    let arguments = WorkerArguments::read(args)
        .ok_or("it was not started by a host; this verb is not for people")?;
    #[cfg(target_os = "linux")]
    close_inherited();
    if let Some(command) = &arguments.command {
        return become_program(&arguments, command);
    }
    let streams = platform::take_streams().map_err(|error| error.to_string())?;
    prepare(&arguments)?;
    let root = WorkerRoot::open(&arguments);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()
        .map_err(|error| error.to_string())?;
    serve_streams(runtime, root, streams)
}

/// Serves on threads of its own until the stream ends.
#[cfg(target_os = "linux")]
fn serve_streams(
    runtime: Runtime,
    root: WorkerRoot,
    streams: ProcessStreams,
) -> Result<(), String> {
    let (server, readers, ended) = runtime.block_on(async {
        let (input, output) = streams
            .open_with_raw_input()
            .map_err(|error| error.to_string())?;
        let server = FrameServer::new(root, output);
        let readers = FrameReaders::start(Arc::clone(&server), input);
        let (readers, mut end) = readers.map_err(|error| error.to_string())?;
        let ended = tokio::select! {
            ended = &mut end => ended.unwrap_or(Ok(())),
            written = server.write() => written,
        };
        Ok::<_, String>((server, readers, ended))
    })?;
    server.end();
    // What does not stop is not waited for.
    let until = std::time::Instant::now() + END_TIMEOUT;
    readers.stop(END_TIMEOUT);
    runtime.shutdown_timeout(until.saturating_duration_since(std::time::Instant::now()));
    ended.map_err(|error| error.to_string())
}

#[cfg(not(target_os = "linux"))]
fn serve_streams(
    runtime: Runtime,
    root: WorkerRoot,
    streams: ProcessStreams,
) -> Result<(), String> {
    let served = runtime.block_on(async {
        let (input, output) = streams.open().map_err(|error| error.to_string())?;
        let served = conjure_skill_sdk::frames::serve(root, input, output).await;
        served.map_err(|error| error.to_string())
    });
    runtime.shutdown_timeout(END_TIMEOUT);
    served
}

/// Sets the limits of the worker, and what it may reach.
fn prepare(arguments: &WorkerArguments) -> Result<(), String> {
    die_with_parent(arguments.parent)?;
    set_limits(arguments).map_err(|error| format!("its limits cannot be set: {error}"))?;
    confine(arguments)
}

/// Goes on as the program, which has the streams and the directory of its files.
fn become_program(arguments: &WorkerArguments, command: &[String]) -> Result<(), String> {
    let (program, rest) = command.split_first().ok_or("its command is empty")?;
    std::env::set_current_dir(&arguments.copy)
        .map_err(|error| format!("{}: {error}", arguments.copy.display()))?;
    prepare(arguments)?;
    // Only where it could not be done there is an answer.
    let error = Command::new(program)
        .args(rest)
        .env_remove(ALLOCATOR[0].0)
        // Where its session holds the store it could be written to, and what is added there is removed.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        // What its user installed is not among its files: with it, it would work only here.
        .env("PYTHONNOUSERSITE", "1")
        .env("CONJURE_PROTOCOL", PROTOCOL.to_string())
        .env("CONJURE_PLUGIN", &arguments.label.name)
        .env("CONJURE_PLUGIN_VERSION", &arguments.label.version)
        .exec();
    Err(format!("{program}: {error}"))
}

/// Closes what the host itself was given and passed on without knowing.
#[cfg(target_os = "linux")]
fn close_inherited() {
    #[expect(
        unsafe_code,
        reason = "no safe function closes descriptors that nobody has"
    )]
    // SAFETY: this is the first that `main` does, so nothing in this process has a descriptor above
    // the three of standard streams, which stay.
    unsafe {
        libc::close_range(3, libc::c_uint::MAX, 0);
    }
}

/// Ends this process with the one that started it, whatever the plugin does. One whose supervisor has
/// ended before this ends with the host's stream.
fn die_with_parent(parent: Option<u32>) -> Result<(), String> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| error.to_string())?;
    match parent {
        Some(parent) if std::os::unix::process::parent_id() != parent => {
            Err("its host has ended".to_owned())
        }
        _ => Ok(()),
    }
}

fn set_limits(arguments: &WorkerArguments) -> rustix::io::Result<()> {
    let set_both = |resource, soft_limit: u64, hardly: u64| {
        // A process may lower its limits and not raise them.
        let hard = rustix::process::getrlimit(resource).maximum;
        let lowered = |most: u64| Some(hard.map_or(most, |hard| hard.min(most)));
        rustix::process::setrlimit(
            resource,
            Rlimit {
                current: lowered(soft_limit),
                maximum: lowered(hardly),
            },
        )
    };
    let set = |resource, most: u64| set_both(resource, most, most);
    let more = |kind, bytes: u64| own_memory(kind).saturating_add(bytes);
    set(Resource::Data, more("VmData:", arguments.memory))?;
    // Of what is mapped and not written to, and of memory that is shared, which is no data.
    let mapped = arguments.memory.saturating_add(ADDRESS_SPACE_MARGIN);
    set(Resource::As, more("VmSize:", mapped))?;
    set(Resource::Nofile, arguments.open_files)?;
    if let Some(seconds) = arguments.processor_seconds {
        // The signal at the first of them says what it is for; whoever goes on is killed at the second.
        set_both(Resource::Cpu, seconds, seconds.saturating_add(1))?;
    }
    set(Resource::Core, 0)
}

/// Before the library is opened, so that its constructors are confined too.
fn confine(arguments: &WorkerArguments) -> Result<(), String> {
    let Some(confinement) = &arguments.confinement else {
        return Ok(());
    };
    let gaps = confinement.enter(&arguments.copy);
    let gaps = gaps.map_err(|error| format!("it cannot be confined: {error}"))?;
    if gaps != ConfinementGaps::default() {
        let line = format!("note: this system cannot confine workers wholly: {gaps:?}\n");
        let _ = std::io::stderr().write_all(line.as_bytes());
    }
    Ok(())
}

/// Bytes of a kind of memory that this process has by now, as the system counts them for a limit.
fn own_memory(kind: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(kind));
    let kib = line.and_then(|rest| rest.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

/// The library's root, or why there is none: then that is the answer to every request.
enum WorkerRoot {
    Open { root: RootRef, manifest: Arc<[u8]> },
    Refused(String),
}

impl WorkerRoot {
    fn open(arguments: &WorkerArguments) -> Self {
        let WorkerArguments {
            copy, file, label, ..
        } = arguments;
        match open(file, label, copy, &AtomicU8::new(0)) {
            Ok(library) => Self::Open {
                root: library.root,
                manifest: library.manifest,
            },
            Err(error) => Self::Refused(error.to_string()),
        }
    }
}

impl PluginRoot for WorkerRoot {
    fn manifest(&self) -> Result<Vec<u8>, Fault> {
        match self {
            Self::Open { manifest, .. } => Ok(manifest.to_vec()),
            Self::Refused(reason) => Err(Fault::new(code::FAILED, reason.clone())),
        }
    }

    fn create(&self, create: &[u8], cx: CallContext) -> Result<PluginObject, Fault> {
        match self {
            Self::Open { root, .. } => PluginRoot::create(root, create, cx),
            Self::Refused(reason) => Err(Fault::new(code::FAILED, reason.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_worker_is_told_reads_back_and_nothing_else_does() {
        let arguments = WorkerArguments {
            parent: Some(4711),
            memory: 1 << 31,
            open_files: 1024,
            processor_seconds: Some(3600),
            copy: "/store/a b.so".into(),
            command: Some(vec!["/usr/bin/python3".to_owned(), "a b.py".to_owned()]),
            file: "/plugins/liba.so".into(),
            label: LibraryLabel {
                name: "a".to_owned(),
                version: "1.0.0".to_owned(),
                sdk: "0.1.0".to_owned(),
                rustc: "rustc 1.85.0 (4d91de4e4 2025-02-17)".to_owned(),
            },
            confinement: Some(WorkerConfinement {
                read: vec!["/var/log".into()],
                network: true,
                ..WorkerConfinement::default()
            }),
        };
        for (parent, processor_seconds) in [(Some(4711), None), (None, Some(3600))] {
            let arguments = WorkerArguments {
                parent,
                processor_seconds,
                ..arguments.clone()
            };
            let args = arguments.to_args().unwrap().into_iter();
            assert_eq!(WorkerArguments::read(args), Some(arguments));
        }
        let args = arguments.to_args().unwrap();
        let short = args.iter().take(10).cloned();
        assert_eq!(WorkerArguments::read(short), None);
        let long = args.into_iter().chain([OsString::from("more")]);
        assert_eq!(WorkerArguments::read(long), None);
    }
}
