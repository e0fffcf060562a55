//! {{title}}: an executor for Conjure.
//!
//! It runs commands with `sh`, in a directory for each session that is the plugin's own. Put your own
//! machine in its place, such as a container or a remote host: `conjure plugin test` says whether it
//! does what a host expects.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, ExecutorInit, ExecutorReady, FileRef, FilesGet, FilesPut,
    Permissions, SkillMount, StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{
    export_executor, Blocking, BlockingExecutor, BlockingFiles, Cx, Error, ExecutorPlugin, Result,
    Setup,
};

/// How much of each of stdout and stderr a reply holds, unless the host asks for another number.
const KEEP_BYTES: u64 = 32 * 1024;

/// One machine for all sessions of the host.
struct Machine {
    root: PathBuf,
    /// The variables that each session's commands get.
    env: Mutex<HashMap<String, BTreeMap<String, String>>>,
}

impl Machine {
    fn new(setup: Setup) -> Result<Self> {
        let own = setup.create.data_dir.ok_or_else(|| Error::new("the host gives no directory"))?;
        Ok(Self { root: PathBuf::from(own).join("sessions"), env: Mutex::default() })
    }

    /// All that belongs to the session that asks.
    fn session(&self, cx: &Cx) -> PathBuf {
        self.root.join(cx.session().unwrap_or("none").replace('/', "-"))
    }

    fn work(&self, cx: &Cx) -> PathBuf {
        self.session(cx).join("work")
    }

    /// Relative paths start at the working directory.
    fn path(&self, cx: &Cx, path: &str) -> PathBuf {
        self.work(cx).join(path)
    }

    fn read(&self, cx: &Cx, path: &str) -> Result<String> {
        let bytes = fs::read(self.path(cx, path))
            .map_err(|error| Error::not_found(format!("`{path}` cannot be read: {error}")))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn write(&self, cx: &Cx, path: &str, bytes: &[u8]) -> Result<Written> {
        let there = self.path(cx, path);
        let replaced = there.is_file();
        if let Some(dir) = there.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&there, bytes)
            .map_err(|error| Error::new(format!("`{path}` cannot be written: {error}")))?;
        Ok(Written { file: lazy(&there), replaced })
    }
}

/// A file that stays here until the host asks for it.
fn lazy(path: &Path) -> FileRef {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    FileRef::lazy(path.to_string_lossy(), name)
}

impl BlockingExecutor for Machine {
    /// Brings the skill folders here, and says how things look from inside.
    fn init(&self, cx: &Cx, request: ExecutorInit) -> Result<ExecutorReady> {
        let work = self.work(cx);
        fs::create_dir_all(&work)?;
        let mut skills = Vec::new();
        for skill in request.skills {
            let dir = self.session(cx).join("skills").join(&skill.name);
            copy(Path::new(&skill.dir), &dir).map_err(|error| {
                Error::new(format!("the skill folder `{}` cannot be read: {error}", skill.dir))
            })?;
            skills.push(SkillMount { dir: dir.to_string_lossy().into_owned(), ..skill });
        }
        let session = cx.session().unwrap_or_default().to_owned();
        let mut env = self.env.lock().map_err(|_| Error::new("the sessions are broken"))?;
        env.insert(session, request.env);
        Ok(ExecutorReady { working_dir: work.to_string_lossy().into_owned(), skills })
    }

