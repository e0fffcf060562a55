//! What a person says, and the files that go with it.

use std::io::{IsTerminal as _, Read as _};
use std::path::{Path, PathBuf};

use conjure_config::fs;
use conjure_core::chat::Message;
use conjure_runtime::Host;
use conjure_runtime::uploads::{self, Upload};

use super::error::CliError;

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

    /// Whether the files are there, before anything is begun.
    pub(crate) fn check(&self) -> Result<(), CliError> {
        let mut named = self.file.iter().chain(&self.image);
        named.try_for_each(|path| {
            if is_stdin(path) {
                return Ok(());
            }
            if fs::is_dir(path).map_err(CliError::usage_from)? {
                return Err(CliError::usage(format!(
                    "`{}` is a directory: files are attached one by one",
                    path.display()
                ))
                .hint("a session works in a directory: `--working-dir`"));
            }
            Ok(())
        })
    }

    /// The question with the files.
    pub(crate) fn said(&self, host: &Host, text: String) -> Result<AttachedMessage, CliError> {
        let mut attached = Vec::new();
        for path in &self.file {
            attached.push(attach(host, path)?);
        }
        for path in &self.image {
            let image = attach(host, path)?;
            if !image.is_image {
                return Err(CliError::usage(format!(
                    "`{}` is no image that a model can look at: it is {} of {} bytes",
                    path.display(),
                    image.media_type,
                    image.size
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

impl AttachedMessage {
    /// A text and files that were handed over.
    pub(crate) fn with(text: String, attached: Vec<Upload>) -> Self {
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

/// Hands a file over.
pub(crate) fn attach(host: &Host, path: &Path) -> Result<Upload, CliError> {
    let most = uploads::MOST_BYTES;
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let (name, bytes) = if is_stdin(path) {
        if std::io::stdin().is_terminal() {
            return Err(
                CliError::usage("nothing comes on stdin to be attached as `-`")
                    .hint("give it a pipe or a file: `journalctl -b | conjure run --file - \"…\"`"),
            );
        }
        let mut bytes = Vec::new();
        let read = std::io::stdin().take(limit).read_to_end(&mut bytes);
        read.map_err(|error| CliError::usage_from(error).context("stdin cannot be read"))?;
        (STDIN.to_owned(), bytes)
    } else {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let size = fs::size(path).map_err(CliError::usage_from)?;
        let name = name.into_owned();
        if usize::try_from(size).is_ok_and(|size| size > most) {
            let error = uploads::UploadError::TooLarge { name, size };
            return Err(CliError::usage_from(error));
        }
        // A file may grow meanwhile, and a pipe has no size.
        let mut bytes = Vec::new();
        let read = fs::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes));
        read.map_err(|error| {
            CliError::usage_from(error).context(format_args!("`{name}` cannot be read"))
        })?;
        (name, bytes)
    };
    host.upload(&name, None, &bytes)
        .map_err(CliError::usage_from)
}
