//! A PostgreSQL server: the one that `CONJURE_TEST_POSTGRES` names, by the URL of a database in
//! which others may be made, or a private one.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Guard, KitError};

/// Names the server to use.
const SERVER: &str = "CONJURE_TEST_POSTGRES";
/// A file beside a private server's own: they stay.
const KEEP_MARKER: &str = "kept";
/// Ends a private server and removes its files.
const END: &str =
    "\"$1/pg_ctl\" -D \"$2/data\" -m immediate -w stop; [ -e \"$2/kept\" ] || rm -rf \"$2\"";

/// A server. A private one ends with this value, or with the process that has it.
#[derive(Debug)]
pub struct Postgres {
    url: String,
    private: Option<PrivateServer>,
}

#[derive(Debug)]
struct PrivateServer {
    programs: PathBuf,
    user: Option<u32>,
    dir: PathBuf,
    port: u16,
    _end: Guard,
}

impl Postgres {
    /// Whether there is one, or one can be begun.
    #[must_use]
    pub fn is_installed() -> bool {
        std::env::var_os(SERVER).is_some() || programs().is_some()
    }

    /// The server, or nothing where PostgreSQL is not installed.
    ///
    /// # Errors
    /// When it is installed and does not start.
    pub fn find() -> Result<Option<Self>, KitError> {
        match std::env::var(SERVER) {
            Ok(url) => Ok(Some(Self { url, private: None })),
            Err(_) => Self::begin(),
        }
    }

    /// A private server, or nothing where PostgreSQL is not installed.
    ///
    /// # Errors
    /// When it is installed and does not start.
    pub fn begin() -> Result<Option<Self>, KitError> {
        let Some(programs) = programs() else {
            return Ok(None);
        };
        let own = PrivateServer::new(programs)?;
        let url = format!("postgres://conjure@127.0.0.1:{}/postgres", own.port);
        Ok(Some(Self {
            url,
            private: Some(own),
        }))
    }

    /// The URL of a database in which others may be made.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The URL of another database of the server, which need not be there.
    #[must_use]
    pub fn url_of(&self, database: &str) -> String {
        let (before, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let server = before.rsplit_once('/').map_or(before, |(server, _)| server);
        format!("{server}/{database}?{query}")
    }

    /// Ends a private server; connections end with it.
    ///
    /// # Errors
    /// When it does not end, or is not private.
    pub fn stop(&self) -> Result<(), KitError> {
        self.private_server()?
            .run("pg_ctl", &["-m", "fast", "-w", "stop"])
    }

    /// Begins a private server again that was ended, at the same address.
    ///
    /// # Errors
    /// When it does not start, or is not private.
    pub fn start(&self) -> Result<(), KitError> {
        self.private_server()?.start()
    }

    /// Keeps a private server's files after its end, and says where they are.
    #[must_use]
    pub fn keep(&self) -> Option<&Path> {
        let own = self.private.as_ref()?;
        fs::write(own.dir.join(KEEP_MARKER), "").ok()?;
        Some(&own.dir)
    }

    fn private_server(&self) -> Result<&PrivateServer, KitError> {
        self.private.as_ref().ok_or_else(|| KitError::Failed {
            program: PathBuf::from("pg_ctl"),
            said: "the server is not a private one".to_owned(),
        })
    }
}

impl PrivateServer {
    fn new(programs: PathBuf) -> Result<Self, KitError> {
        let user = if rustix::process::geteuid().is_root() {
            // It refuses to run as root.
            let user = user("postgres").or_else(|| user("nobody"));
            Some(user.ok_or_else(|| KitError::Failed {
                program: PathBuf::from("postgres"),
                said: "there is no user `postgres` or `nobody` to run it as".to_owned(),
            })?)
        } else {
            None
        };
        let dir = tempfile::Builder::new()
            .prefix("conjure-postgres-")
            .tempdir()
            .map_err(KitError::file(std::env::temp_dir()))?
            .keep();
        let text = |path: &Path| path.display().to_string();
        let end = Guard::new(END, &[&text(&programs), &text(&dir)], user);
        let own = Self {
            _end: end.map_err(KitError::file("/bin/sh"))?,
            programs,
            user,
            port: crate::free_port()?,
            dir,
        };
        let data = own.dir.join("data");
        fs::create_dir(&data).map_err(KitError::file(&data))?;
        for (path, mode) in [(&own.dir, 0o711), (&data, 0o700)] {
            fs::set_permissions(path, Permissions::from_mode(mode))
                .and_then(|()| {
                    own.user
                        .map_or(Ok(()), |user| chown(path, Some(user), None))
                })
                .map_err(KitError::file(path))?;
        }
        own.run(
            "initdb",
            &["-U", "conjure", "-A", "trust", "-E", "UTF8", "--no-sync"],
        )?;
        own.start()?;
        Ok(own)
    }

