//! A PostgreSQL server for tests: the one that `CONJURE_TEST_POSTGRES` names, by the URL of a
//! database in which others may be made, or a private one of this test's own.

use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use sea_orm::{ConnectionTrait as _, Database};

use crate::Place;

use super::{Bed, idempotency, keeping, runs, runtime, threads, transfer, writing};

/// A server, which ends with this value where this test began it.
pub(crate) struct Server {
    /// Of a database in which others may be made.
    url: String,
    _own: Option<Own>,
}

struct Own {
    programs: PathBuf,
    user: Option<u32>,
    dir: tempfile::TempDir,
}

impl Server {
    /// The server; where there is none the test is left out, and says so.
    pub(crate) fn get() -> Option<Self> {
        if let Ok(url) = std::env::var("CONJURE_TEST_POSTGRES") {
            return Some(Self { url, _own: None });
        }
        let Some(programs) = programs() else {
            println!("LEFT OUT: PostgreSQL: it is not installed (Debian: postgresql)");
            return None;
        };
        match Own::start(programs) {
            Ok((own, url)) => Some(Self {
                url,
                _own: Some(own),
            }),
            Err(why) => {
                println!("LEFT OUT: PostgreSQL: {why}");
                None
            }
        }
    }

    /// The URL of a database beside those of tests.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A new, empty database.
    pub(crate) async fn bed(&self) -> Bed {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("conjure_{}_{number}", std::process::id());
        let server = Database::connect(&self.url).await.unwrap();
        for sql in [
            format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            format!("CREATE DATABASE {name}"),
        ] {
            server.execute_unprepared(&sql).await.unwrap();
        }
        server.close().await.unwrap();
        let (before, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let (server, _) = before.rsplit_once('/').unwrap();
        let url = format!("{server}/{name}?{query}");
        Bed {
            place: Place::parse(&url).unwrap(),
        }
    }
}

impl Own {
    fn start(programs: PathBuf) -> Result<(Self, String), String> {
        let dir = tempfile::tempdir().map_err(|error| error.to_string())?;
        let user = if rustix::process::geteuid().is_root() {
            // It refuses to run as root.
            let user = user("postgres").or_else(|| user("nobody"));
            Some(user.ok_or("there is no user `postgres` or `nobody` to run it as")?)
        } else {
            None
        };
        let data = dir.path().join("data");
        std::fs::create_dir(&data).map_err(|error| error.to_string())?;
        for (path, mode) in [(dir.path(), 0o711), (&data, 0o700)] {
            let permissions = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(path, permissions).map_err(|error| error.to_string())?;
        }
        if let Some(user) = user {
            for path in [dir.path(), &data] {
                chown(path, Some(user), None).map_err(|error| error.to_string())?;
            }
        }
        let own = Self {
            programs,
            user,
            dir,
        };
        own.run(
            "initdb",
            &["-U", "conjure", "-A", "trust", "-E", "UTF8", "--no-sync"],
        )?;
        let port = free_port();
        let socket = own.dir.path().display();
        let options = format!(
            "-p {port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={socket} \
             -c fsync=off -c max_connections=200"
        );
        own.run(
            "pg_ctl",
            &["-w", "-t", "60", "-l", "log", "-o", &options, "start"],
        )?;
        let url = format!("postgres://conjure@127.0.0.1:{port}/postgres");
        Ok((own, url))
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let mut command = Command::new(self.programs.join(program));
        command
            .arg("-D")
            .arg(self.dir.path().join("data"))
            .args(arguments)
            .current_dir(self.dir.path())
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user);
        }
        let status = command.status().map_err(|error| error.to_string())?;
        if status.success() {
            return Ok(());
        }
        let log = std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        Err(format!("{program} failed with {status}: {log}"))
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.run("pg_ctl", &["-m", "immediate", "-w", "stop"]);
    }
}

fn programs() -> Option<PathBuf> {
    let on_path = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&on_path).collect();
    // Debian keeps them by version.
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        places.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let has_all = |dir: &Path| ["initdb", "pg_ctl"].iter().all(|p| dir.join(p).is_file());
    places.into_iter().find(|dir| has_all(dir))
}

fn user(name: &str) -> Option<u32> {
    let users = std::fs::read_to_string("/etc/passwd").ok()?;
    let line = users
        .lines()
        .find(|line| line.split(':').next() == Some(name))?;
    line.split(':').nth(2)?.parse().ok()
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[test]
fn every_case_holds_over_postgres_too() {
    let Some(server) = Server::get() else { return };
    let all = [
        threads::ALL,
        writing::ALL,
        keeping::ALL,
        runs::ALL,
        idempotency::ALL,
        transfer::ALL,
    ]
    .concat();
    for (name, case) in all {
        println!("{name}");
        runtime().block_on(async { case(server.bed().await).await });
    }
}
