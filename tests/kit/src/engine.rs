//! A real container engine for tests, and an image that is made here: nothing is pulled.
//!
//! Speaks to the engine with its own command line, so that what is tested is not also what looks.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::KitError;

/// The image of tests: busybox as a shell with everything around it.
const IMAGE: &str = "conjure-test-busybox:2";

/// The engine of this machine.
#[derive(Clone, Copy, Debug)]
pub struct Engine(());

impl Engine {
    /// The engine, with the image in it. Where there is none the test is left out, and says so.
    ///
    /// # Errors
    /// When there is an engine and the image cannot be made.
    pub fn find() -> Result<Option<Self>, KitError> {
        let left_out = |why: &str| {
            let _ = writeln!(std::io::stderr(), "LEFT OUT: docker: {why}");
            Ok(None)
        };
        let engine = Self(());
        match engine.docker(["version", "--format", "{{.Server.Version}}"]) {
            Ok(_) => {}
            Err(KitError::Start { .. }) => return left_out("there is no program `docker`"),
            Err(_) => return left_out("no engine answers"),
        }
        if engine.docker(["image", "inspect", IMAGE]).is_err() {
            match engine.make_image() {
                Ok(true) => {}
                Ok(false) => return left_out("there is no static busybox for an image"),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(engine))
    }

    /// The image to use.
    #[must_use]
    pub fn image(&self) -> &'static str {
        IMAGE
    }

    /// Runs `docker` with these arguments and gives what it printed.
    ///
    /// # Errors
    /// When it cannot be started or fails, with what it said.
    pub fn docker<const N: usize>(&self, arguments: [&str; N]) -> Result<String, KitError> {
        run(Command::new("docker").args(arguments))
    }

    /// Whether it is Podman behind Docker's API.
    ///
    /// # Errors
    /// As [`Engine::docker`].
    pub fn is_podman(&self) -> Result<bool, KitError> {
        let parts = "{{range .Server.Components}}{{.Name}} {{end}}";
        let parts = self.docker(["version", "--format", parts])?;
        Ok(parts.contains("Podman"))
    }

    /// The ids of all containers with a label, running or not.
    ///
    /// # Errors
    /// As [`Engine::docker`].
    pub fn containers(&self, label: &str) -> Result<Vec<String>, KitError> {
        let filter = format!("label={label}");
        let listed = self.docker(["ps", "-aq", "--no-trunc", "--filter", &filter])?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// False when there is no busybox that runs alone.
    fn make_image(self) -> Result<bool, KitError> {
        let Some(busybox) = static_busybox() else {
            return Ok(false);
        };
        let dir = tempfile::tempdir().map_err(KitError::file("a temporary directory"))?;
        let root = dir.path();
        let made = || -> std::io::Result<()> {
            for name in ["bin", "etc", "tmp", "mnt", "proc", "dev", "sys"] {
                fs::create_dir(root.join(name))?;
            }
            // Some engines give a mounted /tmp the mode that the image's has.
            fs::set_permissions(root.join("tmp"), Permissions::from_mode(0o1777))?;
            fs::copy(&busybox, root.join("bin/busybox"))?;
            fs::write(root.join("etc/passwd"), "root:x:0:0::/:/bin/sh\n")
        };
        made().map_err(KitError::file(root))?;
        let applets = run(Command::new(&busybox).arg("--list"))?;
        for applet in applets.lines().filter(|applet| *applet != "busybox") {
            let link = root.join("bin").join(applet);
            symlink("busybox", &link).map_err(KitError::file(&link))?;
        }
        let archive = root.with_extension("tar");
        let path = archive.display().to_string();
        run(Command::new("tar")
            .arg("-C")
            .arg(root)
            .args(["-cf", &path, "."]))?;
        let imported = self.docker(["import", &path, IMAGE]);
        let _ = fs::remove_file(archive);
        imported.map(|_| true)
    }
}

/// A busybox without libraries, which the image has too: a program that names no interpreter.
pub fn static_busybox() -> Option<String> {
    let places = ["/bin/busybox", "/usr/bin/busybox"];
    let alone = |path: &&str| {
        let bytes = fs::read(Path::new(path)).unwrap_or_default();
        let start = bytes.get(..4_096).unwrap_or_default();
        !bytes.is_empty() && !start.windows(8).any(|bytes| bytes == b"/ld-linu")
    };
    places.into_iter().find(alone).map(str::to_owned)
}

fn run(command: &mut Command) -> Result<String, KitError> {
    let program = PathBuf::from(command.get_program());
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|source| KitError::Start {
            program: program.clone(),
            source,
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(KitError::Failed { program, said })
}
