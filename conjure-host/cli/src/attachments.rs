//! What a person says, and the files that go with it.

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Read};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use conjure_config::fs;
use conjure_core::chat::Message;
use conjure_runtime::Host;
use conjure_runtime::uploads::{self, Upload};

use super::error::CliError;
use super::output;

/// What standard input is called, as a file.
const STDIN: &str = "stdin";

/// Files that go with a question.
#[derive(clap::Args)]
pub(crate) struct AttachArgs {
    /// Attach a file: an image, a PDF or a text is shown to the model, of others it knows the name,
    /// and tools open all of them. `-` is what comes on stdin. May be given several times
    #[arg(long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Attach an image that the model looks at: PNG, JPEG, GIF or WebP. May be given several times
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
}

/// Files that are there to go with a question.
pub(crate) struct FilesToAttach {
    files: Vec<AttachSource>,
    images: Vec<AttachSource>,
}

/// The device and the inode of a pipe.
type PipeId = (u64, u64);

/// What an attachment is read of.
#[derive(Debug)]
enum AttachSource {
    File(PathBuf),
    /// What came of a pipe, which says it only once.
    Pipe {
        name: String,
        bytes: Vec<u8>,
    },
}

/// The pipes that were read, whatever they were called.
#[derive(Default)]
struct ReadPipes {
    pipes: BTreeSet<PipeId>,
    /// Whether standard input was, which may be a file too.
    has_stdin: bool,
}

/// What a person says, with the files that go with it.
pub(crate) struct AttachedMessage {
    text: String,
    attached: Vec<Upload>,
}

impl AttachArgs {
    /// Whether a file is what comes on standard input.
    pub(crate) fn takes_stdin(&self) -> bool {
        self.file
            .iter()
            .chain(&self.image)
            .any(|path| is_stdin(path))
    }

    /// The files, once it is known that they are there. Pipes are read now: before anything is begun,
    /// and before signals are listened for, so that Ctrl-C still ends the program while it waits for a
    /// pipe that nobody writes to.
    pub(crate) fn read_pipes(self) -> Result<FilesToAttach, CliError> {
        let mut read = ReadPipes::default();
        let mut sources = |paths: Vec<PathBuf>| -> Result<Vec<AttachSource>, CliError> {
            let paths = paths.into_iter();
            paths
                .map(|path| AttachSource::of(path, &mut read))
                .collect()
        };
        Ok(FilesToAttach {
            files: sources(self.file)?,
            images: sources(self.image)?,
        })
    }
}

impl FilesToAttach {
    /// The question with the files.
    pub(crate) fn into_message(
        self,
        host: &Host,
        text: String,
    ) -> Result<AttachedMessage, CliError> {
        let mut attached = Vec::new();
        for file in self.files {
            attached.push(file.attach(host)?);
        }
        for source in self.images {
            let shown = source.display_name();
            // What a model cannot look at is refused, which says why.
            let image = source.attach(host)?;
            if !image.is_image {
                return Err(CliError::usage(format!(
                    "`{shown}` is no image that a model can look at: it is {} of {}",
                    image.media_type,
                    output::size(image.size)
                ))
                .hint(
                    "PNG, JPEG, GIF and WebP of at most 3.75 MB and 8,000 pixels a side are; \
                     `--file` attaches anything",
                ));
            }
            attached.push(image);
        }
        Ok(AttachedMessage { text, attached })
    }
}

impl AttachSource {
    /// Reads it where it is a pipe that was not read before.
    fn of(path: PathBuf, read: &mut ReadPipes) -> Result<Self, CliError> {
        if is_stdin(&path) {
            let pipe = pipe_at(Path::new("/dev/stdin"));
            let is_known = pipe.is_some_and(|pipe| !read.pipes.insert(pipe));
            if std::mem::replace(&mut read.has_stdin, true) || is_known {
                return Err(CliError::usage("standard input is attached already")
                    .hint("what comes on it can be read once: name `-` once"));
            }
            return read_stdin();
        }
        if fs::is_file(&path).map_err(CliError::usage_from)? {
            return Ok(Self::File(path));
        }
        if let Some(pipe) = pipe_at(&path) {
            let name = name_of(&path);
            // Nobody would write to it once more.
            if !read.pipes.insert(pipe) {
                return Err(CliError::usage(format!(
                    "`{}` is a pipe that is attached already",
                    path.display()
                ))
                .hint("what comes of a pipe can be read once: name it once"));
            }
            let bytes = fs::open(&path).and_then(bytes_of);
            let bytes = bytes.map_err(|error| read_error(error, &name))?;
            return Ok(Self::Pipe { name, bytes });
        }
        Err(if matches!(fs::is_dir(&path), Ok(true)) {
            CliError::usage(format!(
                "`{}` is a directory: files are attached one by one",
                path.display()
            ))
            .hint("a session works in a directory: `--working-dir`")
        } else {
            CliError::usage(format!(
                "`{}` is neither a file nor a pipe and cannot be attached",
                path.display()
            ))
            .hint("attach what it holds as a file or on stdin, with `--file -`")
        })
    }

