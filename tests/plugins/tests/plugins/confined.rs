//! What a plugin in a worker tries beside what its manifest names and its session has. Each attempt
//! is a row; those at files, processes and sockets succeed in a worker that is not confined, so that
//! none passes for another reason.

use std::fs::Permissions;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use conjure_host::plugin::{
    Instance, InstanceDirs, Isolation, LoadedPlugin, LoaderOptions, NoServices, PluginError,
    WorkerOptions,
};
use conjure_kit::conjure_bin;
use conjure_plugin_tests::{Bench, Plugin};
use rustix::fs::{XattrFlags, setxattr};

use crate::attempts::{
    AT_FILES, AT_PROCESSES, AT_SOCKETS, CALLS, CALLS_THAT_SEEM_TO_BE_MISSING, KEPT,
    NEW_IN_THE_SYSTEM, PLACES, PROGRAMS, SYSTEM_DIRS, SYSTEM_FILES, calls_with_arguments,
    socket_calls,
};

const PROBER: &str = include_str!("prober/lib.rs");

/// The errors of an attempt that is refused: not permitted, access denied, and another device, which
/// a rename to where nothing may be made is.
const REFUSED: [&str; 3] = ["error 1", "error 13", "error 18"];

/// A host with the prober, a session's directory, and places that are not the session's.
pub(crate) struct Scene {
    bench: Bench,
    root: tempfile::TempDir,
    plugin: Arc<LoadedPlugin>,
    confined: Arc<Instance>,
    unconfined: Arc<Instance>,
    pub(crate) work: PathBuf,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let work = root.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let bench = bench(true);
        let plugin = bench.load(&library());
        let confined = instance(&plugin, &work).await;
        let unconfined = {
            let plugin = bench_of(bench.root.path(), false);
            instance(&plugin, &work).await
        };
        Self {
            bench,
            root,
            plugin,
            confined,
            unconfined,
            work,
        }
    }

    /// A place outside the session with what attempts need, afresh.
    pub(crate) fn outside(&self, (name, mode): (&str, u32)) -> PathBuf {
        let dir = self.root.path().join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).unwrap();
        }
        std::fs::create_dir_all(dir.join("empty")).unwrap();
        std::fs::write(dir.join("file"), "as it was").unwrap();
        for (path, mode) in [(&dir, mode), (&dir.join("file"), mode & 0o666)] {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        }
        dir
    }

    pub(crate) async fn outcome(&self, attempt: &str) -> String {
        Bench::execute(&self.confined, attempt).await.unwrap()
    }

    pub(crate) async fn refused(&self, attempt: &str) {
        let outcome = self.outcome(attempt).await;
        assert!(
            REFUSED.contains(&outcome.as_str()),
            "`{attempt}`: {outcome}"
        );
    }

    pub(crate) async fn works(&self, attempt: &str) {
        let outcome = Bench::execute(&self.unconfined, attempt).await.unwrap();
        assert_eq!(
            outcome, "done",
            "`{attempt}` shows nothing: it fails unconfined too"
        );
    }
}

/// Whether the file system of a file has attributes of users: not every one of temporary files has. The
/// file has the attribute `user.x` then.
pub(crate) fn takes_attributes(file: &Path) -> bool {
    setxattr(file, "user.x", b"x", XattrFlags::empty()).is_ok()
}

/// The prober.
pub(crate) fn library() -> PathBuf {
    Plugin::new("prober", PROBER).build()
}

/// The prober, whose manifest asks to start programs.
pub(crate) fn library_that_starts_programs() -> PathBuf {
    let permissions = ".permissions(conjure_skill_sdk::protocol::Permissions { \
         commands: true, ..Default::default() })\n}\n\nfn attempt(";
    let source = PROBER.replace("\n}\n\nfn attempt(", permissions);
    Plugin::new("prober-with-commands", &source).build()
}

