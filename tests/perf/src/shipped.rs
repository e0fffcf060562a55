//! What is measured, built as it is shipped: the program, the plugins, and a skill that a third
//! party could have written.
//!
//! Cargo decides whether anything has to be built. Nothing here measures.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow};
use conjure_kit::SHIPPED_PLUGINS;
use serde_json::Value;

/// Something that a benchmark needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// The program `conjure`.
    Program,
    /// The local executor.
    Local,
    /// The container executor.
    Docker,
    /// The SSH executor.
    Ssh,
    /// The MCP backend, and a server for it.
    Mcp,
    /// Every plugin that comes with the program.
    Bundled,
    /// The program that counts allocations: everything else runs with the allocator that is shipped.
    Allocations,
    /// The measured skill, with the profile that the template of `conjure plugin create` has.
    Skill,
}

impl Need {
    /// The packages that it is built from.
    fn packages(self) -> &'static [&'static str] {
        match self {
            // The skill is made with the program.
            Self::Program | Self::Skill => &["conjure-cli"],
            Self::Local => &["conjure-backend-local"],
            Self::Docker => &["conjure-backend-docker"],
            Self::Ssh => &["conjure-backend-ssh"],
            Self::Mcp => &["conjure-backend-mcp", "conjure-mock-mcp"],
            Self::Bundled => &SHIPPED_PLUGINS,
            Self::Allocations => &[],
        }
    }
}

/// Where what was built is.
#[derive(Debug, Default)]
pub(crate) struct BenchArtifacts {
    program: Option<PathBuf>,
    local: Option<PathBuf>,
    docker: Option<PathBuf>,
    ssh: Option<PathBuf>,
    mcp: Option<PathBuf>,
    mcp_server: Option<PathBuf>,
    skill: Option<PathBuf>,
    allocations: Option<PathBuf>,
    bundled: Vec<PathBuf>,
}

/// What the program that counts allocations is called.
const COUNTER: &str = "conjure-perf-allocations";

/// What makes a release build a quick one.
const QUICK: [&str; 4] = [
    "--config",
    "profile.release.lto=false",
    "--config",
    "profile.release.codegen-units=16",
];

/// The measured skill's source.
const SKILL: &str = include_str!("../measured/lib.rs");

impl BenchArtifacts {
    /// Builds what is needed.
    ///
    /// # Errors
    /// When a build fails; the compiler's message is on stderr.
    pub(crate) fn build(needs: &BTreeSet<Need>, quick: bool) -> Result<Self> {
        let mut shipped = Self::default();
        if needs.contains(&Need::Allocations) {
            let mut command = cargo(&root());
            command.args(["build", "--release", "--package", "conjure-perf"]);
            command.args(["--bin", COUNTER]);
            set_target_dir(&mut command, quick)?;
            shipped.allocations = artifacts(&mut command)?
                .into_iter()
                .find_map(|artifact| artifact.program.filter(|_| artifact.target == COUNTER));
        }
        let packages: BTreeSet<&str> = needs
            .iter()
            .flat_map(|need| need.packages())
            .copied()
            .collect();
        if packages.is_empty() {
            return Ok(shipped);
        }
        let mut command = cargo(&root());
        command.args(["build", "--release"]);
        command.args(packages.iter().flat_map(|name| ["--package", *name]));
        let bundled: BTreeSet<String> = match needs.contains(&Need::Bundled) {
            true => SHIPPED_PLUGINS.map(|name| name.replace('-', "_")).into(),
            false => BTreeSet::new(),
        };
        set_target_dir(&mut command, quick)?;
        for artifact in artifacts(&mut command)? {
            if bundled.contains(&artifact.target) {
                shipped.bundled.extend(artifact.library.clone());
            }
            match artifact.target.as_str() {
                "conjure" => shipped.program = artifact.program,
                "conjure_backend_local" => shipped.local = artifact.library,
                "conjure_backend_docker" => shipped.docker = artifact.library,
                "conjure_backend_ssh" => shipped.ssh = artifact.library,
                "conjure_backend_mcp" => shipped.mcp = artifact.library.or(shipped.mcp),
                "mock-mcp" => shipped.mcp_server = artifact.program,
                _ => {}
            }
        }
        if needs.contains(&Need::Skill) {
            shipped.skill = Some(shipped.build_measured_skill(quick)?);
        }
        Ok(shipped)
    }

    /// The program `conjure`.
    pub(crate) fn program(&self) -> Result<&Path> {
        require_built(&self.program, "the program")
    }

    /// The local executor.
    pub(crate) fn local(&self) -> Result<&Path> {
        require_built(&self.local, "the local executor")
    }

    /// The container executor.
    pub(crate) fn docker(&self) -> Result<&Path> {
        require_built(&self.docker, "the container executor")
    }

    /// The SSH executor.
    pub(crate) fn ssh(&self) -> Result<&Path> {
        require_built(&self.ssh, "the SSH executor")
    }

    /// The MCP backend.
    pub(crate) fn mcp(&self) -> Result<&Path> {
        require_built(&self.mcp, "the MCP backend")
    }

    /// An MCP server over stdio.
    pub(crate) fn mcp_server(&self) -> Result<&Path> {
        require_built(&self.mcp_server, "the MCP server")
    }

    /// The measured skill.
    pub(crate) fn skill(&self) -> Result<&Path> {
        require_built(&self.skill, "the measured skill")
    }

