//! A server's program: where its file is, and the environment that it sees.
//!
//! The environment is an allowlist, because a host's own holds the keys of everything. What is not
//! found in the host's `PATH` is looked for in that of the person's login shell.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use conjure_exec_agent::sandbox_rules::SandboxRules;

use super::login_shell::{LoginShell, ShellAnswer, ShellFailure, join_paths};
use super::supervisors::Supervisors;

/// Variables of the host's that every server sees, besides everything that begins with `LC_`.
const PASSED_VARIABLES: &[&str] = &[
    "PATH", "HOME", "LOGNAME", "USER", "SHELL", "LANG", "TERM", "TMPDIR", "TZ",
];
const PATH: &str = "PATH";
/// Where programs are looked for when the host does not say.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The kernel reads no more of a script's first line.
const MAX_SHEBANG_BYTES: u64 = 256;

/// Command, environment and directory that a server is started from.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    pub(crate) command: &'a str,
    pub(crate) args: &'a [String],
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) pass_env: &'a [String],
    pub(crate) cwd: Option<&'a Path>,
    /// Whether the server is kept from the host's own files and processes.
    pub(crate) confine: bool,
    /// What alone it changes, where that is limited.
    pub(crate) sandbox: Option<SandboxRules>,
    /// Directories below the host's own that it sees all the same.
    pub(crate) visible: Vec<&'a Path>,
}

/// A program that was found, and its environment.
#[derive(Debug)]
pub(crate) struct ServerProgram {
    pub(super) file: PathBuf,
    pub(super) env: BTreeMap<OsString, OsString>,
}

/// Reasons why there is no program.
#[derive(Debug)]
enum ProgramNotFound {
    /// A file that was named.
    File(PathBuf),
    /// One that was looked for, and what wants it when that is not the configuration.
    Name(String, Option<PathBuf>),
}

impl Launch<'_> {
    /// Looks for the program.
    ///
    /// # Errors
    /// Where it was looked for. The kind is `NotFound`, or `TimedOut` when it may be found later.
    pub(crate) async fn find(
        &self,
        login_shell: &LoginShell,
        supervisors: &Arc<Supervisors>,
    ) -> io::Result<ServerProgram> {
        let mut env = self.environment(std::env::vars_os());
        let missing = match self.resolve(&env) {
            Ok(file) => return Ok(ServerProgram { file, env }),
            Err(missing) => missing,
        };
        let mut failed = missing.error(&env, None);
        // A path that the configuration names is the whole of it.
        if matches!(missing, ProgramNotFound::File(_)) || self.env.contains_key(PATH) {
            return Err(failed);
        }
        let own = path(&env).to_owned();
        let hosts = inherited_env(std::env::vars_os(), &[]);
        for stale in [false, true] {
            let answer = login_shell.path(stale, &hosts, supervisors).await;
            if let Ok(more) = &answer.path {
                env.insert(PATH.into(), join_paths(&own, more));
            }
            match self.resolve(&env) {
                Ok(file) => {
                    self.prepend_to_path(&file, &own, &mut env);
                    return Ok(ServerProgram { file, env });
                }
                Err(missing) => failed = missing.error(&env, Some(&answer)),
            }
        }
        Err(failed)
    }

    /// What is beside a program that only the login shell has belongs to it, as `node` does to
    /// `npx`: the host may have another one.
    fn prepend_to_path(&self, file: &Path, own: &OsStr, env: &mut BTreeMap<OsString, OsString>) {
        let Some(beside) = file.parent().filter(|_| !self.command.contains('/')) else {
            return;
        };
        if !std::env::split_paths(own).any(|dir| dir == beside) {
            let path = join_paths(beside.as_os_str(), path(env));
            env.insert(PATH.into(), path);
        }
    }

    fn environment(
        &self,
        host: impl Iterator<Item = (OsString, OsString)>,
    ) -> BTreeMap<OsString, OsString> {
        let mut env = inherited_env(host, self.pass_env);
        for (name, value) in self.env {
            env.insert(name.into(), value.into());
        }
        env
    }

    /// The program's file: what has a slash is a path, anything else is looked for. A script needs
    /// what runs it, too.
    fn resolve(&self, env: &BTreeMap<OsString, OsString>) -> Result<PathBuf, ProgramNotFound> {
        let named = self.command;
        let file = if named.contains('/') {
            let file = self.cwd.map_or_else(|| named.into(), |dir| dir.join(named));
            match file.is_file() {
                true => file,
                false => return Err(ProgramNotFound::File(file)),
            }
        } else {
            let found = self.search_path(path(env), named);
            found.ok_or_else(|| ProgramNotFound::Name(named.to_owned(), None))?
        };
        match interpreter(&file) {
            Some(needed) if self.search_path(path(env), &needed).is_none() => {
                Err(ProgramNotFound::Name(needed, Some(file)))
            }
            _ => Ok(file),
        }
    }

    /// The first program of that name. An entry that is not absolute is below where it will run.
    fn search_path(&self, path: &OsStr, name: &str) -> Option<PathBuf> {
        let cwd = self.cwd.unwrap_or(Path::new(""));
        let mut files = std::env::split_paths(path).map(|dir| cwd.join(dir).join(name));
        files.find(|file| is_program(file))
    }
}