fn options(confined: bool) -> LoaderOptions {
    let workers = WorkerOptions::new(conjure_bin().unwrap(), &["plugin-host"]);
    LoaderOptions {
        worker: Some(WorkerOptions {
            isolation: Isolation::Process,
            confined,
            ..workers
        }),
        ..LoaderOptions::default()
    }
}

pub(crate) fn bench(confined: bool) -> Bench {
    Bench::with(options(confined))
}

/// The plugin as another host in the same place loads it.
fn bench_of(root: &Path, confined: bool) -> Arc<LoadedPlugin> {
    let store = conjure_host::plugin::CopyStore::open(root.join("other-store")).unwrap();
    let loader = conjure_host::plugin::Loader::new(store, options(confined));
    Arc::new(loader.load(&library(), true).unwrap())
}

pub(crate) async fn instance(plugin: &Arc<LoadedPlugin>, work: &Path) -> Arc<Instance> {
    plugin
        .create_in(
            &Bench::create(),
            Arc::new(NoServices),
            &InstanceDirs::of_work(&[work]),
        )
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_not_the_sessions_are_out_of_reach() {
    let scene = Scene::new().await;
    let is_root = rustix::process::getuid().is_root();
    for place in PLACES {
        for attempt in AT_FILES {
            if attempt.starts_with("chown") && !is_root {
                continue;
            }
            let fill = |dir: &Path| {
                for left in std::fs::read_dir(&scene.work).unwrap().flatten() {
                    std::fs::remove_file(left.path()).unwrap();
                }
                attempt
                    .replace("{f}", dir.join("file").to_str().unwrap())
                    .replace("{d}", dir.to_str().unwrap())
                    .replace("{w}", scene.work.to_str().unwrap())
                    .replace("{n}", place.0)
            };
            let dir = scene.outside(place);
            scene.refused(&fill(&dir)).await;
            let file = std::fs::read_to_string(dir.join("file")).unwrap();
            assert_eq!(file, "as it was", "{attempt}");
            let names = std::fs::read_dir(&dir).unwrap().count();
            assert_eq!(names, 2, "{attempt}");
            assert!(std::fs::metadata(scene.work.join("copy")).map_or(0, |m| m.len()) == 0);
            scene.works(&fill(&scene.outside(place))).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_host_keeps_is_out_of_reach() {
    let scene = Scene::new().await;
    let data = scene.bench.root.path();
    for name in ["vault.key", "conjure.db", "conjure.db-wal", "token"] {
        std::fs::write(data.join(name), "a secret").unwrap();
    }
    let store = scene.bench.loader.store().dir().display().to_string();
    let sha256 = scene.plugin.id().sha256.unwrap().to_string();
    let rows = KEPT.map(|row| {
        row.replace("{data}", data.to_str().unwrap())
            .replace("{store}", &store)
            .replace("{own}", &sha256)
            .replace("{build}", scene.bench.dir.to_str().unwrap())
    });
    for row in rows {
        scene.refused(&row).await;
        scene.works(&row).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_systems_settings_and_devices_are_out_of_reach() {
    let scene = Scene::new().await;
    let dirs = SYSTEM_DIRS
        .iter()
        .filter(|path| std::fs::read_dir(path).is_ok())
        .map(|path| format!("list {path}"));
    let files = SYSTEM_FILES
        .iter()
        .filter(|path| std::fs::read(path).is_ok())
        .map(|path| format!("read {path}"));
    for row in dirs.chain(files) {
        scene.refused(&row).await;
        scene.works(&row).await;
    }
    for row in NEW_IN_THE_SYSTEM {
        scene.refused(row).await;
        let path = row.trim_start_matches("write ");
        assert!(!Path::new(path).exists(), "{row}");
    }
    let device = scene.work.join("disk").display().to_string();
    scene.refused(&format!("device {device}")).await;
}

/// A process that is not the plugin's, which ends with the test.
struct Bystander(Child);

impl Bystander {
    fn new() -> Self {
        let mut command = Command::new("sleep");
        command.arg("1000").env("BYSTANDERS_KEY", "a secret");
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_processes_are_out_of_reach() {
    let scene = Scene::new().await;
    let bystander = Bystander::new();
    for process in [bystander.0.id(), std::process::id()] {
        for row in AT_PROCESSES {
            let row = row.replace("{p}", &process.to_string());
            scene.refused(&row).await;
            // The priority of the test itself stays; memory is nothing to read from its beginning.
            let harms = process == std::process::id() && row.starts_with("priority");
            if !harms && !row.ends_with("/mem") {
                scene.works(&row).await;
            }
        }
    }
    for row in PROGRAMS {
        scene.refused(row).await;
        scene.works(row).await;
    }
    scene.refused("fork").await;
    scene.works("fork").await;
    // What every plugin may: a thread.
    for instance in [&scene.confined, &scene.unconfined] {
        assert_eq!(Bench::execute(instance, "thread").await.unwrap(), "done");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_and_the_sockets_of_this_machine_are_out_of_reach() {
    let scene = Scene::new().await;
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let path = scene.root.path().join("engine.sock");
    let _engine = UnixListener::bind(&path).unwrap();
    let datagrams = scene.root.path().join("log.sock");
    let _log = UnixDatagram::bind(&datagrams).unwrap();
    let rows = AT_SOCKETS.map(|row| {
        row.replace("{tcp}", &tcp.local_addr().unwrap().to_string())
            .replace("{udp}", &udp.local_addr().unwrap().to_string())
            .replace("{unix}", path.to_str().unwrap())
            .replace("{log}", datagrams.to_str().unwrap())
            .replace("{w}", scene.work.to_str().unwrap())
    });
    for row in rows {
        scene.refused(&row).await;
        scene.works(&row).await;
    }
    for row in socket_calls() {
        scene.refused(&row).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernels_other_doors_are_shut() {
    let scene = Scene::new().await;
    let calls = CALLS.iter().map(|call| (*call, 1));
    for (call, error) in calls.chain(CALLS_THAT_SEEM_TO_BE_MISSING) {
        // Without arguments none of them does anything, confined or not.
        let outcome = scene.outcome(&format!("call {call}")).await;
        assert_eq!(outcome, format!("error {error}"), "system call {call}");
        if cfg!(target_arch = "x86_64") {
            // The same by the interface with 32-bit pointers.
            let outcome = scene.outcome(&format!("call {}", call | 0x4000_0000)).await;
            assert_eq!(outcome, format!("error {error}"), "system call {call}, x32");
        }
    }
    for row in calls_with_arguments() {
        assert_eq!(scene.outcome(&row).await, "error 1", "{row}");
    }
    scene
        .refused(&format!("call {} 1 0", libc::SYS_prctl))
        .await;
    scene.works(&format!("call {} 1 0", libc::SYS_prctl)).await;
    // Told that it is done, and not made: the kernel refuses a mask without bytes.
    let pin = format!(
        "call {} {} 0 0",
        libc::SYS_sched_setaffinity,
        std::process::id()
    );
    assert_eq!(scene.outcome(&pin).await, "done");
    // The limits of the test itself.
    let limits = format!("call {} {} 7 0 0", libc::SYS_prlimit64, std::process::id());
    scene.refused(&limits).await;
    scene.works(&limits).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_environment_is_not_the_plugins() {
    let scene = Scene::new().await;
    for (name, _) in std::env::vars_os() {
        let name = name.into_string().unwrap();
        let is_usual = ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ"]
            .contains(&name.as_str())
            || ["LANG", "LC_", "XDG_RUNTIME_DIR"]
                .iter()
                .any(|beginning| name.starts_with(beginning));
        if !is_usual {
            let outcome = scene.outcome(&format!("variable {name}")).await;
            assert_eq!(outcome, "error 2", "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_the_sessions_can_be_worked_with() {
    let scene = Scene::new().await;
    let work = scene.work.display();
    std::fs::write(scene.work.join("given"), "x").unwrap();
    for row in [
        format!("read {work}/given"),
        format!("write {work}/new"),
        format!("append {work}/new"),
        format!("copy {work}/given {work}/copied"),
        format!("make-dir {work}/dir"),
        format!("rename {work}/new {work}/dir/moved"),
        format!("hard-link {work}/dir/moved {work}/linked"),
        format!("list {work}/dir"),
        format!("pipe {work}/pipe"),
        format!("remove {work}/linked"),
        "read /etc/hosts".to_owned(),
        "list /usr/lib".to_owned(),
        "read /proc/self/status".to_owned(),
        "write /dev/null".to_owned(),
    ] {
        let outcome = scene.outcome(&row).await;
        assert_eq!(outcome, "done", "`{row}`");
    }
    assert_eq!(std::fs::read(scene.work.join("copied")).unwrap(), b"x");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_gets_what_it_names_and_no_more() {
    let shared = tempfile::tempdir().unwrap();
    let dir = shared.path().canonicalize().unwrap();
    for name in ["read-only", "own", "neither"] {
        std::fs::create_dir(dir.join(name)).unwrap();
        std::fs::write(dir.join(name).join("file"), "x").unwrap();
    }
    let permissions = format!(
        ".permissions(conjure_skill_sdk::protocol::Permissions {{ \
         read: vec![\"{0}/read-only\".into()], write: vec![\"{0}/own\".into()], \
         network: true, commands: true, ..Default::default() }})\n}}\n\nfn attempt(",
        dir.display()
    );
    let source = PROBER.replace("\n}\n\nfn attempt(", &permissions);
    let place = dir.join("crate");
    let library = Plugin {
        dir: Some(place),
        ..Plugin::new("prober-with-permissions", &source)
    }
    .build();
    // Where the directory is the host's own, the plugin makes no instance and the reason says so.
    let store = conjure_host::plugin::CopyStore::open(shared.path().join("own/store")).unwrap();
    let loader = conjure_host::plugin::Loader::new(store, options(true));
    let refused = Arc::new(loader.load(&library, true).unwrap())
        .create(&Bench::create(), Arc::new(NoServices))
        .await
        .unwrap_err();
    assert!(
        matches!(&refused, PluginError::NotGranted { reason, .. } if reason.contains("keeps its own")),
        "{refused}"
    );
    let bench = bench(true);
    let plugin = bench.load(&library);
    let work = tempfile::tempdir().unwrap();
    let instance = instance(&plugin, work.path()).await;
    let outcome = async |row: String| Bench::execute(&instance, &row).await.unwrap();
    let dir = dir.display();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for row in [
        format!("read {dir}/read-only/file"),
        format!("write {dir}/own/new"),
        format!("tcp {}", listener.local_addr().unwrap()),
        "run /bin/true".to_owned(),
    ] {
        assert_eq!(outcome(row.clone()).await, "done", "{row}");
    }
    // Whoever unpacks a file sets its times, and goes on where they stay as they are.
    let modified = || std::fs::metadata(format!("{dir}/read-only/file")).and_then(|f| f.modified());
    let before = modified().unwrap();
    let times = format!("times {dir}/read-only/file");
    assert_eq!(outcome(times).await, "done");
    assert_eq!(modified().unwrap(), before);
    for row in [
        format!("write {dir}/read-only/file"),
        format!("read {dir}/neither/file"),
        format!("unix {dir}/none.sock"),
        "read /proc/1/environ".to_owned(),
        "read /proc/1/maps".to_owned(),
        format!("read /proc/{}/environ", std::process::id()),
        format!("read /proc/{}/maps", std::process::id()),
        format!("list /proc/{}/root", std::process::id()),
        "read /proc/kmsg".to_owned(),
        "write /proc/self/oom_score_adj".to_owned(),
        format!("call {} 0x1", libc::SYS_unshare).replace("0x", ""),
        format!("call {}", libc::SYS_mount),
    ] {
        let outcome = outcome(row.clone()).await;
        assert!(REFUSED.contains(&outcome.as_str()), "`{row}`: {outcome}");
    }
}
