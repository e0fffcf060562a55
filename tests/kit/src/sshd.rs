//! OpenSSH's own server for tests: on loopback, as the user that the test runs as, with keys and a
//! configuration of its own; and a network between it and its clients that can be cut.

use std::fs::{self, Permissions};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Guard, KitError};

/// Where Debian and others have the server.
const PROGRAMS: [&str; 3] = ["/usr/sbin/sshd", "/usr/bin/sshd", "/usr/local/sbin/sshd"];
/// Directory that the server goes to when it is root, and must find empty.
const EMPTY: &str = "/run/sshd";
/// How often another port is tried, where somebody else took the free one meanwhile.
const PORTS: usize = 5;
/// How long it may take to answer.
const STARTS: Duration = Duration::from_secs(20);

/// A server. It ends with this value, or with the process that has it.
#[derive(Debug)]
pub struct Sshd {
    dir: tempfile::TempDir,
    port: u16,
    server: Child,
    end: Option<Guard>,
}

impl Sshd {
    /// A server, or nothing where OpenSSH is not installed; then the test is left out, and says so.
    ///
    /// # Errors
    /// When it is installed and does not start.
    pub fn find() -> Result<Option<Self>, KitError> {
        let left_out = |why: &str| {
            let _ = writeln!(io::stderr(), "LEFT OUT: ssh: {why}");
            Ok(None)
        };
        let Some(program) = PROGRAMS.iter().find(|path| Path::new(path).exists()) else {
            return left_out("there is no program `sshd` (Debian: openssh-server)");
        };
        if Command::new("ssh").arg("-V").output().is_err() {
            return left_out("there is no program `ssh` (Debian: openssh-client)");
        }
        for _ in 1..PORTS {
            let sshd = Self::begin(program)?;
            match sshd.wait() {
                Ok(()) => return Ok(Some(sshd)),
                // It says why in its log, which is in the error of the last.
                Err(_) if sshd.log().contains("Address already in use") => {}
                Err(error) => return Err(error),
            }
        }
        let sshd = Self::begin(program)?;
        sshd.wait().map(|()| Some(sshd))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    fn begin(program: &str) -> Result<Self, KitError> {
        let dir = tempfile::tempdir().map_err(KitError::file("a temporary directory"))?;
        let path = |name: &str| dir.path().join(name);
        for key in ["host_key", "user_key", "other_key"] {
            make_key(&path(key))?;
        }
        let port = crate::free_port()?;
        let public = |name: &str| {
            let file = path(name).with_extension("pub");
            fs::read_to_string(&file).map_err(KitError::file(&file))
        };
        let known = format!("[127.0.0.1]:{port} {}", public("host_key")?);
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {dir}/host_key\n\
             AuthorizedKeysFile {dir}/authorized_keys\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
             PidFile none\nPrintMotd no\nMaxStartups 200\nMaxSessions 200\n",
            dir = dir.path().display()
        );
        for (name, text) in [
            ("authorized_keys", public("user_key")?),
            ("known_hosts", known),
            ("config", String::new()),
            ("sshd_config", config),
        ] {
            fs::write(path(name), text).map_err(KitError::file(path(name)))?;
        }
        if !Path::new(EMPTY).exists() {
            // Only root needs it, and only root can make it.
            let _ = fs::DirBuilder::new().mode(0o755).create(EMPTY);
        }
        let server = Command::new(program)
            .args(["-D", "-E"])
            .arg(path("log"))
            .arg("-f")
            .arg(path("sshd_config"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| KitError::Start {
                program: program.into(),
                source,
            })?;
        let pid = server.id().to_string();
        let end = Guard::new("kill \"$1\"", &[&pid], None).map_err(|source| KitError::Start {
            program: "/bin/sh".into(),
            source,
        })?;
        Ok(Self {
            dir,
            port,
            server,
            end: Some(end),
        })
    }

    fn wait(&self) -> Result<(), KitError> {
        let deadline = Instant::now() + STARTS;
        // Another server may answer at the address; this one says that it listens there.
        let listens = format!("Server listening on 127.0.0.1 port {}.", self.port);
        while Instant::now() < deadline {
            let log = self.log();
            if log.contains("Cannot bind any address") {
                break;
            }
            if !log.contains(&listens) {
                thread::sleep(Duration::from_millis(20));
                continue;
            }
            if let Ok(stream) = TcpStream::connect(self.address()) {
                let mut line = String::new();
                let _ = BufReader::new(stream).read_line(&mut line);
                if line.starts_with("SSH-") {
                    return Ok(());
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
        Err(KitError::Deadline {
            what: "an sshd of the test's own".to_owned(),
            limit: STARTS,
            seen: self.log(),
        })
    }

    /// Address that the server listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// One of its files: `user_key`, which it lets in; `other_key`, which it does not; `known_hosts`
    /// for [`Sshd::address`]; `host_key.pub`; an empty `config`; `sshd_config`; its `log`.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Lets another address lead to it, as clients know it.
    ///
    /// # Errors
    /// When the file of known hosts cannot be written.
    pub fn add_known_host(&self, address: SocketAddr) -> Result<(), KitError> {
        let path = self.path("known_hosts");
        let known = fs::read_to_string(&path).map_err(KitError::file(&path))?;
        let own = format!("[127.0.0.1]:{}", self.port);
        let other = known.replace(&own, &format!("[127.0.0.1]:{}", address.port()));
        fs::write(&path, known + &other).map_err(KitError::file(&path))
    }

    /// Lets it read its configuration again.
    ///
    /// # Errors
    /// When it does not answer after that.
    pub fn reload(&self) -> Result<(), KitError> {
        let pid = self.server.id().to_string();
        let mut kill = Command::new("kill");
        let told = kill.args(["-HUP", &pid]).status();
        told.map_err(|source| KitError::Start {
            program: "kill".into(),
            source,
        })?;
        self.wait()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // While the process is not waited for, its number is nobody else's.
        drop(self.end.take());
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn make_key(path: &Path) -> Result<(), KitError> {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
    let made = command.arg(path).stdin(Stdio::null()).output();
    made.map_err(|source| KitError::Start {
        program: "ssh-keygen".into(),
        source,
    })?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(KitError::file(path))
}

/// How many bytes a slow network carries in a second.
const SLOW: u32 = 64 * 1024;

/// What a network does with what is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NetworkState {
    Forwarding,
    /// Carries little: [`SLOW`] in each direction.
    Slow,
    /// Says nothing and carries nothing.
    Stalled,
    /// Refuses everything.
    Refusing,
}

/// A network between clients and a server, which can be cut.
#[derive(Debug)]
pub struct Network {
    address: SocketAddr,
    shared: Arc<SharedNetwork>,
}

#[derive(Debug)]
struct SharedNetwork {
    state: Mutex<(NetworkState, Vec<TcpStream>)>,
    changed: Condvar,
}

impl Network {
    /// One that leads to a server.
    ///
    /// # Errors
    /// When no port is free.
    pub fn to(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(SharedNetwork {
            state: Mutex::new((NetworkState::Forwarding, Vec::new())),
            changed: Condvar::new(),
        });
        let carries = Arc::clone(&shared);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                carries.connect(&client, server);
            }
        });
        Ok(Self { address, shared })
    }

    /// Address where the network begins.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Carries 64 KiB a second in each direction from now on.
    pub fn slow_down(&self) {
        self.shared.change(NetworkState::Slow);
    }

    /// Carries nothing from now on, and says nothing of that: a cable that was pulled.
    pub fn stall(&self) {
        self.shared.change(NetworkState::Stalled);
    }

    /// Ends all connections and refuses new ones: a machine between that was started again.
    pub fn refuse(&self) {
        self.shared.change(NetworkState::Refusing);
    }

    /// Carries again, also what was sent meanwhile, where somebody still waits for it.
    pub fn restore(&self) {
        self.shared.change(NetworkState::Forwarding);
    }
}

impl SharedNetwork {
    fn change(&self, to: NetworkState) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0 = to;
        if to == NetworkState::Refusing {
            for stream in state.1.drain(..) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.changed.notify_all();
    }

    fn connect(self: &Arc<Self>, client: &TcpStream, server: SocketAddr) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0 == NetworkState::Refusing {
            return;
        }
        let Ok(server) = TcpStream::connect(server) else {
            return;
        };
        let pairs = [(client, &server), (&server, client)];
        for (from, to) in pairs {
            let _ = from.set_nodelay(true);
            if let (Ok(from), Ok(to), Ok(kept)) =
                (from.try_clone(), to.try_clone(), from.try_clone())
            {
                state.1.push(kept);
                let network = Arc::clone(self);
                thread::spawn(move || network.copy(from, to));
            }
        }
    }

    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            let silent =
                |state: &mut (NetworkState, Vec<TcpStream>)| state.0 == NetworkState::Stalled;
            let state = self.changed.wait_while(state, silent);
            let is_slow = state.is_ok_and(|state| state.0 == NetworkState::Slow);
            if is_slow {
                thread::sleep(Duration::from_secs(1) * length as u32 / SLOW);
            }
            let piece = buffer.get(..length).unwrap_or_default();
            if to.write_all(piece).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    }
}
