//! What a container may and may not do.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::world;

#[test]
fn every_limit_and_default_stands() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let format = "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.NanoCpus}} \
                  {{.HostConfig.PidsLimit}} {{.HostConfig.NetworkMode}} \
                  {{.HostConfig.ReadonlyRootfs}} {{.HostConfig.SecurityOpt}} {{.HostConfig.Privileged}} \
                  {{.HostConfig.AutoRemove}} {{.HostConfig.LogConfig.Type}}";
    assert_eq!(
        world.inspect(format),
        "536870912 536870912 1000000000 256 none true [no-new-privileges] false true none"
    );
    // Podman names each capability that it would give; what is left is seen from inside.
    if !world.engine.is_podman().unwrap() {
        assert_eq!(world.inspect("{{.HostConfig.CapDrop}}"), "[ALL]");
    }
    assert_eq!(
        world.inspect("{{index .Config.Labels \"io.conjure.session\"}}"),
        "s"
    );
}

#[test]
fn from_inside_the_limits_are_seen() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let ran = world.bash(
        "id -u; ls /sys/class/net; grep -E 'Cap(Eff|Bnd)|NoNewPrivs|Seccomp:' /proc/self/status",
    );
    let mut lines = ran.stdout.lines();
    assert_ne!(lines.next(), Some("0"));
    assert_eq!(lines.next(), Some("lo"));
    let status: Vec<&str> = lines
        .map(|line| line.split_whitespace().last().unwrap())
        .collect();
    let none = "0000000000000000";
    assert_eq!(status, [none, none, "1", "2"]);
    let refused = world.bash("echo x >/etc/x; echo x >/x; echo x >/mnt/conjure/agent");
    assert_eq!(
        refused.stderr.matches("Read-only").count(),
        3,
        "{}",
        refused.stderr
    );
    let room = world.bash("df -k /tmp | tail -n 1 | awk '{ print $2 }'");
    assert_eq!(room.stdout, "102400\n");
    assert_eq!(
        world
            .bash("echo hi >/tmp/x && echo hi >x && cat /tmp/x x")
            .stdout,
        "hi\nhi\n"
    );
}

#[test]
fn the_environment_has_nothing_of_the_hosts() {
    let Some(world) = world(&json!({ "env": { "MINE": "1" } })) else {
        return;
    };
    let ran = world.bash("env | cut -d = -f 1 | sort");
    let mut known = vec![
        "CONJURE_CALL",
        "GIVEN",
        "HOME",
        "HOSTNAME",
        "MINE",
        "PATH",
        "PWD",
        "SHLVL",
        "_",
    ];
    if world.engine.is_podman().unwrap() {
        known.extend(["TERM", "container"]);
    }
    for name in ran.stdout.lines() {
        assert!(known.contains(&name), "{name} in {}", ran.stdout);
    }
}

#[test]
fn nobody_inside_speaks_for_the_agent_or_ends_it() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let ran =
        world.bash("kill -9 1; kill -STOP 1; cat /proc/1/mem; echo x >/proc/1/fd/1; ls /proc/1/fd");
    assert_ne!(ran.exit_code, Some(0));
    assert_eq!(ran.stderr.matches("denied").count(), 3, "{}", ran.stderr);
    assert_eq!(world.bash("echo still here").stdout, "still here\n");
}

#[test]
fn memory_beyond_the_limit_ends_the_command_and_not_the_session() {
    let Some(world) = world(&json!({ "memory_mb": 64, "tmp_mb": 200 })) else {
        return;
    };
    world.bash("echo kept >/tmp/mark");
    // A string that doubles.
    let ran = world.bash_within("awk 'BEGIN { s = \"x\"; while (1) s = s s }'", 20_000);
    assert!(!ran.text().contains("\"exit_code\":0"), "{}", ran.text());
    assert_eq!(world.bash("cat /tmp/mark").stdout, "kept\n");
}

#[test]
fn the_socket_to_the_host_is_nobodys_but_the_agents() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let ran = world.bash("ls -A /mnt/link; echo x >/mnt/link/agent");
    assert_eq!(ran.stdout, "");
    assert!(ran.stderr.contains("can't create"), "{}", ran.stderr);
    assert!(world.inspect("{{.Args}}").contains("serve-at"));
    // On this machine nobody else comes near one that still waits, and this one is gone.
    for host in fs::read_dir(world.path("data/hosts")).unwrap() {
        let links = host.unwrap().path().join("links");
        let mode = fs::metadata(&links).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        assert_eq!(fs::read_dir(links).unwrap().count(), 0);
    }
}

#[test]
fn an_agent_that_cannot_reach_the_socket_is_spoken_to_over_the_attached_stream() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    // Takes the place of the agent, and tells it of a socket that is not there.
    let bin = world.path("data/hosts");
    let bin = fs::read_dir(bin).unwrap().next().unwrap().unwrap().path();
    let agent = bin.join("bin/agent");
    fs::rename(&agent, bin.join("bin/real")).unwrap();
    let script = "#!/bin/sh\nshift 2; exec /mnt/conjure/real serve-at /nowhere \"$@\"\n";
    fs::write(&agent, script).unwrap();
    fs::set_permissions(&agent, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(world.bash("echo over attach").stdout, "over attach\n");
    assert_eq!(world.bash("echo again; exit 3").exit_code, Some(3));
}
