//! What commands in a sandbox are kept from of the machine itself, beside files and connections: its
//! devices and settings, other processes' share of it, and what processes share by number. As root that
//! is more than file permissions forbid.

use std::fs;
use std::path::Path;

use conjure_host::session::{SandboxMode, SandboxSpec};

use crate::sandboxed::{refused, sandbox, session, works};
use crate::stage::{LOCAL, Stage};

/// What root may do that changes the machine, or sees more of it than files.
const CHANGES_THE_MACHINE: [(&str, u32); 14] = [
    ("change what is immutable", 9),
    ("configure the network", 12),
    ("make packets, and see those of others", 13),
    ("load modules", 16),
    ("reach the hardware", 17),
    ("trace processes", 19),
    ("mount", 21),
    ("restart it", 22),
    ("take more of the processor", 23),
    ("lift limits", 24),
    ("set the clock", 25),
    ("configure terminals", 26),
    ("make devices", 27),
    ("load programs into the kernel", 39),
];

#[tokio::test]
async fn a_command_in_a_sandbox_slows_and_pins_no_other_process() {
    let stage = Stage::new(&[LOCAL]).await;
    let closed = session(&stage, sandbox()).await;
    let free = session(&stage, SandboxSpec::of(SandboxMode::None)).await;
    let python = |code: &str| format!("sleep 5 & p=$! && python3 -c \"import os; {code}\"");
    for row in [
        python("os.setpriority(os.PRIO_PROCESS, $p, 10)"),
        // Its own group, which a command could leave for another.
        python("os.setpriority(os.PRIO_PGRP, 0, 10)"),
        "sleep 5 & ionice -c 2 -n 7 -p $!".to_owned(),
    ] {
        refused(&stage, &closed, &row).await;
        works(&stage, &free, &row).await;
    }
    // A thread of its own has a number too, so these do nothing to any, and a program that pins itself
    // goes on.
    let scheduling = "os.sched_getscheduler($p) == os.SCHED_BATCH";
    let batch = |asked: &str| {
        let set = "os.sched_setscheduler($p, os.SCHED_BATCH, os.sched_param(0))";
        python(&format!("{set}; assert {asked}"))
    };
    works(&stage, &closed, &batch(&format!("not {scheduling}"))).await;
    works(&stage, &free, &batch(scheduling)).await;
    for row in [
        python(
            "os.sched_setaffinity($p, [min(os.sched_getaffinity(0))]); \
             assert os.sched_getaffinity($p) == os.sched_getaffinity(0)",
        ),
        python("os.sched_setparam($p, os.sched_param(0))"),
        "python3 -c \"import os, threading; me = threading.get_native_id(); \
         os.sched_setaffinity(me, os.sched_getaffinity(me))\""
            .to_owned(),
    ] {
        works(&stage, &closed, &row).await;
    }
    for row in [
        "test $(nice -n 5 nice) -gt $(nice)",
        "ionice -c 3 true",
        "python3 -c \"import os; os.sched_setaffinity(0, os.sched_getaffinity(0))\"",
        "python3 -c \"import os; os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))\"",
    ] {
        works(&stage, &closed, row).await;
    }
    for session in [closed, free] {
        session.close().await;
    }
}

#[tokio::test]
async fn a_command_in_a_sandbox_shares_nothing_by_number_with_another() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = session(&stage, sandbox()).await;
    for (kind, make) in [("-m", "-M 4096"), ("-q", "-Q"), ("-s", "-S 1")] {
        let count = format!("ipcs {kind} | grep -c ^0x");
        let made = works(
            &stage,
            &session,
            &format!("ipcmk {make} >/dev/null && {count}"),
        )
        .await;
        assert_eq!(made.trim(), "1", "{kind}");
        let after = works(&stage, &session, &format!("{count} || true")).await;
        assert_eq!(after.trim(), "0", "{kind}");
    }
    session.close().await;
}

#[tokio::test]
async fn a_command_in_a_sandbox_has_devices_of_its_own() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = session(&stage, sandbox()).await;
    let listed = works(&stage, &session, "cd /dev && echo *").await;
    let usual = "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero";
    assert_eq!(listed.trim(), usual);
    for (command, said) in [
        ("echo x >/dev/null && head -c 4 /dev/urandom | wc -c", "4"),
        ("head -c 4 /dev/zero | wc -c", "4"),
        ("echo x >/dev/full || echo it is full", "it is full"),
        ("echo out | cat /dev/stdin", "out"),
        ("bash -c 'cat <(echo substituted)'", "substituted"),
        ("script -qc tty /dev/null", "/dev/pts/0"),
    ] {
        let seen = works(&stage, &session, command).await;
        assert!(seen.contains(said), "{command}: {seen}");
    }
    // Disks of a machine that shows some lie elsewhere too, as in a root directory that was made for it.
    works(&stage, &session, "test -z \"$(find /dev -type b)\"").await;
    let options = "awk '$5 == \"/\" { print $6 }' /proc/self/mountinfo | tail -1";
    let options = works(&stage, &session, options).await;
    assert!(options.contains("nodev"), "{options}");
    session.close().await;
}

#[tokio::test]
async fn what_is_granted_among_the_devices_is_there() {
    let stage = Stage::new(&[LOCAL]).await;
    let shared = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(shared.path().join("in"), "brought").unwrap();
    let granted = SandboxSpec {
        write: vec![shared.path().to_owned()],
        ..sandbox()
    };
    let session = session(&stage, granted).await;
    let dir = shared.path().display();
    let command = format!("cat {dir}/in && echo x >{dir}/out && chmod 600 {dir}/out");
    assert!(works(&stage, &session, &command).await.contains("brought"));
    assert!(shared.path().join("out").exists());
    // What lies beside it is as it was everywhere else.
    refused(&stage, &session, "echo x >/dev/shm/conjure-sandbox-test").await;
    assert!(!Path::new("/dev/shm/conjure-sandbox-test").exists());
    session.close().await;
}

#[tokio::test]
async fn a_command_in_a_sandbox_changes_no_modes_of_devices_and_settings() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = session(&stage, sandbox()).await;
    // The mode that it has, so that nothing is changed where it is not refused.
    for place in ["/dev", "/dev/null", "/proc/cpuinfo", "/sys/kernel"] {
        let same = format!("chmod --reference={place} {place}");
        refused(&stage, &session, &same).await;
    }
    session.close().await;
}

#[tokio::test]
async fn a_command_in_a_sandbox_has_no_privileges_over_the_machine() {
    let stage = Stage::new(&[LOCAL]).await;
    let is_root = rustix::process::getuid().is_root();
    let spec = SandboxSpec {
        network: true,
        ..sandbox()
    };
    let session = session(&stage, spec).await;
    let status = works(
        &stage,
        &session,
        "grep -E '^Cap(Inh|Prm|Eff|Amb)' /proc/self/status",
    )
    .await;
    for line in status.lines() {
        let digits = line.split_whitespace().last().unwrap();
        let has = u64::from_str_radix(digits, 16).unwrap();
        for (what, number) in CHANGES_THE_MACHINE {
            assert_eq!(has >> number & 1, 0, "{what}: {line}");
        }
    }
    // What builds and package managers do as root.
    for row in [
        "touch f && chown 1:1 f && chmod 640 f && echo x >f && cat f",
        "mkdir -m 2775 d && chown 1:1 d && touch d/f && stat -c %g d/f | grep 1",
        "setpriv --reuid=1 --regid=1 --clear-groups id -u | grep 1",
        "chroot / true",
    ] {
        if is_root {
            works(&stage, &session, row).await;
        }
    }
    session.close().await;
}
