//! What a plugin in a worker tries beside what its manifest names and its session has. Each attempt
//! is a row; those at files, processes and sockets succeed in a worker that is not confined, so that
//! none passes for another reason.

use std::net::{TcpListener, UdpSocket};
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

    /// A directory outside the session with what attempts need, afresh.
    fn outside(&self, name: &str) -> PathBuf {
        let dir = self.root.path().join(name);
        if dir.exists() {
            std::fs::remove_dir_all(&dir).unwrap();
        }
        std::fs::create_dir_all(dir.join("empty")).unwrap();
        std::fs::write(dir.join("file"), "as it was").unwrap();
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

/// Attempts at a file `{f}` and a directory `{d}` that are not the session's; `{w}` is its directory.
const AT_FILES: [&str; 25] = [
    "read {f}",
    "list {d}",
    "write {f}",
    "write {d}/new",
    "append {f}",
    "truncate {f}",
    "remove {f}",
    "make-dir {d}/new",
    "remove-dir {d}/empty",
    "rename {f} {w}/taken",
    "rename {f} {d}/moved",
    "hard-link {f} {w}/linked",
    "hard-link {f} {d}/linked",
    "link-read {f} {w}/link",
    "link-write {f} {w}/link",
    "make-link {d}/link",
    "chmod {f}",
    "xattr {f}",
    "chown {f}",
    "pipe {d}/pipe",
    "copy {f} {w}/copy",
    "read {w}/../{n}/file",
    "write {w}/../{n}/file",
    "read /proc/self/root{f}",
    "read /proc/self/cwd/../../../../../../../../../..{f}",
];

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_not_the_sessions_are_out_of_reach() {
    let scene = Scene::new().await;
    let is_root = rustix::process::getuid().is_root();
    // A neighbour's session, a person's keys, and a directory that everybody may write to.
    for name in ["another-session", "home/.ssh", "everybody"] {
        for attempt in AT_FILES {
            if attempt.starts_with("chown") && !is_root {
                continue;
            }
            // Not every file system of temporary files has attributes.
            let has_attributes = !attempt.starts_with("xattr");
            let fill = |dir: &Path| {
                for left in std::fs::read_dir(&scene.work).unwrap().flatten() {
                    std::fs::remove_file(left.path()).unwrap();
                }
                attempt
                    .replace("{f}", dir.join("file").to_str().unwrap())
                    .replace("{d}", dir.to_str().unwrap())
                    .replace("{w}", scene.work.to_str().unwrap())
                    .replace("{n}", name)
            };
            let dir = scene.outside(name);
            scene.refused(&fill(&dir)).await;
            let file = std::fs::read_to_string(dir.join("file")).unwrap();
            assert_eq!(file, "as it was", "{attempt}");
            let names = std::fs::read_dir(&dir).unwrap().count();
            assert_eq!(names, 2, "{attempt}");
            assert!(std::fs::metadata(scene.work.join("copy")).map_or(0, |m| m.len()) == 0);
            if has_attributes {
                scene.works(&fill(&scene.outside(name))).await;
            }
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
    let data = data.display();
    let mut rows = vec![format!("list {data}"), format!("list {store}")];
    for name in ["vault.key", "conjure.db", "conjure.db-wal", "token"] {
        rows.push(format!("read {data}/{name}"));
        rows.push(format!("append {data}/{name}"));
    }
    // Its own library, which the host opens again, and another plugin's.
    let sha256 = scene.plugin.id().sha256.unwrap();
    rows.push(format!("append {store}/{sha256}.so"));
    rows.push(format!("write {store}/other.so"));
    rows.push(format!(
        "append {}",
        scene.bench.dir.join("libprober.so").display()
    ));
    rows.push(format!(
        "write {}",
        scene.bench.dir.join("libnew.so").display()
    ));
    for row in rows {
        scene.refused(&row).await;
        scene.works(&row).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_systems_settings_and_devices_are_out_of_reach() {
    let scene = Scene::new().await;
    let mut rows: Vec<String> = [
        "/etc/shadow",
        "/etc/sudoers",
        "/etc/ssh",
        "/root",
        "/home",
        "/var/log",
        "/var/lib",
        "/run",
        "/tmp",
        "/dev",
        "/proc",
        "/sys",
        "/sys/class",
        "/boot",
        "/",
    ]
    .iter()
    .filter(|path| std::fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()))
    .map(|path| format!("list {path}"))
    .collect();
    for path in [
        "/etc/shadow",
        "/proc/1/environ",
        "/proc/1/maps",
        "/proc/kallsyms",
    ] {
        if std::fs::read(path).is_ok() {
            rows.push(format!("read {path}"));
        }
    }
    for row in rows {
        scene.refused(&row).await;
        scene.works(&row).await;
    }
    for path in [
        "/etc", "/usr", "/usr/lib", "/dev/shm", "/tmp", "/var/tmp", "/run",
    ] {
        scene.refused(&format!("write {path}/conjure-prober")).await;
        assert!(!Path::new(path).join("conjure-prober").exists());
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
        for row in ["kill", "priority"] {
            scene.refused(&format!("{row} {process}")).await;
            // The priority of the test itself stays.
            if process == bystander.0.id() {
                scene.works(&format!("{row} {process}")).await;
            }
        }
        for file in ["environ", "cmdline", "maps", "status", "mem"] {
            let row = format!("read /proc/{process}/{file}");
            scene.refused(&row).await;
            if file != "mem" {
                scene.works(&row).await;
            }
        }
        for list in ["fd", "task", "root", "cwd"] {
            let row = format!("list /proc/{process}/{list}");
            scene.refused(&row).await;
            scene.works(&row).await;
        }
    }
    for program in ["/bin/true", "/usr/bin/env", "/bin/sh"] {
        scene.refused(&format!("run {program}")).await;
        scene.works(&format!("run {program}")).await;
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
    let rows = [
        format!("tcp {}", tcp.local_addr().unwrap()),
        format!("udp {}", udp.local_addr().unwrap()),
        "listen 127.0.0.1:0".to_owned(),
        "listen 0.0.0.0:0".to_owned(),
        format!("unix {}", path.display()),
        format!("unix-datagram {}", datagrams.display()),
        format!("socket-file {}/own.sock", scene.work.display()),
    ];
    for row in rows {
        scene.refused(&row).await;
        scene.works(&row).await;
    }
    // Families: unix, inet, netlink, packet, vsock, and the kernel's cryptography.
    for family in [1, 2, 10, 16, 17, 40, 38] {
        for kind in [1, 2, 3] {
            let row = format!("call {} {family} {kind} 0", libc::SYS_socket);
            scene.refused(&row).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_kernels_other_doors_are_shut() {
    let scene = Scene::new().await;
    for call in [
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_process_madvise,
        libc::SYS_pidfd_getfd,
        libc::SYS_kcmp,
        libc::SYS_sched_setscheduler,
        libc::SYS_ioprio_set,
        libc::SYS_sched_setparam,
        libc::SYS_pidfd_send_signal,
        libc::SYS_shmget,
        libc::SYS_shmat,
        libc::SYS_msgget,
        libc::SYS_semget,
        libc::SYS_mq_open,
        libc::SYS_memfd_create,
        463,
        466,
        469,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_move_mount,
        libc::SYS_open_tree,
        libc::SYS_fsopen,
        libc::SYS_fsmount,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_acct,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_sethostname,
        libc::SYS_setdomainname,
        libc::SYS_quotactl,
        libc::SYS_syslog,
        libc::SYS_personality,
        libc::SYS_fanotify_init,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        libc::SYS_fchmodat,
        libc::SYS_fchownat,
        libc::SYS_setxattr,
        libc::SYS_execve,
        libc::SYS_execveat,
    ] {
        // Without arguments none of them does anything, confined or not.
        let outcome = scene.outcome(&format!("call {call}")).await;
        assert_eq!(outcome, "error 1", "system call {call}");
        if cfg!(target_arch = "x86_64") {
            // The same by the interface with 32-bit pointers.
            let outcome = scene.outcome(&format!("call {}", call | 0x4000_0000)).await;
            assert_eq!(outcome, "error 1", "system call {call}, x32");
        }
    }
    // A namespace of its own, with the flags of `clone` for users, mounts, processes and network.
    for flag in [0x1000_0000, 0x2_0000, 0x2000_0000, 0x4000_0000] {
        scene
            .refused(&format!("call {} {flag}", libc::SYS_clone))
            .await;
    }
    // A pair of sockets that could send to any other, and to outlive the host.
    for kind in [2, 3, 2 | 0x800, 2 | 0x8_0000] {
        let pair = format!("call {} 1 {kind} 0 0", libc::SYS_socketpair);
        assert_eq!(scene.outcome(&pair).await, "error 1", "{pair}");
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
        place: Some(place),
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
