//! The key of saved auths in the keyring of the system: a real one, on a bus of the test's own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use conjure_kit::{Cli, Model, Output, Workspace, search};
use conjure_mock_llm::Message;

use crate::stage::{conjure, workspace};

/// Programs, and Debian's packages that have them.
const NEEDED: [(&str, &str); 3] = [
    ("dbus-daemon", "dbus-x11"),
    ("dbus-send", "dbus-bin"),
    ("gnome-keyring-daemon", "gnome-keyring"),
];
const SECRET: &str = "sk-in-the-keyring-0123456789-abcdef";
const BUS: &str = "<busconfig><type>session</type>LISTEN<auth>EXTERNAL</auth>\
    <policy context=\"default\"><allow send_destination=\"*\" eavesdrop=\"true\"/>\
    <allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>";
const KEY_FILE: &str = ".local/share/conjure/vault.key";
const PATIENCE: Duration = Duration::from_secs(50);

/// A bus and a keyring on it, which end with this value.
struct Keyring {
    children: Vec<Child>,
    address: String,
}

impl Keyring {
    /// The keyring of a home directory, unlocked; nothing where none is installed.
    fn unlocked(home: &Path) -> Option<Self> {
        for (program, package) in NEEDED {
            let found = Command::new(program).arg("--version").output();
            if found.is_err() {
                println!("LEFT OUT: keyring: {program} is not installed (Debian: {package})");
                return None;
            }
        }
        // Nothing is started by being asked for: there is one keyring, and it is this one.
        let config = home.join("bus.conf");
        let listen = format!("<listen>unix:dir={}</listen>", home.display());
        std::fs::write(&config, BUS.replace("LISTEN", &listen)).unwrap();
        let mut bus = Command::new("dbus-daemon")
            .args(["--nofork", "--nopidfile", "--print-address"])
            .arg(format!("--config-file={}", config.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let said = bus.stdout.take().unwrap();
        let mut keyring = Self {
            children: vec![bus],
            address: String::new(),
        };
        BufReader::new(said)
            .read_line(&mut keyring.address)
            .unwrap();
        keyring.address.truncate(keyring.address.trim_end().len());
        // Who asks before the bus is up may wait for half a minute.
        let until = Instant::now() + PATIENCE;
        while keyring.has("org.freedesktop.DBus").is_none() {
            assert!(Instant::now() < until, "the bus does not answer");
        }
        let mut daemon = Command::new("gnome-keyring-daemon")
            .args(["--foreground", "--unlock", "--components=secrets"])
            .arg(format!("--control-directory={}", home.display()))
            .env("HOME", home)
            .env("XDG_DATA_HOME", home.join("keyrings"))
            .env("DBUS_SESSION_BUS_ADDRESS", &keyring.address)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut password = daemon.stdin.take().unwrap();
        keyring.children.push(daemon);
        password.write_all(b"a password").unwrap();
        drop(password);
        while keyring.has("org.freedesktop.secrets") != Some(true) {
            assert!(Instant::now() < until, "the keyring is not on its bus");
        }
        Some(keyring)
    }

    /// Whether anybody has a name on the bus; nothing where that does not answer.
    fn has(&self, name: &str) -> Option<bool> {
        std::thread::sleep(Duration::from_millis(10));
        let asked = Command::new("dbus-send")
            .arg(format!("--bus={}", self.address))
            .args(["--print-reply", "--reply-timeout=500"])
            .args(["--dest=org.freedesktop.DBus", "/"])
            .arg("org.freedesktop.DBus.NameHasOwner")
            .arg(format!("string:{name}"))
            .output()
            .unwrap();
        let answer = String::from_utf8_lossy(&asked.stdout).into_owned();
        asked.status.success().then(|| answer.contains("true"))
    }

    fn conjure(&self, workspace: &Workspace, args: &str) -> Cli {
        conjure(workspace, args).env("DBUS_SESSION_BUS_ADDRESS", &self.address)
    }
}

impl Drop for Keyring {
    fn drop(&mut self) {
        for child in self.children.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn fine(cli: Cli) -> Output {
    let output = cli.run().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(!format!("{output:?}").contains(SECRET), "{output:?}");
    output
}

#[test]
fn the_key_of_saved_auths_is_in_the_keyring_of_the_system() {
    let home = Workspace::new().unwrap();
    let Some(keyring) = Keyring::unlocked(home.root()) else {
        return;
    };
    let (workspace, model) = (workspace(&[]), Model::start().unwrap());
    let add = format!(
        "auth create work --provider anthropic --kind api_key --base-url {}",
        model.base_url()
    );
    fine(
        keyring
            .conjure(&workspace, &add)
            .stdin(format!("{SECRET}\n")),
    );
    let ask = "run --auth anthropic/api_key/work --model m Hi.";
    model.says(Message::new().text("Hello."));
    assert_eq!(fine(keyring.conjure(&workspace, ask)).stdout, "Hello.\n");
    assert_eq!(model.last_request().header("x-api-key"), Some(SECRET));
    let rotated = fine(keyring.conjure(&workspace, "auth rotate"));
    assert!(
        rotated.stdout.contains("1 sealed with the new key"),
        "{rotated:?}"
    );
    assert!(rotated.stdout.contains("the keyring"), "{rotated:?}");
    assert!(!workspace.root().join(KEY_FILE).exists());
    // The next login finds it again.
    drop(keyring);
    let keyring = Keyring::unlocked(home.root()).unwrap();
    model.says(Message::new().text("Again."));
    assert_eq!(fine(keyring.conjure(&workspace, ask)).stdout, "Again.\n");
    assert_eq!(model.last_request().header("x-api-key"), Some(SECRET));
    // Without the keyring what is sealed stays sealed, and no other key is made in its place.
    drop(keyring);
    let output = conjure(&workspace, ask).run().unwrap();
    assert_ne!(output.code, Some(0), "{output:?}");
    assert!(output.stderr.contains("keyring"), "{output:?}");
    assert!(!workspace.root().join(KEY_FILE).exists());
    for dir in [workspace.root(), home.root()] {
        let search = search(dir, SECRET).unwrap();
        assert!(search.files > 0 && search.found.is_empty(), "{search:?}");
    }
}