impl ProgramNotFound {
    /// The error that whoever named the program reads.
    fn error(&self, env: &BTreeMap<OsString, OsString>, asked: Option<&ShellAnswer>) -> io::Error {
        let path = path(env).display();
        let mut why = match self {
            Self::File(file) => format!("there is no program {}", file.display()),
            Self::Name(name, None) => {
                format!("there is no program `{name}`; it was looked for in PATH={path}")
            }
            Self::Name(name, Some(script)) => format!(
                "there is no program `{name}`, which runs {}; it was looked for in PATH={path}",
                script.display()
            ),
        };
        let mut kind = io::ErrorKind::NotFound;
        if let Some(ShellAnswer { shell, path }) = asked {
            if matches!(path, Err(ShellFailure::TimedOut(_))) {
                kind = io::ErrorKind::TimedOut;
            }
            let shell = shell.display();
            why += &match path {
                Ok(_) => format!(" (the host's, and what a login shell, {shell}, has besides)"),
                Err(error) => {
                    format!("; the login shell {shell} could not be asked for more: {error}")
                }
            };
        }
        io::Error::new(kind, why)
    }
}

/// What is handed on of the host's environment.
fn inherited_env(
    host: impl Iterator<Item = (OsString, OsString)>,
    more: &[String],
) -> BTreeMap<OsString, OsString> {
    let passed = |name: &OsStr| {
        PASSED_VARIABLES.iter().any(|allowed| name == *allowed)
            || more.iter().any(|allowed| name == allowed.as_str())
            || name.as_encoded_bytes().starts_with(b"LC_")
    };
    let mut env: BTreeMap<_, _> = host.filter(|(name, _)| passed(name)).collect();
    env.entry(PATH.into())
        .or_insert_with(|| DEFAULT_PATH.into());
    env
}

