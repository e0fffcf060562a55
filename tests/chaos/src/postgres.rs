//! A PostgreSQL server: the one that `CONJURE_TEST_POSTGRES` names, by the URL of a database in
//! which others may be made, or a private one.

use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use sea_orm::{ConnectionTrait as _, Database};

/// Names the server to use.
const SERVER: &str = "CONJURE_TEST_POSTGRES";

/// A server. One that was begun here ends with this value.
#[derive(Debug)]
pub struct Postgres {
    url: String,
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    programs: PathBuf,
    user: Option<u32>,
    dir: PathBuf,
    port: u16,
    is_kept: bool,
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
    pub fn find() -> Result<Option<Self>> {
        if let Ok(url) = std::env::var(SERVER) {
            return Ok(Some(Self { url, own: None }));
        }
        Self::begin()
    }

    /// A private server, or nothing where PostgreSQL is not installed.
    ///
    /// # Errors
    /// When it is installed and does not start.
    pub fn begin() -> Result<Option<Self>> {
        let Some(programs) = programs() else {
            return Ok(None);
        };
        let (own, url) = Own::start(programs)?;
        Ok(Some(Self {
            url,
            own: Some(own),
        }))
    }

    /// The URL of a database in which others may be made.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Ends a private server; connections end with it.
    ///
    /// # Errors
    /// When it does not end, or is not private.
    pub fn stop(&self) -> Result<()> {
        let own = self.own.as_ref().context("the server is not private")?;
        own.run("pg_ctl", &["-m", "fast", "-w", "stop"])
    }

    /// Begins a private server again that was ended, at the same address.
    ///
    /// # Errors
    /// When it does not start, or is not private.
    pub fn start(&self) -> Result<()> {
        self.own.as_ref().context("the server is not private")?.go()
    }

    /// Makes an empty database and gives its URL.
    ///
    /// # Errors
    /// What the server says.
    pub async fn database(&self, name: &str) -> Result<String> {
        let server = Database::connect(&self.url).await?;
        for sql in [
            format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)"),
            format!("CREATE DATABASE {name}"),
        ] {
            server.execute_unprepared(&sql).await?;
        }
        server.close().await?;
        let (before, query) = self.url.split_once('?').unwrap_or((&self.url, ""));
        let (server, _) = before
            .rsplit_once('/')
            .context("the server's URL names no database")?;
        Ok(format!("{server}/{name}?{query}"))
    }

    /// Keeps a private server's files after its end, and says where they are.
    #[must_use]
    pub fn keep(&mut self) -> Option<&Path> {
        let own = self.own.as_mut()?;
        own.is_kept = true;
        Some(&own.dir)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(own) = &self.own {
            let _ = own.run("pg_ctl", &["-m", "fast", "-w", "stop"]);
            if !own.is_kept {
                let _ = std::fs::remove_dir_all(&own.dir);
            }
        }
    }
}

impl Own {
    fn start(programs: PathBuf) -> Result<(Self, String)> {
        let dir = tempfile::Builder::new()
            .prefix("conjure-postgres-")
            .tempdir()?
            .keep();
        let mut own = Self {
            programs,
            user: None,
            dir,
            port: 0,
            is_kept: false,
        };
        if rustix::process::geteuid().is_root() {
            // It refuses to run as root.
            let user = user("postgres").or_else(|| user("nobody"));
            own.user = Some(user.context("there is no user `postgres` or `nobody` to run it as")?);
        }
        let data = own.dir.join("data");
        std::fs::create_dir(&data)?;
        for (path, mode) in [(&own.dir, 0o711), (&data, 0o700)] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
            if let Some(user) = own.user {
                chown(path, Some(user), None)?;
            }
        }
        own.run(
            "initdb",
            &["-U", "conjure", "-A", "trust", "-E", "UTF8", "--no-sync"],
        )?;
        own.port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        own.go()?;
        let url = format!("postgres://conjure@127.0.0.1:{}/postgres", own.port);
        Ok((own, url))
    }

    fn go(&self) -> Result<()> {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories={} -c fsync=off",
            self.port,
            self.dir.display()
        );
        self.run(
            "pg_ctl",
            &["-w", "-t", "60", "-l", "log", "-o", &options, "start"],
        )
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<()> {
        let mut command = Command::new(self.programs.join(program));
        command
            .arg("-D")
            .arg(self.dir.join("data"))
            .args(arguments)
            .current_dir(&self.dir)
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(user) = self.user {
            command.uid(user);
        }
        let status = command.status()?;
        if !status.success() {
            let log = std::fs::read_to_string(self.dir.join("log")).unwrap_or_default();
            bail!("{program} failed with {status}: {log}");
        }
        Ok(())
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
    let is_it = |line: &&str| line.split(':').next() == Some(name);
    users.lines().find(is_it)?.split(':').nth(2)?.parse().ok()
}
