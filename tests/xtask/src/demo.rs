//! `cargo xtask demo`: "many backends, one agent" on a real log file.
//!
//! Builds what the demo needs and hands over to the shipped binary. What happens in the demo
//! is written in `tests/demo/`, not here.

#[cfg(test)]
mod runs;
mod third_backend;

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use third_backend::{ThirdBackend, Wish};

use crate::{artifacts::BuildOutput, files, repo};

/// The package of the host, and the plugins that the demo's session loads.
const PACKAGES: [&str; 3] = [
    "conjure-cli",
    "conjure-backend-local",
    "conjure-skill-log-fetcher",
];

/// The file that the log fetcher writes first in an empty directory.
const FETCHED: &str = "logs.jsonl";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The log to analyse: a file or an http(s) URL with a JSON array, JSON lines (also of
    /// `journalctl -o json`), logfmt, an access log of nginx or Apache, or text lines with a time, a
    /// level and a message [default: tests/demo/app.log]
    #[arg(long, value_name = "FILE|URL")]
    input: Option<String>,
    /// The backend that makes something to pass on of the report
    #[arg(long, value_name = "BACKEND", value_enum, default_value = "auto")]
    third: Wish,
    /// The image of the container [default: the one that `conjure docker build` makes]
    #[arg(long, value_name = "NAME")]
    image: Option<String>,
    /// Serve the page afterwards, with a session that works without a key, until Ctrl-C
    #[arg(long)]
    page: bool,
}

/// Builds, lays out the plugin directory, runs the demo.
pub(crate) fn run(args: &Args) -> Result<()> {
    let input = input(args.input.as_deref())?;
    let third = ThirdBackend::choose(args.third, args.image.as_deref())?;
    let begun = Instant::now();
    let mut packages = PACKAGES.to_vec();
    packages.extend(third.as_ref().map(ThirdBackend::package));
    eprintln!(
        "Building the host and {} plugins without optimisation. The first time that is a few \
         minutes; tests share most of it.",
        packages.len() - 1
    );
    let built = BuildOutput::dev(&packages)?;
    let host = built.program("conjure")?;
    let place = DemoDirs::fresh(host)?;
    for package in packages.iter().skip(1) {
        let library = place.add_plugin(built.library(package)?)?;
        // As where the program is installed, whose own plugins need no listing.
        let mut trust = Command::new(host);
        trust.args(["plugin", "trust"]).arg(library);
        repo::run(
            trust
                .arg("--data-dir")
                .arg(&place.data)
                .stdout(Stdio::null()),
        )?;
    }
    eprintln!("Built in {:.1} s.\n", begun.elapsed().as_secs_f64());
    let third = third.filter(|third| third.is_ready(host));
    place.session(&repo::root().join("tests/demo"), third.as_ref())?;

    let input = place.stage_input(&input)?;
    for arguments in [arguments("routes", &place), command_line(&place, &input)] {
        println!();
        repo::run(Command::new(host).args(arguments).current_dir(&place.work))?;
    }
    println!("\nThe files made are in {}", place.work.display());
    if args.page {
        println!();
        repo::run(Command::new(host).args(serve(&place)))?;
    }
    Ok(())
}

/// Serves the page with the demo's plugins and data.
fn serve(place: &DemoDirs) -> [OsString; 8] {
    [
        "serve".into(),
        "--demo".into(),
        "--listen".into(),
        "127.0.0.1:0".into(),
        "--plugin-dir".into(),
        place.plugins.clone().into(),
        "--data-dir".into(),
        place.data.clone().into(),
    ]
}

/// Asks the question. Runs in `place.work`, which is thereby the session's working directory.
fn command_line(place: &DemoDirs, input: &str) -> Vec<OsString> {
    let mut arguments = arguments("run", place);
    arguments.extend(["--set".into(), format!("input={input}").into()]);
    arguments.push(format!("Analyse the log {input} and report what is wrong.").into());
    arguments
}

/// A verb with the demo's session.
fn arguments(verb: &str, place: &DemoDirs) -> Vec<OsString> {
    vec![
        verb.into(),
        "--config".into(),
        place.session.join("demo.toml").into(),
        "--plugin-dir".into(),
        place.plugins.clone().into(),
        "--data-dir".into(),
        place.data.clone().into(),
    ]
}

/// A URL as it is, a file as an absolute path, since the demo runs elsewhere.
fn input(given: Option<&str>) -> Result<String> {
    let file = match given {
        Some(url) if url.starts_with("http://") || url.starts_with("https://") => {
            return Ok(url.to_owned());
        }
        Some(file) => PathBuf::from(file),
        None => repo::root().join("tests/demo/app.log"),
    };
    let absolute = file
        .canonicalize()
        .with_context(|| format!("the log `{}` cannot be read", file.display()))?;
    if absolute.is_dir() {
        bail!("`{}` is a directory; name a log file", file.display());
    }
    if !absolute.is_file() {
        bail!("`{}` is no regular file; name a log file", file.display());
    }
    absolute
        .into_os_string()
        .into_string()
        .map_err(|name| anyhow::anyhow!("the path {name:?} is not UTF-8; copy the log elsewhere"))
}

