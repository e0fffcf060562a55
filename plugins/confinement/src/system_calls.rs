//! System calls that a worker may not make, and those that commands in a sandbox may not.
//!
//! Lists of what is refused, since a plugin or a command may need any ordinary call: what reaches other
//! processes, the network, the kernel's own settings, and what Landlock does not know of files.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{Sandbox, WorkerConfinement};

/// The kernel and the machine, and ways to them that no filter can look into: refused to all.
const DENIED_TO_ALL: &[i64] = &[
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    // Files by another way than their names.
    libc::SYS_open_by_handle_at,
];

/// Refused to every worker beside those.
const DENIED_TO_WORKERS: &[i64] = &[
    // Other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_setpriority,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setattr,
    libc::SYS_sched_setparam,
    libc::SYS_memfd_secret,
    libc::SYS_ioprio_set,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // Namespaces and mounts.
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_personality,
    // What Landlock does not know of names.
    libc::SYS_name_to_handle_at,
    libc::SYS_fchmodat,
    SYS_FCHMODAT2,
    libc::SYS_fchownat,
    libc::SYS_fchown,
];

/// Attributes of files, which Landlock does not know of: refused to every worker and to what it starts,
/// as a file system without attributes refuses them. `ls` and `cp` go on then.
const ATTRIBUTES_OF_FILES: &[i64] = &[
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_getxattr,
    libc::SYS_lgetxattr,
    libc::SYS_fgetxattr,
    SYS_GETXATTRAT,
    libc::SYS_listxattr,
    libc::SYS_llistxattr,
    libc::SYS_flistxattr,
    SYS_LISTXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    SYS_FILE_GETATTR,
    SYS_FILE_SETATTR,
];

/// Memory, semaphores and queues that processes share by number or name: refused to workers, and to a
/// sandbox that shares them with others.
const SHARED_BY_NAME: &[i64] = &[
    libc::SYS_shmget,
    libc::SYS_shmat,
    libc::SYS_shmctl,
    libc::SYS_msgget,
    libc::SYS_msgsnd,
    libc::SYS_msgrcv,
    libc::SYS_msgctl,
    libc::SYS_semget,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_semctl,
    libc::SYS_mq_open,
    libc::SYS_mq_unlink,
];

/// What share of the machine a process gets: with each call the first arguments that mean the one that
/// asks.
const SHARES_OF_THE_MACHINE: &[(i64, &[u64])] = &[
    (libc::SYS_prlimit64, &[0]),
    // A process, not a group of them or a user.
    (libc::SYS_setpriority, &[0, 0]),
    (libc::SYS_ioprio_set, &[1, 0]),
];

/// How and where a thread runs; the first argument is 0 for the one that asks. The C library gives the
/// thread's number even then, which a filter cannot tell from another's. So a program that pins a thread
/// is told that it did, and goes on.
const SCHEDULING: &[i64] = &[
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_setscheduler,
    libc::SYS_sched_setparam,
    libc::SYS_sched_setattr,
];

/// What is refused to every worker on x86-64, where older calls are.
#[cfg(target_arch = "x86_64")]
const TO_WORKERS_HERE: &[i64] = &[
    libc::SYS_chmod,
    libc::SYS_chown,
    libc::SYS_lchown,
    libc::SYS_utime,
    libc::SYS_utimes,
    libc::SYS_futimesat,
    libc::SYS_modify_ldt,
    // The names of the older of the two 32-bit interfaces; the other one ends the process.
    X32 | 520,
    X32 | 521,
    X32 | 528,
    X32 | 533,
    X32 | 539,
    X32 | 540,
    X32 | 545,
];
#[cfg(not(target_arch = "x86_64"))]
const TO_WORKERS_HERE: &[i64] = &[];

/// Refused to those that start no programs, unless they become one.
const EXEC_CALLS: &[i64] = &[libc::SYS_execve, libc::SYS_execveat];

/// Refused to those that start no programs: processes, signals by other names than those below, and
/// memory that no limit counts. Each program that is started has limits of its own in any case.
const COMMANDS: &[i64] = &[
    libc::SYS_pidfd_send_signal,
    libc::SYS_tkill,
    libc::SYS_memfd_create,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_vfork,
];

