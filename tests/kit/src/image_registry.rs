//! Debian's registry of container images, on loopback: where packages of plugins are published.

use std::fs;
use std::io::{self, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::KitError;

const PROGRAM: &str = "docker-registry";
/// How long it may take to listen.
const LIMIT: Duration = Duration::from_secs(30);

/// A registry. It ends with this value, and so does what it has.
#[derive(Debug)]
pub struct ImageRegistry {
    program: Child,
    port: u16,
    dir: TempDir,
}

impl ImageRegistry {
    /// One that lets everybody in, or nothing where none is installed, which is said then.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start() -> Result<Option<Self>, KitError> {
        Self::start_for("")
    }

    /// One for these users alone, as `htpasswd` writes them (bcrypt), or for everybody where none is
    /// named. Nothing where no registry is installed, which is said then.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_for(users: &str) -> Result<Option<Self>, KitError> {
        let dir = tempfile::tempdir().map_err(KitError::file("a temporary directory"))?;
        let port = crate::free_port()?;
        let config = dir.path().join("config.yml");
        let mut text = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {}\n\
             http:\n  addr: 127.0.0.1:{port}\n",
            dir.path().join("registry").display()
        );
        if !users.is_empty() {
            let file = dir.path().join("users");
            fs::write(&file, users).map_err(KitError::file(&file))?;
            let auth = "auth:\n  htpasswd:\n    realm: plugins\n    path: ";
            text.push_str(&format!("{auth}{}\n", file.display()));
        }
        fs::write(&config, text).map_err(KitError::file(&config))?;
        let program = Command::new(PROGRAM)
            .arg("serve")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let program = match program {
            Ok(program) => program,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why = format!("it is not installed (Debian: {PROGRAM})");
                // Not `println`, which the test harness hides when the test passes.
                let _ = writeln!(io::stderr(), "LEFT OUT: {PROGRAM}: {why}");
                return Ok(None);
            }
            Err(source) => {
                let program = PROGRAM.into();
                return Err(KitError::Start { program, source });
            }
        };
        let registry = Self { program, port, dir };
        registry.wait_until_it_listens()?;
        Ok(Some(registry))
    }

    fn wait_until_it_listens(&self) -> Result<(), KitError> {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            if begun.elapsed() > LIMIT {
                return Err(KitError::Deadline {
                    what: format!("`{PROGRAM}` to listen"),
                    limit: LIMIT,
                    seen: String::new(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Address of the registry: `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The directory with all that it has.
    #[must_use]
    pub fn files(&self) -> PathBuf {
        self.dir.path().join("registry")
    }
}

impl Drop for ImageRegistry {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