/// The directories of one run of the demo, below the target directory.
struct DemoDirs {
    plugins: PathBuf,
    work: PathBuf,
    data: PathBuf,
    session: PathBuf,
}

impl DemoDirs {
    /// Empty directories beside the directory that `host` was built into.
    fn fresh(host: &Path) -> Result<Self> {
        let target = host
            .parent()
            .and_then(Path::parent)
            .context("the host's binary is in no directory")?;
        let demo = target.join("demo");
        let place = Self {
            plugins: demo.join("plugins"),
            work: demo.join("work"),
            data: demo.join("data"),
            session: demo.join("session"),
        };
        for directory in [&place.plugins, &place.work, &place.data, &place.session] {
            files::empty(directory)?;
        }
        Ok(place)
    }

    /// The session file with what a third backend adds to it, beside a copy of what it names.
    fn session(&self, demo: &Path, third: Option<&ThirdBackend>) -> Result<()> {
        let read = |name: &str| {
            let path = demo.join(name);
            std::fs::read_to_string(&path)
                .with_context(|| format!("`{}` cannot be read", path.display()))
        };
        let mut session = read("demo.toml")?;
        if let Some(third) = third {
            session += &third.fragment(demo)?;
        }
        let write = |name: &str, text: &str| {
            let path = self.session.join(name);
            std::fs::write(&path, text)
                .with_context(|| format!("`{}` cannot be written", path.display()))
        };
        write("demo.toml", &session)?;
        write("script.json", &read("script.json")?)?;
        files::copy(&demo.join("skills"), &self.session.join("skills"))
    }

    /// What the skill is to fetch: a URL as it is; a file as a copy in the working directory,
    /// because a skill reads nothing outside it.
    fn stage_input(&self, input: &str) -> Result<String> {
        if input.starts_with("http://") || input.starts_with("https://") {
            return Ok(input.to_owned());
        }
        let name = Path::new(input)
            .file_name()
            .context("the log has no name")?;
        // The skill writes what it fetched under this name, which the script counts on.
        let name = match name == FETCHED {
            true => std::ffi::OsStr::new("input.jsonl"),
            false => name,
        };
        std::fs::copy(input, self.work.join(name))
            .with_context(|| format!("cannot copy `{input}`"))?;
        Ok(name.to_string_lossy().into_owned())
    }

    /// Copies one library in. A copy, so that a later build does not change a file that a
    /// running host may have loaded.
    fn add_plugin(&self, library: &Path) -> Result<PathBuf> {
        let name = library.file_name().context("a library without a name")?;
        let path = self.plugins.join(name);
        std::fs::copy(library, &path)
            .with_context(|| format!("cannot copy `{}`", library.display()))?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_log_is_there_and_absolute() {
        let log = input(None).unwrap();
        assert!(Path::new(&log).is_absolute() && log.ends_with("app.log"));
    }

    #[test]
    fn a_url_is_passed_on_and_a_missing_file_is_named() {
        assert_eq!(
            input(Some("https://example.org/a.log")).unwrap(),
            "https://example.org/a.log"
        );
        let error = input(Some("no/such.log")).unwrap_err();
        assert_eq!(error.to_string(), "the log `no/such.log` cannot be read");
        assert!(
            input(Some("/"))
                .unwrap_err()
                .to_string()
                .contains("directory")
        );
        let error = input(Some("/dev/zero")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`/dev/zero` is no regular file; name a log file"
        );
    }

    #[test]
    fn each_run_begins_with_empty_directories_and_its_own_copies() {
        let target = tempfile::tempdir().unwrap();
        let host = target.path().join("debug/conjure");
        let library = target.path().join("libone.so");
        std::fs::write(&library, "one").unwrap();
        let old = DemoDirs::fresh(&host).unwrap();
        std::fs::write(old.plugins.join("libold.so"), "old").unwrap();

        let place = DemoDirs::fresh(&host).unwrap();
        place.add_plugin(&library).unwrap();

        let names: Vec<_> = std::fs::read_dir(&place.plugins)
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(names, ["libone.so"]);
        let line = command_line(&place, "/logs/a.log");
        assert_eq!(line.first().unwrap(), "run");
        assert!(line.contains(&"input=/logs/a.log".into()));
    }

    /// What `tests/browser/specs/demo.spec.js` looks at in a browser.
    #[test]
    fn the_page_is_served_with_the_demonstration_its_plugins_and_its_data() {
        let target = tempfile::tempdir().unwrap();
        let place = DemoDirs::fresh(&target.path().join("debug/conjure")).unwrap();
        let line = serve(&place);
        assert_eq!(line[0], "serve");
        assert!(line.contains(&"--demo".into()));
        for (option, directory) in [
            ("--plugin-dir", &place.plugins),
            ("--data-dir", &place.data),
        ] {
            let pair = [OsString::from(option), directory.clone().into()];
            assert!(line.windows(2).any(|two| two == pair), "{line:?}");
        }
    }
}