/// Notices of what others do with files, which Landlock does not know of: refused to those that start no
/// programs, as a kernel without such notices refuses them. Programs that build or follow files watch them.
const WATCHES: &[i64] = &[libc::SYS_inotify_add_watch, libc::SYS_fanotify_mark];

/// Signals to a process, the first argument; for those that start no programs to themselves only.
const SIGNALS: &[i64] = &[
    libc::SYS_kill,
    libc::SYS_tgkill,
    libc::SYS_rt_sigqueueinfo,
    libc::SYS_rt_tgsigqueueinfo,
];

/// Requests to the system of a file, which is named by what is open: its attributes, its project and
/// its version. Some work on what is only open for reading.
const ATTRIBUTES: [u32; 5] = [
    0x4008_6602, // FS_IOC_SETFLAGS
    0x4004_6602, // the same of 32-bit programs
    0x401c_5820, // FS_IOC_FSSETXATTR
    0x4008_7602, // FS_IOC_SETVERSION
    0x4008_6604, // the same of ext4
];

/// Calls that make a file, with the number of the argument that is its mode; a directory gets no such
/// bits of its mode.
const FILE_CREATING_CALLS: &[(i64, u8)] = &[
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// Calls that open a file and may make it, with the number of the argument that has the flags; the
/// mode is behind it. A worker does not have `openat2`, which has both in memory, where a filter cannot
/// look.
const OPENS: &[(i64, u8)] = &[
    (libc::SYS_openat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1),
];

/// Set in the numbers of calls of the interface `x32`, which a kernel may have.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;

/// `ioctl` of that interface has a number of its own.
#[cfg(target_arch = "x86_64")]
const X32_IOCTL: i64 = X32 | 514;

/// Not in the C library's list yet.
const SYS_FCHMODAT2: i64 = 452;
const SYS_SETXATTRAT: i64 = 463;
const SYS_GETXATTRAT: i64 = 464;
const SYS_LISTXATTRAT: i64 = 465;
const SYS_REMOVEXATTRAT: i64 = 466;
const SYS_FILE_GETATTR: i64 = 468;
const SYS_FILE_SETATTR: i64 = 469;

/// The errors that refused calls have.
const EPERM: u32 = libc::EPERM.unsigned_abs();
const ENOSYS: u32 = libc::ENOSYS.unsigned_abs();
const ENOTSUP: u32 = libc::ENOTSUP.unsigned_abs();

/// Flags of `clone` that make namespaces.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Confines the calling thread, for a worker.
///
/// # Errors
/// The kernel's, or that there is no such filter for this machine.
pub(crate) fn restrict_worker(confinement: &WorkerConfinement) -> Result<(), seccompiler::Error> {
    let mut rules = Rules::new();
    let refused = DENIED_TO_ALL
        .iter()
        .chain(DENIED_TO_WORKERS)
        .chain(SHARED_BY_NAME);
    for call in refused.chain(TO_WORKERS_HERE) {
        rules.insert(*call, Vec::new());
    }
    if !confinement.commands {
        rules.extend(COMMANDS.iter().map(|call| (*call, Vec::new())));
        if !confinement.program {
            rules.extend(EXEC_CALLS.iter().map(|call| (*call, Vec::new())));
        }
        // Older kernels' Landlock knows nothing of signals.
        let own = u64::from(std::process::id());
        for call in SIGNALS {
            rules.insert(*call, first_argument_rules(SeccompCmpOp::Ne, own)?);
        }
    }
    // That it ends with its host stays.
    let parents_end = u64::from(libc::PR_SET_PDEATHSIG.unsigned_abs());
    rules.insert(
        libc::SYS_prctl,
        first_argument_rules(SeccompCmpOp::Eq, parents_end)?,
    );
    // Limits of other processes; 0 is this one, which can only lower its own.
    rules.insert(
        libc::SYS_prlimit64,
        first_argument_rules(SeccompCmpOp::Ne, 0)?,
    );
    rules.insert(libc::SYS_socketpair, socketpair_rules()?);
    rules.insert(libc::SYS_clone, clone_rules(confinement.commands)?);
    rules.insert(libc::SYS_socket, socket_rules(confinement.network)?);
    rules.insert(libc::SYS_ioctl, attribute_rules()?);
    rules.insert(libc::SYS_fcntl, lease_rules()?);
    #[cfg(target_arch = "x86_64")]
    rules.insert(X32_IOCTL, attribute_rules()?);
    for (call, mode) in FILE_CREATING_CALLS {
        rules.insert(*call, mode_rules(*mode, None)?);
    }
    for (call, flags) in OPENS {
        rules.insert(*call, mode_rules(flags + 1, Some(*flags))?);
    }
    rules.insert(libc::SYS_utimensat, time_rules(SeccompCmpOp::Ne)?);
    apply(rules, SeccompAction::Errno(EPERM))?;
    // Their flags are in memory, where a filter cannot look: whoever asks takes `clone` and `openat`
    // instead.
    let mut missing = Rules::from([
        (libc::SYS_clone3, Vec::new()),
        (libc::SYS_openat2, Vec::new()),
    ]);
    if !confinement.commands {
        missing.extend(WATCHES.iter().map(|call| (*call, Vec::new())));
    }
    apply(missing, SeccompAction::Errno(ENOSYS))?;
    let unsupported = ATTRIBUTES_OF_FILES.iter().map(|call| (*call, Vec::new()));
    apply(unsupported.collect(), SeccompAction::Errno(ENOTSUP))?;
    // Copying and unpacking a file sets its mode and its times; that they stay as they are does no harm.
    // Both can be done where a file is only open for reading. That a thread runs where it did harms as
    // little.
    let another = first_argument_rules(SeccompCmpOp::Ne, 0)?;
    let ignored = Rules::from([
        (libc::SYS_fchmod, Vec::new()),
        (libc::SYS_sched_setaffinity, another),
        (libc::SYS_utimensat, time_rules(SeccompCmpOp::Eq)?),
    ]);
    apply(ignored, SeccompAction::Errno(0))
}

/// Confines the calling thread, for the commands of a sandbox.
///
/// # Errors
/// The kernel's, or that there is no such filter for this machine.
pub(crate) fn restrict_sandbox(
    sandbox: &Sandbox,
    has_own_ipc: bool,
) -> Result<(), seccompiler::Error> {
    let shared: &[i64] = match has_own_ipc {
        true => &[],
        false => SHARED_BY_NAME,
    };
    let refused = DENIED_TO_ALL.iter().chain(shared);
    let mut rules: Rules = refused.map(|call| (*call, Vec::new())).collect();
    // None of these is a signal or a file, and all reach whatever the same user runs.
    for (call, own) in SHARES_OF_THE_MACHINE {
        rules.insert(*call, deny_unless(own)?);
    }
    rules.insert(libc::SYS_socketpair, socketpair_rules()?);
    rules.insert(libc::SYS_socket, socket_rules(sandbox.network)?);
    rules.insert(libc::SYS_fcntl, lease_rules()?);
    apply(rules, SeccompAction::Errno(EPERM))?;
    let mut ignored = Rules::new();
    for call in SCHEDULING {
        ignored.insert(*call, first_argument_rules(SeccompCmpOp::Ne, 0)?);
    }
    apply(ignored, SeccompAction::Errno(0))
}

/// Refused unless the first arguments are these.
fn deny_unless(arguments: &[u64]) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let arguments = (0_u8..).zip(arguments);
    arguments
        .map(|(argument, value)| {
            let is_another = condition(argument, SeccompCmpOp::Ne, *value)?;
            Ok(SeccompRule::new(vec![is_another])?)
        })
        .collect()
}

