//! What a plugin in a worker tries that is worse where the host is root: programs that run as their
//! owner, attributes of files, and what only root may do.

use crate::confined::Scene;

/// Requests that change attributes of a file.
const ATTRIBUTES: [u32; 3] = [0x4008_6602, 0x4004_6602, 0x401c_5820];
/// What root may do and no worker.
const CAPABILITIES: [(&str, u32); 10] = [
    ("keep the bits of a program that is written to", 4),
    ("change what is immutable", 9),
    ("configure the network", 12),
    ("make packets", 13),
    ("load modules", 16),
    ("trace processes", 19),
    ("mount", 21),
    ("set the clock", 25),
    ("make devices", 27),
    ("hold a lease of another user's file", 28),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_makes_no_program_that_runs_as_its_owner_and_changes_no_attributes() {
    let scene = Scene::new().await;
    let is_root = rustix::process::getuid().is_root();
    let at = |name: &str| scene.work.join(name).display().to_string();
    for mode in [0o4755, 0o2755, 0o6711] {
        let row = format!("make-file {mode} {}", at("made"));
        scene.refused(&row).await;
        assert!(!scene.work.join("made").exists(), "{row}");
        scene.works(&row).await;
        std::fs::remove_file(at("made")).unwrap();
    }
    // The call whose mode no filter sees is none that a worker has.
    let call = format!("call {} -100 0 0 0", libc::SYS_openat2);
    assert_eq!(scene.outcome(&call).await, "error 38");
    let ordinary = format!("make-file {} {}", 0o755, at("made"));
    assert_eq!(scene.outcome(&ordinary).await, "done");
    for request in ATTRIBUTES {
        for path in ["/etc/hosts", "/usr/bin/env", &at("made")] {
            scene.refused(&format!("request {request} {path}")).await;
        }
    }
    // Others who open a leased file wait for whoever has the lease.
    for path in ["/etc/hosts", &at("made")] {
        assert_eq!(scene.outcome(&format!("lease {path}")).await, "error 1");
    }
    // How much can be read is no attribute of a file.
    let asks = format!("request {} {}", 0x541b, at("made"));
    assert_eq!(scene.outcome(&asks).await, "done");
    for (what, capability) in CAPABILITIES.iter().filter(|_| is_root) {
        let row = format!("capable {capability}");
        println!("no worker may {what}");
        scene.refused(&row).await;
        scene.works(&row).await;
    }
}