fn path(env: &BTreeMap<OsString, OsString>) -> &OsStr {
    env.get(OsStr::new(PATH))
        .map_or(OsStr::new(""), |path| path)
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The program that `env` looks for to run a script: `node` of `#!/usr/bin/env node`. Of a line that
/// says more than that and `-S`, nothing is known.
fn interpreter(script: &Path) -> Option<String> {
    let mut begin = Vec::new();
    let file = File::open(script).ok()?;
    file.take(MAX_SHEBANG_BYTES).read_to_end(&mut begin).ok()?;
    let line = begin
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut words = std::str::from_utf8(line).ok()?.split_whitespace();
    if Path::new(words.next()?).file_name() != Some(OsStr::new("env")) {
        return None;
    }
    let mut name = words.next()?;
    let is_split = name == "-S";
    if is_split {
        name = words.next()?;
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.+-".contains(&byte);
    let is_plain = name.bytes().all(plain) && !name.starts_with('-');
    (is_plain && (is_split || words.next().is_none())).then(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use conjure_exec_agent::private::PrivatePaths;

    use super::*;

    fn launch<'a>(command: &'a str, env: &'a BTreeMap<String, String>) -> Launch<'a> {
        Launch {
            command,
            args: &[],
            env,
            pass_env: &[],
            cwd: None,
            confine: true,
            sandbox: None,
            visible: Vec::new(),
        }
    }

    fn with_path(path: &str) -> BTreeMap<OsString, OsString> {
        BTreeMap::from([(PATH.into(), path.into())])
    }

    fn find_program(command: &str, path: &str) -> Result<PathBuf, String> {
        let (own, env) = (BTreeMap::new(), with_path(path));
        let found = launch(command, &own).resolve(&env);
        found.map_err(|missing| missing.error(&env, None).to_string())
    }

    fn script(dir: &Path, name: &str, first_line: &str) -> String {
        let file = dir.join(name);
        std::fs::write(&file, format!("{first_line}\nexit 0\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        file.display().to_string()
    }

    #[test]
    fn the_environment_is_an_allowlist() {
        let host = [
            ("HOME", "/h"),
            ("API_KEY", "x"),
            ("LC_ALL", "C"),
            ("ASKED", "a"),
        ];
        let host = host.map(|(name, value)| (name.into(), value.into()));
        let own = BTreeMap::from([("OWN".to_owned(), "o".to_owned())]);
        let launch = Launch {
            pass_env: &["ASKED".to_owned()],
            ..launch("x", &own)
        };
        let env = launch.environment(host.into_iter());
        let names: Vec<_> = env.keys().map(|name| name.to_string_lossy()).collect();
        assert_eq!(names, ["ASKED", "HOME", "LC_ALL", "OWN", "PATH"]);
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_the_path() {
        assert!(
            find_program("sh", "/nowhere:/bin")
                .unwrap()
                .ends_with("bin/sh")
        );
        let error = find_program("no-such-program", "/nowhere:/bin").unwrap_err();
        assert!(error.contains("PATH=/nowhere:/bin"), "{error}");
        let error = find_program("/no/such/program", "/bin").unwrap_err();
        assert_eq!(error, "there is no program /no/such/program");
    }

    #[test]
    fn an_entry_that_is_not_absolute_is_below_where_it_will_run() {
        let (dir, own) = (tempfile::tempdir().unwrap(), BTreeMap::new());
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        let named = script(dir.path(), "bin/a", "#!/bin/sh");
        let launch = Launch {
            cwd: Some(dir.path()),
            ..launch("a", &own)
        };
        assert_eq!(
            launch.resolve(&with_path("bin:/bin")).unwrap(),
            Path::new(&named)
        );
    }

    #[test]
    fn what_is_beside_a_program_of_the_login_shell_comes_first() {
        let own = BTreeMap::new();
        let put = |command: &str, file: &str| {
            let mut env = with_path("/a:/b:/c");
            launch(command, &own).prepend_to_path(Path::new(file), OsStr::new("/a"), &mut env);
            path(&env).to_owned()
        };
        assert_eq!(put("npx", "/c/npx"), "/c:/a:/b");
        assert_eq!(put("npx", "/a/npx"), "/a:/b:/c");
        assert_eq!(put("./own", "/c/own"), "/a:/b:/c");
    }

    #[test]
    fn a_script_without_what_runs_it_is_missing_that() {
        let dir = tempfile::tempdir().unwrap();
        let named = script(dir.path(), "a", "#!/usr/bin/env no-such-program");
        let error = find_program(&named, "/bin").unwrap_err();
        let why = format!("there is no program `no-such-program`, which runs {named}; ");
        assert!(error.starts_with(&why), "{error}");
        let lines = [
            "#!/usr/bin/env sh",
            "#!/usr/bin/env -S sh -e",
            "#!/usr/bin/env -S A=b no-such-program",
            "#!/usr/bin/env -S -u B no-such-program",
            "#!/usr/bin/env no-such-program -e",
            "#! /bin/sh -e",
            "#!/no/such/program",
            "#!",
            "\u{7f}ELF",
        ];
        for line in lines {
            let named = script(dir.path(), "b", line);
            assert_eq!(find_program(&named, "/bin"), Ok(named.into()), "{line}");
        }
    }

    #[tokio::test]
    async fn a_path_that_the_configuration_names_is_the_whole_of_it() {
        let own = BTreeMap::from([(PATH.to_owned(), "/nowhere".to_owned())]);
        let launch = launch("sh", &own);
        let found = launch
            .find(
                &LoginShell::default(),
                &Supervisors::new(PrivatePaths::default()),
            )
            .await;
        let error = found.unwrap_err().to_string();
        assert!(
            error.ends_with("it was looked for in PATH=/nowhere"),
            "{error}"
        );
    }
}