    /// Every plugin that comes with the program.
    pub(crate) fn bundled(&self) -> Result<&[PathBuf]> {
        anyhow::ensure!(
            self.bundled.len() == SHIPPED_PLUGINS.len(),
            "the plugins that come with the program were not built; the benchmark does not say \
             that it needs them"
        );
        Ok(&self.bundled)
    }

    /// The program that counts allocations.
    pub(crate) fn allocations(&self) -> Result<&Path> {
        require_built(&self.allocations, "the program that counts allocations")
    }

    /// Makes the measured skill's crate with the program, as its author would, and builds it.
    fn build_measured_skill(&self, quick: bool) -> Result<PathBuf> {
        let dir = perf_dir()?.join("measured");
        let fresh = tempfile::tempdir()?;
        let fresh = fresh.path().join("measured");
        new_skill(self.program()?, "measured", &fresh)?;
        fs::write(fresh.join("src/lib.rs"), SKILL)?;
        fs::create_dir_all(dir.join("src"))?;
        // Only what is another one now, so that cargo builds only then.
        for name in ["Cargo.toml", "src/lib.rs"] {
            copy_if_changed(&fresh.join(name), &dir.join(name))?;
        }
        if !dir.join("Cargo.lock").exists() {
            fs::copy(fresh.join("Cargo.lock"), dir.join("Cargo.lock"))?;
        }
        let mut command = cargo(&dir);
        command.args(["build", "--release"]);
        if quick {
            command.args(QUICK);
        }
        artifacts(&mut command)?
            .into_iter()
            .find_map(|artifact| artifact.library.filter(|_| artifact.target == "measured"))
            .ok_or_else(|| anyhow!("no library came of the measured skill"))
    }
}

/// As it is shipped, or quickly: then beside the others, in the target directory of this program.
fn set_target_dir(command: &mut Command, quick: bool) -> Result<()> {
    if quick {
        let target = perf_dir()?.parent().map(Path::to_path_buf);
        let target = target.context("the target directory has no place")?;
        command.args(QUICK).arg("--target-dir").arg(target);
    }
    Ok(())
}

/// Makes a skill's crate with `conjure plugin create`, with this checkout's lock file: building it
/// then fetches nothing new.
///
/// # Errors
/// When the program fails.
pub(crate) fn new_skill(program: &Path, name: &str, dir: &Path) -> Result<()> {
    let output = Command::new(program)
        .args(["plugin", "create", "skill", name, "--path"])
        .arg(dir)
        .arg("--sdk")
        .arg(root().join("skill-sdk"))
        .output()
        .context("`conjure plugin create` could not be started")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(anyhow!("`conjure plugin create` failed: {said}"));
    }
    fs::copy(root().join("Cargo.lock"), dir.join("Cargo.lock"))
        .context("the lock file cannot be copied")?;
    Ok(())
}

/// Cargo in a directory, with nothing of this build's environment.
pub(crate) fn cargo(dir: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(dir);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let of_this_build = [
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CARGO_BIN_",
            "CARGO_PROFILE_",
        ]
        .iter()
        .any(|start| text.starts_with(start));
        if of_this_build || text == "RUSTFLAGS" || text == "OUT_DIR" {
            command.env_remove(&name);
        }
    }
    command
}

/// A directory below the target directory, for what is kept from run to run.
///
/// # Errors
/// When it cannot be made.
pub(crate) fn perf_dir() -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program has no path")?;
    // The program is in the directory of its profile.
    let target = own
        .ancestors()
        .nth(2)
        .context("this program is in no target directory of cargo's")?;
    let place = target.join("perf");
    fs::create_dir_all(&place).with_context(|| format!("cannot make {}", place.display()))?;
    Ok(place)
}

/// The root of this repository.
pub(crate) fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap_or(own).to_owned()
}

fn copy_if_changed(from: &Path, to: &Path) -> Result<()> {
    let text = fs::read(from)?;
    if fs::read(to).ok().as_ref() != Some(&text) {
        fs::write(to, text).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(())
}

struct Artifact {
    target: String,
    program: Option<PathBuf>,
    library: Option<PathBuf>,
}

/// Runs a build and gives what came of it.
fn artifacts(command: &mut Command) -> Result<Vec<Artifact>> {
    let output = command
        .args(["--quiet", "--message-format=json-render-diagnostics"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("cargo could not be started")?;
    if !output.status.success() {
        return Err(anyhow!("the build failed; the compiler's message is above"));
    }
    let messages = String::from_utf8_lossy(&output.stdout).into_owned();
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    Ok(messages.filter_map(|m| artifact(&m)).collect())
}

fn artifact(message: &Value) -> Option<Artifact> {
    let files = message.get("filenames")?.as_array()?;
    let library = files
        .iter()
        .filter_map(|file| file.as_str().map(PathBuf::from))
        .find(|file| file.extension() == Some(OsStr::new(std::env::consts::DLL_EXTENSION)));
    Some(Artifact {
        target: message.pointer("/target/name")?.as_str()?.to_owned(),
        program: message.get("executable")?.as_str().map(PathBuf::from),
        library,
    })
}

fn require_built<'a>(path: &'a Option<PathBuf>, what: &str) -> Result<&'a Path> {
    path.as_deref()
        .ok_or_else(|| anyhow!("{what} was not built; the benchmark does not say that it needs it"))
}
