//! The list of what a plugin in a worker tries beside what its manifest names and its session has: rows
//! for the prober, in which `{…}` stands for what a test makes.

use std::collections::BTreeSet;

/// Places that are not the session's, with their modes: a neighbour's session, a person's keys, and a
/// directory that everybody may write to.
pub(crate) const PLACES: [(&str, u32); 3] = [
    ("another-session", 0o755),
    ("home/.ssh", 0o700),
    ("everybody", 0o777),
];

/// Attempts at a file `{f}` and a directory `{d}` in such a place; `{w}` is the session's directory.
pub(crate) const AT_FILES: [&str; 24] = [
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
    "chown {f}",
    "pipe {d}/pipe",
    "copy {f} {w}/copy",
    "read {w}/../{n}/file",
    "write {w}/../{n}/file",
    "read /proc/self/root{f}",
    "read /proc/self/cwd/../../../../../../../../../..{f}",
];

/// Attempts at attributes of these and to learn what others do with them, and the error of each, as from a
/// file system without attributes and a kernel that watches nothing.
pub(crate) const ABOUT_FILES: [(&str, i32); 8] = [
    ("set-attribute {f}", libc::ENOTSUP),
    ("get-attribute {f}", libc::ENOTSUP),
    ("get-attribute-of-link {f}", libc::ENOTSUP),
    ("list-attributes {f}", libc::ENOTSUP),
    ("list-attributes {d}", libc::ENOTSUP),
    ("list-attributes-of-link {f}", libc::ENOTSUP),
    ("watch {f}", libc::ENOSYS),
    ("watch {d}", libc::ENOSYS),
];

/// Attempts at what the host keeps: its data, its store of libraries with the prober's own, and the
/// directory in which another plugin was built.
pub(crate) const KEPT: [&str; 14] = [
    "list {data}",
    "list {store}",
    "read {data}/vault.key",
    "append {data}/vault.key",
    "read {data}/conjure.db",
    "append {data}/conjure.db",
    "read {data}/conjure.db-wal",
    "append {data}/conjure.db-wal",
    "read {data}/token",
    "append {data}/token",
    "append {store}/{own}.so",
    "write {store}/other.so",
    "append {build}/libprober.so",
    "write {build}/libnew.so",
];

/// Directories that are listed where the user of the test may.
pub(crate) const SYSTEM_DIRS: [&str; 14] = [
    "/etc/sudoers.d",
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
];

/// Files that are read where the user of the test may.
pub(crate) const SYSTEM_FILES: [&str; 5] = [
    "/etc/shadow",
    "/etc/sudoers",
    "/proc/1/environ",
    "/proc/1/maps",
    "/proc/kallsyms",
];

/// New files where the system has its own.
pub(crate) const NEW_IN_THE_SYSTEM: [&str; 7] = [
    "write /etc/conjure-prober",
    "write /usr/conjure-prober",
    "write /usr/lib/conjure-prober",
    "write /dev/shm/conjure-prober",
    "write /tmp/conjure-prober",
    "write /var/tmp/conjure-prober",
    "write /run/conjure-prober",
];

/// Attempts at another process `{p}`.
pub(crate) const AT_PROCESSES: [&str; 11] = [
    "kill {p}",
    "priority {p}",
    "read /proc/{p}/environ",
    "read /proc/{p}/cmdline",
    "read /proc/{p}/maps",
    "read /proc/{p}/status",
    "read /proc/{p}/mem",
    "list /proc/{p}/fd",
    "list /proc/{p}/task",
    "list /proc/{p}/root",
    "list /proc/{p}/cwd",
];

/// Programs that are started.
pub(crate) const PROGRAMS: [&str; 3] = ["run /bin/true", "run /usr/bin/env", "run /bin/sh"];

/// Attempts at sockets, of which each but those that are made is one of the test's.
pub(crate) const AT_SOCKETS: [&str; 7] = [
    "tcp {tcp}",
    "udp {udp}",
    "listen 127.0.0.1:0",
    "listen 0.0.0.0:0",
    "unix {unix}",
    "unix-datagram {log}",
    "socket-file {w}/own.sock",
];

/// Numbers of system calls that the C library's list does not have yet.
const SET_ATTRIBUTE_AT: i64 = 463;
const GET_ATTRIBUTE_AT: i64 = 464;
const LIST_ATTRIBUTES_AT: i64 = 465;
const REMOVE_ATTRIBUTE_AT: i64 = 466;
const GET_FILE_ATTRIBUTES: i64 = 468;
const SET_FILE_ATTRIBUTES: i64 = 469;

/// System calls that are not permitted, whatever their arguments are.
pub(crate) const CALLS: [i64; 55] = [
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
    libc::SYS_execve,
    libc::SYS_execveat,
];