    fn start(&self) -> Result<(), KitError> {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={} -c fsync=off -c \
             max_connections=200",
            self.port,
            self.dir.display()
        );
        self.run(
            "pg_ctl",
            &["-w", "-t", "60", "-l", "log", "-o", &options, "start"],
        )
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), KitError> {
        let program = self.programs.join(program);
        let mut command = Command::new(&program);
        command
            .arg("-D")
            .arg(self.dir.join("data"))
            .args(arguments)
            .current_dir(&self.dir)
            .env("LC_ALL", "C")
            // A signal to the whole group of a terminal is not for the server: its guard ends it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user);
        }
        let status = command.status().map_err(|source| KitError::Start {
            program: program.clone(),
            source,
        })?;
        if status.success() {
            return Ok(());
        }
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        Err(KitError::Failed {
            program,
            said: format!("{status}\n{log}"),
        })
    }
}

fn programs() -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    // Debian keeps them by version.
    if let Ok(versions) = fs::read_dir("/usr/lib/postgresql") {
        places.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let has_all = |dir: &Path| ["initdb", "pg_ctl"].iter().all(|p| dir.join(p).is_file());
    places.into_iter().find(|dir| has_all(dir))
}

fn user(name: &str) -> Option<u32> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let is_it = |line: &&str| line.split(':').next() == Some(name);
    users.lines().find(is_it)?.split(':').nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::os::unix::process::ExitStatusExt as _;
    use std::time::{Duration, Instant};

    use super::*;

    const CHILD: &str = "CONJURE_TEST_POSTGRES_CHILD";

    #[test]
    #[ignore = "runs in a child process"]
    fn child_that_has_a_server() {
        let server = Postgres::begin().unwrap().unwrap();
        let own = server.private.as_ref().unwrap();
        let said = format!("{} {}", own.port, own.dir.display());
        let path = PathBuf::from(std::env::var_os(CHILD).unwrap());
        fs::write(path.with_extension("part"), said).unwrap();
        fs::rename(path.with_extension("part"), path).unwrap();
        std::thread::sleep(Duration::from_secs(600));
    }

    #[test]
    fn a_private_server_ends_with_its_process_however_that_is_ended() {
        if programs().is_none() {
            println!("LEFT OUT: PostgreSQL: it is not installed (Debian: postgresql)");
            return;
        }
        let place = tempfile::tempdir().unwrap();
        for (number, signal) in ["INT", "TERM", "KILL"].into_iter().enumerate() {
            let noted = place.path().join(signal);
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args([
                    "--ignored",
                    "--exact",
                    "postgres::tests::child_that_has_a_server",
                ])
                .env(CHILD, &noted)
                .stdout(Stdio::null())
                .process_group(0)
                .spawn()
                .unwrap();
            let until = Instant::now() + Duration::from_secs(60);
            while !noted.exists() {
                assert!(Instant::now() < until, "no server begins");
                std::thread::sleep(Duration::from_millis(20));
            }
            let noted = fs::read_to_string(&noted).unwrap();
            let (port, dir) = noted.split_once(' ').unwrap();
            let at = format!("127.0.0.1:{port}");
            assert!(TcpStream::connect(&at).is_ok());
            // To the whole group, as a terminal does it.
            let group = format!("-{}", child.id());
            let sent = Command::new("kill")
                .args(["-s", signal, "--", &group])
                .status();
            assert!(sent.unwrap().success());
            assert_eq!(child.wait().unwrap().signal(), Some([2, 15, 9][number]));
            while Path::new(dir).exists() || TcpStream::connect(&at).is_ok() {
                assert!(
                    Instant::now() < until,
                    "{signal}: the server is still there"
                );
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}
