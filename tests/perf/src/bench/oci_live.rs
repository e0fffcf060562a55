//! A package in a registry of container images on this machine: how soon after
//! `conjure plugin install` every open session of a server has its tools.
//!
//! Needs Debian's registry; where it is not installed this is left out and says so.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;
use conjure_kit::ImageRegistry;
use tempfile::TempDir;

use crate::figure::{Figure, short};
use crate::live_host::{LiveHost, SESSIONS};
use crate::measured::Versions;
use crate::samples::{Samples, ms};
use crate::shipped::BenchArtifacts;

/// Seconds that it may take.
const TARGET: f64 = 2.0;

const ROUNDS: u64 = 10;
const WARM_UP: u64 = 1;
/// The measured skill, and a tool of it.
const SKILL: &str = "measured";
const TOOL: &str = "measured_execute";

pub(super) fn run(shipped: &BenchArtifacts) -> Result<Vec<Figure>> {
    let Some(registry) = ImageRegistry::start()? else {
        return Ok(Vec::new());
    };
    let versions = Versions::of(shipped.skill()?)?;
    let host = LiveHost::start(shipped.program()?)?;
    let author = PackageAuthor::new(&host)?;
    let (mut live, mut installed) = (Samples::default(), Samples::default());
    for number in 1..=WARM_UP + ROUNDS {
        let place = package_reference(&registry, number);
        author.publish(&versions.number(number)?, &place)?;
        let begun = Instant::now();
        host.run_to_success([
            "plugin",
            "install",
            "--yes",
            "--signer",
            &author.public_key(),
            &place,
        ])?;
        let returned = begun.elapsed();
        host.wait_for_tool(TOOL, true)?;
        if number > WARM_UP {
            live.push(begun.elapsed().as_secs_f64());
            installed.push(ms(returned));
        }
        if number == 1 || number == WARM_UP + ROUNDS {
            host.answers(TOOL)?;
        }
        host.run_to_success(["plugin", "remove", SKILL])?;
        host.wait_for_tool(TOOL, false)?;
    }
    let method = format!(
        "From starting `conjure plugin install oci://…` (release), with Debian's registry on \
         loopback and a signed package of the measured skill that is new each time, to when its \
         tools are in the next request of each of {} open sessions of `conjure serve`. Each \
         session called it after the first and the last round.",
        SESSIONS.len()
    );
    let note = format!(
        "`plugin install` itself took {} ms.",
        short(installed.median())
    );
    Ok(vec![
        Figure::new("oci_live", "s", &live, &method)
            .at_most(TARGET)
            .note(note),
    ])
}

/// Author of a package, who packs, signs and publishes.
struct PackageAuthor<'a> {
    host: &'a LiveHost,
    dir: TempDir,
}

impl<'a> PackageAuthor<'a> {
    /// With a new key.
    fn new(host: &'a LiveHost) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let author = Self { host, dir };
        host.run_to_success(["plugin", "key", "--no-password", &author.path("key")])?;
        Ok(author)
    }

    fn public_key(&self) -> String {
        self.path("key.pub")
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).display().to_string()
    }

    /// Publishes a package of this library.
    fn publish(&self, library: &[u8], place: &str) -> Result<()> {
        let packed = tempfile::tempdir_in(self.dir.path())?;
        let file = packed.path().join("libmeasured.so");
        conjure_host::fs::write_atomic(&file, library)?;
        let (file, out) = (
            file.display().to_string(),
            packed.path().display().to_string(),
        );
        let key = self.path("key");
        self.host.run_to_success([
            "plugin",
            "pack",
            &file,
            "--license",
            "MIT",
            "--key",
            &key,
            "--out",
            &out,
        ])?;
        let package = package_in(packed.path())?.display().to_string();
        self.host
            .run_to_success(["plugin", "publish", &package, place])?;
        Ok(())
    }
}

/// The package that is in a directory.
fn package_in(dir: &Path) -> Result<PathBuf> {
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "conjure-plugin") {
            return Ok(path);
        }
    }
    Err(anyhow::anyhow!(
        "`conjure plugin pack` made no package in {}",
        dir.display()
    ))
}

/// Where the package of a round is. A tag that is a version would belong to one package only.
fn package_reference(registry: &ImageRegistry, number: u64) -> String {
    let address = registry.address();
    format!("oci://{address}/plugins/{SKILL}:round-{number}")
}