/// Times of a file, where its name compares so with nothing: without one they are those of what is open.
fn time_rules(operator: SeccompCmpOp) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let name = SeccompCondition::new(1, SeccompCmpArgLen::Qword, operator, 0)?;
    Ok(vec![SeccompRule::new(vec![name])?])
}

/// Not made where the first argument is so.
fn first_argument_rules(
    operator: SeccompCmpOp,
    value: u64,
) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    Ok(vec![SeccompRule::new(vec![condition(
        0, operator, value,
    )?])?])
}

/// A socket that is not connected reaches every other of the machine; a stream is to its other end.
fn socketpair_rules() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    /// The bits of a socket's type that are no flags.
    const KIND: u64 = 0xf;
    let kinds = [libc::SOCK_DGRAM, libc::SOCK_RAW].into_iter();
    kinds
        .map(|kind| {
            let kind = u64::from(kind.unsigned_abs());
            let is_it = condition(1, SeccompCmpOp::MaskedEq(KIND), kind)?;
            Ok(SeccompRule::new(vec![is_it])?)
        })
        .collect()
}

/// Threads are made with it as well as processes.
fn clone_rules(commands: bool) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let mut rules = Vec::new();
    if !commands {
        let thread = u64::from(libc::CLONE_THREAD.unsigned_abs());
        rules.push(condition(0, SeccompCmpOp::MaskedEq(thread), 0)?);
    }
    for flag in NAMESPACES {
        let flag = u64::from(flag.unsigned_abs());
        rules.push(condition(0, SeccompCmpOp::MaskedEq(flag), flag)?);
    }
    let rules = rules.into_iter();
    Ok(rules
        .map(|rule| SeccompRule::new(vec![rule]))
        .collect::<Result<_, _>>()?)
}

