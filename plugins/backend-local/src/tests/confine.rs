//! What a confined command is kept from, as root and as anybody else, and what it still does.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use serde_json::{Value, json};

use crate::testing::{LocalTestHost, TestCall};

/// Set for the process that runs a test as an ordinary user.
const ORDINARY: &str = "CONJURE_TEST_ORDINARY_USER";
/// A variable whose value no command may find.
const KEY: &str = "CONJURE_TEST_KEY_OF_THE_HOST";
const VALUE: &str = "sk-never-seen";
/// The user that a test is run as when it is run by root.
const NOBODY: u32 = 65_534;

/// Runs a test as the user who runs it, and as an ordinary user when that is root. `hidden` is a
/// directory of the host's with a file `key`.
fn as_everybody(name: &str, test: impl FnOnce(&LocalTestHost, &Path)) {
    let ordinary = std::env::var_os(ORDINARY).is_some();
    if !ordinary {
        // Where an environment that is set when the process starts can be read.
        let run = |ordinary: bool| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", &format!("tests::confine::{name}"), "--nocapture"])
                .env(ORDINARY, "1")
                .env(KEY, VALUE);
            if ordinary {
                command.uid(NOBODY).gid(NOBODY).env("HOME", "/tmp");
            }
            let status = command.status().unwrap();
            assert!(status.success(), "ordinary user: {ordinary}");
        };
        run(false);
        if rustix::process::geteuid().is_root() {
            run(true);
        }
        return;
    }
    let hidden = tempfile::tempdir().unwrap();
    fs::write(hidden.path().join("key"), VALUE).unwrap();
    let host = host(&json!({ "hide": [hidden.path()] }));
    test(&host, hidden.path());
}

fn host(config: &Value) -> LocalTestHost {
    LocalTestHost::configured(config).unwrap()
}

/// Another process of the user's, with the key in its environment.
struct Witness(Child);