/// System calls that are answered as if the file system or the kernel did not have them, with the error
/// of each: programs go on without.
pub(crate) const CALLS_THAT_SEEM_TO_BE_MISSING: [(i64, i32); 22] = [
    (libc::SYS_setxattr, libc::ENOTSUP),
    (libc::SYS_lsetxattr, libc::ENOTSUP),
    (libc::SYS_fsetxattr, libc::ENOTSUP),
    (libc::SYS_getxattr, libc::ENOTSUP),
    (libc::SYS_lgetxattr, libc::ENOTSUP),
    (libc::SYS_fgetxattr, libc::ENOTSUP),
    (libc::SYS_listxattr, libc::ENOTSUP),
    (libc::SYS_llistxattr, libc::ENOTSUP),
    (libc::SYS_flistxattr, libc::ENOTSUP),
    (libc::SYS_removexattr, libc::ENOTSUP),
    (libc::SYS_lremovexattr, libc::ENOTSUP),
    (libc::SYS_fremovexattr, libc::ENOTSUP),
    (SET_ATTRIBUTE_AT, libc::ENOTSUP),
    (GET_ATTRIBUTE_AT, libc::ENOTSUP),
    (LIST_ATTRIBUTES_AT, libc::ENOTSUP),
    (REMOVE_ATTRIBUTE_AT, libc::ENOTSUP),
    (GET_FILE_ATTRIBUTES, libc::ENOTSUP),
    (SET_FILE_ATTRIBUTES, libc::ENOTSUP),
    (libc::SYS_inotify_add_watch, libc::ENOSYS),
    (libc::SYS_fanotify_mark, libc::ENOSYS),
    (libc::SYS_clone3, libc::ENOSYS),
    (libc::SYS_openat2, libc::ENOSYS),
];

/// Attempts to make a socket, by family and kind: unix, inet, netlink, packet, vsock, and the kernel's
/// cryptography.
pub(crate) fn socket_calls() -> Vec<String> {
    let families = [1, 2, 10, 16, 17, 40, 38].into_iter();
    families
        .flat_map(|family| [1, 2, 3].map(|kind| (family, kind)))
        .map(|(family, kind)| format!("call {} {family} {kind} 0", libc::SYS_socket))
        .collect()
}

/// System calls that are not permitted with these arguments.
pub(crate) fn calls_with_arguments() -> Vec<String> {
    // A namespace of its own, with the flags of `clone` for users, mounts, processes and network.
    let flags = [0x1000_0000, 0x2_0000, 0x2000_0000, 0x4000_0000];
    let namespaces = flags.map(|flag| format!("call {} {flag}", libc::SYS_clone));
    // A pair of sockets that could send to any other.
    let kinds = [2, 3, 2 | 0x800, 2 | 0x8_0000];
    let pairs = kinds.map(|kind| format!("call {} 1 {kind} 0 0", libc::SYS_socketpair));
    [namespaces, pairs].concat()
}

/// The rows that are tried on every machine and by every user, as often as each is in the list.
fn rows() -> Vec<String> {
    let about = ABOUT_FILES.map(|(row, _)| row);
    let at_files = AT_FILES.iter().chain(&about);
    let at_files = at_files.filter(|row| !row.starts_with("chown"));
    let at_places = PLACES
        .iter()
        .flat_map(|(place, _)| at_files.clone().map(move |row| format!("{place}: {row}")));
    let at_processes = ["a bystander", "the host"].into_iter();
    let at_processes = at_processes.flat_map(|process| {
        let rows = AT_PROCESSES.into_iter();
        rows.map(move |row| row.replace("{p}", process))
    });
    let fixed = KEPT.iter().chain(&NEW_IN_THE_SYSTEM);
    let fixed = fixed.chain(&PROGRAMS).chain(&AT_SOCKETS);
    let missing = CALLS_THAT_SEEM_TO_BE_MISSING.map(|(call, _)| call);
    let calls = CALLS.into_iter().chain(missing);
    at_places
        .chain(at_processes)
        .chain(fixed.map(|row| (*row).to_owned()))
        .chain(calls.map(|call| format!("call {call}")))
        .chain(socket_calls())
        .chain(calls_with_arguments())
        .collect()
}

#[test]
fn no_attempt_is_in_the_list_twice_and_there_are_two_hundred() {
    let rows = rows();
    let distinct: BTreeSet<&String> = rows.iter().collect();
    assert_eq!(distinct.len(), rows.len());
    // Those at files count once here, not once for each place.
    let elsewhere = (PLACES.len() - 1) * (AT_FILES.len() - 1 + ABOUT_FILES.len());
    assert!(rows.len() - elsewhere >= 170, "{}", rows.len() - elsewhere);
    assert!(rows.len() >= 200, "{}", rows.len());
}