    /// A command that fails is no error: the model reads its output and its exit code.
    fn bash(&self, cx: &Cx, request: Bash) -> Result<BashOutput> {
        let session = cx.session().unwrap_or_default();
        let env = self.env.lock().map_err(|_| Error::new("the sessions are broken"))?;
        let env = env.get(session).cloned().unwrap_or_default();
        let mut child = Command::new("sh")
            .args(["-c", &request.command])
            .current_dir(self.work(cx))
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .envs(env)
            .envs(&request.env)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Error::new(format!("no command can be started: {error}")))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let end = cx.time_limit().map(|limit| Instant::now() + limit);
        let mut timed_out = false;
        let (status, stdout, stderr) = thread::scope(|scope| {
            let out = scope.spawn(|| drain(stdout, |bytes| cx.stdout(bytes)));
            let err = scope.spawn(|| drain(stderr, |bytes| cx.stderr(bytes)));
            let status = loop {
                timed_out = end.is_some_and(|end| Instant::now() >= end);
                if timed_out || cx.cancelled() {
                    break None;
                }
                match child.try_wait() {
                    Ok(None) => thread::sleep(Duration::from_millis(5)),
                    Ok(status) => break status,
                    Err(_) => break None,
                }
            };
            // Whatever it left running ends too; what it wrote until then is read.
            end_group(child.id());
            let status = status.or_else(|| child.wait().ok());
            (status, out.join().unwrap_or_default(), err.join().unwrap_or_default())
        });
        cx.check()?;
        let keep = request.keep_bytes.unwrap_or(KEEP_BYTES) as usize;
        let full_output = if stdout.len() > keep || stderr.len() > keep {
            let path = format!("../output-{}.txt", cx.call_id().unwrap_or("last"));
            Some(self.write(cx, &path, &[stdout.as_slice(), &stderr].concat())?.file)
        } else {
            None
        };
        Ok(BashOutput {
            exit_code: status.and_then(|status| status.code()),
            signal: status.and_then(|status| status.signal()),
            stdout_bytes: stdout.len() as u64,
            stderr_bytes: stderr.len() as u64,
            stdout: end_of(&stdout, keep),
            stderr: end_of(&stderr, keep),
            full_output,
            timed_out,
            ..BashOutput::default()
        })
    }

    fn view(&self, cx: &Cx, request: View) -> Result<Viewed> {
        let path = self.path(cx, &request.path);
        if path.is_dir() {
            let mut content = String::new();
            list(&path, "", 2, &mut content)?;
            return Ok(Viewed { content, directory: true, ..Viewed::default() });
        }
        let text = self.read(cx, &request.path)?;
        let lines: Vec<&str> = text.lines().collect();
        let (first, last) = request.view_range.unwrap_or((1, -1));
        let first = usize::try_from(first - 1).unwrap_or(0);
        let last = usize::try_from(last).unwrap_or(lines.len()).min(lines.len());
        let shown = lines.get(first..last).ok_or_else(|| {
            Error::invalid(format!("`{}` has {} lines", request.path, lines.len()))
        })?;
        Ok(Viewed {
            content: shown.join("\n"),
            total_lines: Some(lines.len() as u64),
            ..Viewed::default()
        })
    }

    fn create_file(&self, cx: &Cx, request: CreateFile) -> Result<Written> {
        // What is too much for a text comes as a file.
        let bytes = match request.content.and_then(|file| file.path) {
            Some(path) => fs::read(path)?,
            None => request.file_text.unwrap_or_default().into_bytes(),
        };
        self.write(cx, &request.path, &bytes)
    }

    fn str_replace(&self, cx: &Cx, request: StrReplace) -> Result<Written> {
        let text = self.read(cx, &request.path)?;
        match text.matches(&request.old_str).count() {
            1 => {
                let text = text.replacen(&request.old_str, &request.new_str, 1);
                self.write(cx, &request.path, text.as_bytes())
            }
            n => Err(Error::invalid(format!(
                "the passage is in `{}` {n} times, not once: give the lines around it too",
                request.path
            ))),
        }
    }

    fn cleanup(&self, cx: &Cx) -> Result<()> {
        if let Ok(mut env) = self.env.lock() {
            env.remove(cx.session().unwrap_or_default());
        }
        let session = self.session(cx);
        if session.is_dir() {
            fs::remove_dir_all(session)?;
        }
        Ok(())
    }
}

/// The host reads and writes files of this machine only through these.
impl BlockingFiles for Machine {
    fn put(&self, cx: &Cx, request: FilesPut) -> Result<FileRef> {
        let from = request.file.path.ok_or_else(|| Error::invalid("the file has no path"))?;
        let there = self.path(cx, &request.file.name.replace('/', "-"));
        fs::copy(from, &there)?;
        Ok(FileRef::at(there.to_string_lossy()))
    }

    fn get(&self, _cx: &Cx, request: FilesGet) -> Result<FileRef> {
        fs::copy(&request.id, &request.to)
            .map_err(|error| Error::not_found(format!("`{}` cannot be read: {error}", request.id)))?;
        Ok(FileRef::at(request.to))
    }
}

/// Reads to the end, and shows each piece as it comes.
fn drain(from: Option<impl Read>, show: impl Fn(&[u8]) -> Result<()>) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 8192];
    let Some(mut from) = from else { return all };
    while let Ok(length) = from.read(&mut piece) {
        if length == 0 {
            break;
        }
        all.extend_from_slice(&piece[..length]);
        // Nobody looks any more when the call is cancelled.
        let _ = show(&piece[..length]);
    }
    all
}

/// Ends a command with everything that it started.
fn end_group(leader: u32) {
    let kill = format!("kill -s KILL -- -{leader}");
    let _ = Command::new("sh").args(["-c", &kill]).stderr(Stdio::null()).status();
}

/// The last bytes, from the beginning of a character on.
fn end_of(bytes: &[u8], keep: usize) -> String {
    let mut from = bytes.len().saturating_sub(keep);
    while bytes.get(from).is_some_and(|byte| byte & 0xc0 == 0x80) {
        from += 1;
    }
    String::from_utf8_lossy(&bytes[from..]).into_owned()
}

/// Names of a directory, `depth` levels of them.
fn list(dir: &Path, before: &str, depth: usize, content: &mut String) -> Result<()> {
    let mut entries: Vec<_> = fs::read_dir(dir)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let name = format!("{before}{}", entry.file_name().to_string_lossy());
        let is_dir = entry.file_type()?.is_dir();
        content.push_str(&name);
        content.push_str(if is_dir { "/\n" } else { "\n" });
        if is_dir && depth > 1 {
            list(&entry.path(), &format!("{name}/"), depth - 1, content)?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

fn executor() -> ExecutorPlugin<Blocking<Machine>> {
    ExecutorPlugin::new("{{name}}", "Runs commands in directories of its own", |setup| {
        Ok(Blocking::new(Machine::new(setup)?))
    })
    .with_files()
    .permissions(Permissions { commands: true, ..Permissions::default() })
}

export_executor!(executor);