impl Witness {
    fn new() -> Self {
        let mut command = Command::new("sleep");
        Self(command.arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn no_process_outside_is_looked_into() {
    as_everybody("no_process_outside_is_looked_into", |host, _| {
        let witness = Witness::new();
        let all = "for dir in /proc/[0-9]*; do
            if cat $dir/environ >text 2>/dev/null && test -s text; then
                echo ${dir#/proc/}; cat text >>all
            fi
        done; echo $PPID >parent";
        let readable = host.bash(all).stdout;
        let readable: Vec<u32> = readable.lines().map(|pid| pid.parse().unwrap()).collect();
        let parent = fs::read_to_string(host.work("parent")).unwrap();
        let outside = [
            std::process::id(),
            witness.pid(),
            parent.trim().parse().unwrap(),
        ];
        for pid in outside {
            assert!(!readable.contains(&pid), "{pid}: {readable:?}");
        }
        let found = fs::read(host.work("all")).unwrap();
        assert!(!String::from_utf8_lossy(&found).contains(VALUE));
        for pid in outside {
            let files = ["environ", "maps", "mem", "auxv", "root/etc/passwd"];
            let files = files.map(|file| format!("head -c 1 /proc/{pid}/{file}"));
            let dirs = ["root/", "cwd/"].map(|dir| format!("ls /proc/{pid}/{dir}"));
            let links = ["exe", "fd/0"].map(|link| format!("readlink /proc/{pid}/{link}"));
            for way in files.iter().chain(&dirs).chain(&links) {
                let tried = host.bash(way);
                assert_ne!(tried.exit_code, Some(0), "{way}: {}", tried.stdout);
            }
        }
        // Without the confinement the same is found, so this shows something.
        let open = self::host(&json!({ "confine": false }));
        let seen = open.bash(&format!("cat /proc/{}/environ", witness.pid()));
        assert!(seen.stdout.contains(VALUE), "{}", seen.stderr);
    });
}

#[test]
fn no_process_outside_is_traced_or_signalled() {
    as_everybody("no_process_outside_is_traced_or_signalled", |host, _| {
        let witness = Witness::new();
        let pid = witness.pid();
        let attach = format!(
            "python3 -c 'import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.ptrace(16, {pid}, 0, 0) == 0: sys.exit(0)
try: os.pidfd_open({pid})
except OSError: pass
sys.exit(ctypes.get_errno())'"
        );
        if host.bash("command -v python3").exit_code == Some(0) {
            assert_eq!(host.bash(&attach).exit_code, Some(1), "not permitted");
        }
        for signal in ["TERM", "STOP", "0"] {
            let ran = host.bash(&format!("kill -{signal} {pid} || kill -{signal} $PPID"));
            assert_ne!(ran.exit_code, Some(0), "{signal}");
        }
        assert_eq!(
            host.bash("sleep 1000 & kill $!; wait $!").exit_code,
            Some(143)
        );
    });
}

#[test]
fn a_hidden_file_is_found_in_no_way() {
    as_everybody("a_hidden_file_is_found_in_no_way", |host, hidden| {
        let key = hidden.join("key");
        let name = hidden.file_name().unwrap().to_str().unwrap();
        symlink(&key, host.work("link")).unwrap();
        symlink(hidden, host.work("dir")).unwrap();
        let pid = std::process::id();
        let key = key.display().to_string();
        let dir = hidden.display().to_string();
        let up = "../".repeat(20);
        let ways = [
            format!("cat {key}"),
            format!("cat {up}{key}"),
            format!("cd {dir} && cat key"),
            format!("cat {dir}/../{name}/key"),
            "cat link".to_owned(),
            "cat dir/key".to_owned(),
            format!("ln {key} hard && cat hard"),
            format!("mv {dir} moved && cat moved/key"),
            format!("cp -r {dir} copy && cat copy/key"),
            format!("cat /proc/self/root{key}"),
            format!("cat /proc/$PPID/root{key}"),
            format!("cat /proc/1/root{key}"),
            format!("cat /proc/{pid}/root{key}"),
            format!("cat /proc/{pid}/cwd/{up}{key}"),
            format!("cat /proc/$PPID/cwd/{up}{key}"),
            format!("umount {dir}; cat {key}"),
            format!("umount -l {dir}; cat {key}"),
            format!("unshare -m sh -c 'umount {dir}; cat {key}'"),
            format!("unshare -Urm sh -c 'umount {dir}; cat {key}'"),
            format!("nsenter -t {pid} -m cat {key}"),
            format!("nsenter -t $PPID -m cat {key}"),
            format!("mkdir m; mount --bind / m && cat m{key}"),
            format!("chroot / cat {key}"),
            format!("grep -r {VALUE} {dir} /proc/self/root{dir}"),
            format!("tar -c {dir} | grep -a {VALUE}"),
            format!("python3 -c 'print(open(\"{key}\").read())'"),
        ];
        for way in ways {
            let ran = host.bash(&way);
            let said = format!("{}{}", ran.stdout, ran.stderr);
            assert!(!said.contains(VALUE), "{way}: {said}");
        }
        // The host itself and a command that is not confined find it.
        assert_eq!(fs::read_to_string(&key).unwrap(), VALUE);
        let open = self::host(&json!({ "confine": false }));
        assert_eq!(open.bash(&format!("cat {key}")).stdout, VALUE);
    });
}

#[test]
fn what_a_session_has_in_a_hidden_directory_is_seen_and_nothing_else_there() {
    let name = "what_a_session_has_in_a_hidden_directory_is_seen_and_nothing_else_there";
    as_everybody(name, |_, hidden| {
        let own = hidden.join("sessions/s");
        for dir in ["work", "exchange", "files"] {
            fs::create_dir_all(own.join(dir)).unwrap();
        }
        fs::create_dir_all(hidden.join("sessions/t/work")).unwrap();
        fs::write(own.join("work/in"), "in").unwrap();
        fs::write(own.join("files/brought"), "brought").unwrap();
        let host = self::host(&json!({ "hide": [hidden] }));
        let more = json!({
            "working_dir": own.join("work"),
            "exchange_dir": own.join("exchange"),
        });
        let command = format!(
            "cat in; cat ../files/brought; echo out >out; ls {0} {0}/sessions; touch {0}/new",
            hidden.display()
        );
        let ran = host.bash_with(&command, &more, &TestCall::new());
        let listed = format!("{0}:\nsessions\n\n{0}/sessions:\ns\n", hidden.display());
        assert_eq!(ran.stdout, format!("inbrought{listed}"), "{}", ran.stderr);
        assert_ne!(ran.exit_code, Some(0));
        assert_eq!(fs::read_to_string(own.join("work/out")).unwrap(), "out\n");
        assert_eq!(ran.files.len(), 1);
    });
}

#[test]
fn a_hidden_file_that_was_replaced_meanwhile_is_still_hidden() {
    let name = "a_hidden_file_that_was_replaced_meanwhile_is_still_hidden";
    as_everybody(name, |_, hidden| {
        let key = hidden.join("key");
        let host = self::host(&json!({ "hide": [key] }));
        let command = format!("cat {}", key.display());
        for round in 0..5 {
            assert_eq!(host.bash(&command).stdout, "", "{round}");
            let next = hidden.join("next");
            fs::write(&next, VALUE).unwrap();
            fs::rename(&next, &key).unwrap();
        }
    });
}

#[test]
fn a_hidden_file_that_is_replaced_while_a_command_runs_is_hidden_again() {
    let name = "a_hidden_file_that_is_replaced_while_a_command_runs_is_hidden_again";
    as_everybody(name, |_, hidden| {
        let [key, next, old] = ["key", "next", "old"].map(|name| hidden.join(name));
        let renamed_over = || fs::rename(&next, &key).unwrap();
        let written_anew = || {
            fs::remove_file(&key).unwrap();
            fs::rename(&next, &key).unwrap();
        };
        let moved_away = || {
            fs::rename(&key, &old).unwrap();
            fs::rename(&next, &key).unwrap();
        };
        let ways: [&dyn Fn(); 3] = [&renamed_over, &written_anew, &moved_away];
        for (number, replace) in ways.into_iter().enumerate() {
            let host = self::host(&json!({ "hide": [key] }));
            fs::write(&next, VALUE).unwrap();
            // What nobody covers again is shown after a while.
            let command = format!(
                "mkfifo replaced && echo runs && read _ <replaced && rm replaced && i=0
                while test -s {0} && test $i -lt 500; do i=$((i + 1)); sleep 0.01; done
                cat {0}",
                key.display()
            );
            let call = TestCall::new();
            let ran = std::thread::scope(|scope| {
                let running = scope.spawn(|| host.bash_with(&command, &json!({}), &call));
                call.wait_for("runs\n");
                replace();
                fs::write(host.work("replaced"), "go\n").unwrap();
                running.join().unwrap()
            });
            assert_eq!(ran.stdout, "runs\n", "{number}: {}", ran.stderr);
            assert_eq!(fs::read_to_string(&key).unwrap(), VALUE);
        }
    });
}

#[test]
fn ordinary_commands_do_what_they_do() {
    as_everybody("ordinary_commands_do_what_they_do", |host, _| {
        let home = PathBuf::from(std::env::var_os("HOME").unwrap());
        let ours = format!("conjure-test-{}", std::process::id());
        let commands = [
            "echo a >a; mkdir d; mv a d/b; ln d/b c; ln -s c l; cat l; chmod 700 c; rm -r d",
            "f=$(mktemp) && echo x >$f && cat $f && rm $f",
            "mktemp -d | xargs rmdir",
            "sleep 0.01 & wait $! && (cd / && ls >/dev/null) && ps >/dev/null",
            "test -w /dev/null && echo >/dev/null && head -c 4 /dev/urandom >/dev/null",
            &format!("echo x >~/{ours} && cat ~/{ours} && rm ~/{ours}"),
            &format!("echo x >/tmp/{ours} && mv /tmp/{ours} moved && cat moved"),
            "sh -c 'kill -TERM $$'; test $? = 143",
            "setsid true && nohup true >/dev/null 2>&1 && env -i /bin/true",
        ];
        for command in commands {
            let ran = host.bash(command);
            assert_eq!(ran.exit_code, Some(0), "{command}: {}", ran.stderr);
        }
        let with_tools = [
            (
                "git",
                "git init -q g && cd g && echo a >a && git add a && git -c user.name=a -c \
                 user.email=a@b commit -qm a && git log --oneline | grep a && git clone -q . ../h",
            ),
            (
                "python3",
                "python3 -c 'import os, subprocess, tempfile
subprocess.run([\"true\"], check=True)
with tempfile.TemporaryDirectory() as d: open(os.path.join(d, \"x\"), \"w\").write(\"x\")'",
            ),
            ("ps", "ps -ef >/dev/null"),
        ];
        for (tool, command) in with_tools {
            if host.bash(&format!("command -v {tool}")).exit_code != Some(0) {
                continue;
            }
            let ran = host.bash(command);
            // A tool in root's home is none for anybody else.
            let denied = ran.stderr.contains("Permission denied");
            assert!(
                ran.exit_code == Some(0) || denied,
                "{command}: {}",
                ran.stderr
            );
        }
        let id = host.bash("id -u").stdout;
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(id.trim(), own.to_string());
        assert!(home.is_dir());
        let mode = fs::metadata("/tmp").unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o777);
    });
}

#[test]
fn what_is_hidden_must_be_absolute() {
    assert!(LocalTestHost::configured(&json!({ "hide": ["key"] })).is_err());
}