    /// What the person called it.
    fn display_name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Pipe { name, .. } => name.clone(),
        }
    }

    fn attach(self, host: &Host) -> Result<Upload, CliError> {
        match self {
            Self::File(path) => attach(host, &path),
            Self::Pipe { name, bytes } => upload(host, &name, &bytes),
        }
    }
}

impl AttachedMessage {
    /// A text and files that were handed over.
    pub(crate) fn new(text: String, attached: Vec<Upload>) -> Self {
        Self { text, attached }
    }

    /// The words.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The ids of the files.
    pub(crate) fn attachments(&self) -> Vec<&str> {
        self.attached.iter().map(|file| file.id.as_str()).collect()
    }

    /// Both as a message.
    pub(crate) fn message(&self) -> Message {
        uploads::message(Some(&self.text), &self.attached)
    }
}

impl From<String> for AttachedMessage {
    fn from(text: String) -> Self {
        Self {
            text,
            attached: Vec::new(),
        }
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// The pipe that a path leads to, such as one that a shell puts in the place of a file.
fn pipe_at(path: &Path) -> Option<PipeId> {
    let found = path.metadata().ok()?;
    let is_pipe = found.file_type().is_fifo();
    is_pipe.then(|| (found.dev(), found.ino()))
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// What comes on standard input.
fn read_stdin() -> Result<AttachSource, CliError> {
    if std::io::stdin().is_terminal() {
        return Err(
            CliError::usage("nothing comes on stdin to be attached as `-`")
                .hint("give it a pipe or a file: `journalctl -b | conjure run --file - \"…\"`"),
        );
    }
    let bytes = bytes_of(std::io::stdin())
        .map_err(|error| CliError::usage_from(error).context("stdin cannot be read"))?;
    Ok(AttachSource::Pipe {
        name: STDIN.to_owned(),
        bytes,
    })
}

/// What can be read, up to one byte more than may be attached.
fn bytes_of(from: impl Read) -> std::io::Result<Vec<u8>> {
    let most = u64::try_from(uploads::MOST_BYTES).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    from.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read_error(error: std::io::Error, name: &str) -> CliError {
    CliError::usage_from(error).context(format_args!("`{name}` cannot be read"))
}

/// Hands a file over. What the model is not shown of it is told when it is said, as to everybody who
/// follows the session.
pub(crate) fn attach(host: &Host, path: &Path) -> Result<Upload, CliError> {
    let name = name_of(path);
    let size = fs::size(path).map_err(CliError::usage_from)?;
    if usize::try_from(size).is_ok_and(|size| size > uploads::MOST_BYTES) {
        let error = uploads::UploadError::TooLarge { name, size };
        return Err(CliError::usage_from(error));
    }
    // It may grow meanwhile.
    let bytes = fs::open(path).and_then(bytes_of);
    let bytes = bytes.map_err(|error| read_error(error, &name))?;
    upload(host, &name, &bytes)
}

/// Hands bytes over as a file of this name.
fn upload(host: &Host, name: &str, bytes: &[u8]) -> Result<Upload, CliError> {
    let upload = host.upload(name, None, bytes);
    upload.map_err(CliError::usage_from)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_pipe_is_read_where_it_is_named_and_a_device_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        let to = path.clone();
        let writer = std::thread::spawn(move || {
            let pipe = std::fs::OpenOptions::new().write(true).open(to);
            pipe.unwrap().write_all(b"lamp,on").unwrap();
        });
        let mut read = ReadPipes::default();
        let source = AttachSource::of(path.clone(), &mut read).unwrap();
        writer.join().unwrap();
        let AttachSource::Pipe { name, bytes } = source else {
            panic!("{source:?}");
        };
        assert_eq!((name.as_str(), bytes.as_slice()), ("pipe", &b"lamp,on"[..]));
        // Whatever it is called, it waits for nobody a second time.
        let other = dir.path().join("other");
        std::os::unix::fs::symlink(&path, &other).unwrap();
        for named in [path, other] {
            let error = AttachSource::of(named, &mut read).unwrap_err();
            assert!(error.to_string().contains("attached already"), "{error}");
        }
        let error = AttachSource::of("/dev/null".into(), &mut read).unwrap_err();
        assert!(
            error.to_string().contains("neither a file nor a pipe"),
            "{error}"
        );
    }
}