/// Sockets of the internet, and what looks names up, for those that open connections. None of this
/// machine's: the sockets of an engine or of an agent for keys are as good as its programs.
fn socket_rules(network: bool) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    if !network {
        return Ok(Vec::new());
    }
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let others =
        families.map(|family| condition(0, SeccompCmpOp::Ne, u64::from(family.unsigned_abs())));
    let others = others.into_iter().collect::<Result<_, _>>()?;
    Ok(vec![SeccompRule::new(others)?])
}

/// No leases of files, and no delegations, which newer systems give for directories too. Whoever opens such a
/// file waits until that is given back, and it takes no right to change the file.
fn lease_rules() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    /// `F_SETDELEG`, which the C library's list does not have yet.
    const SET_DELEGATION: u64 = 1024 + 16;
    let lease = u64::from(libc::F_SETLEASE.unsigned_abs());
    let commands = [lease, SET_DELEGATION].into_iter();
    commands
        .map(|command| {
            let is_it = condition(1, SeccompCmpOp::Eq, command)?;
            Ok(SeccompRule::new(vec![is_it])?)
        })
        .collect()
}

/// Attributes of files; which of them, says the second argument.
fn attribute_rules() -> Result<Vec<SeccompRule>, seccompiler::Error> {
    let requests = ATTRIBUTES.into_iter();
    requests
        .map(|request| {
            let is_it = condition(1, SeccompCmpOp::Eq, u64::from(request))?;
            Ok(SeccompRule::new(vec![is_it])?)
        })
        .collect()
}

/// Refuses to make files that run as their owner or with their group, also as a copy. `flags`: the argument that says whether a
/// file is made at all; the one with the mode means nothing else.
fn mode_rules(mode: u8, flags: Option<u8>) -> Result<Vec<SeccompRule>, seccompiler::Error> {
    /// A file without a name is made with it, and with the flag of a directory.
    const TMPFILE: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
    let has = |argument, bits: u64| condition(argument, SeccompCmpOp::MaskedEq(bits), bits);
    let made: Vec<Option<i32>> = match flags {
        Some(_) => vec![Some(libc::O_CREAT), Some(TMPFILE)],
        None => vec![None],
    };
    let mut rules = Vec::new();
    for flag in made {
        for bit in [libc::S_ISUID, libc::S_ISGID] {
            let mut conditions = vec![has(mode, u64::from(bit))?];
            if let (Some(argument), Some(flag)) = (flags, flag) {
                conditions.push(has(argument, u64::from(flag.unsigned_abs()))?);
            }
            rules.push(SeccompRule::new(conditions)?);
        }
    }
    Ok(rules)
}

fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, seccompiler::Error> {
    let length = SeccompCmpArgLen::Dword;
    Ok(SeccompCondition::new(argument, length, operator, value)?)
}

fn apply(mut rules: Rules, action: SeccompAction) -> Result<(), seccompiler::Error> {
    #[cfg(target_arch = "x86_64")]
    for (call, same) in rules.clone() {
        rules.entry(call | X32).or_insert(same);
    }
    let machine = TargetArch::try_from(std::env::consts::ARCH)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, machine)?;
    let program = BpfProgram::try_from(filter)?;
    seccompiler::apply_filter(&program)
}
