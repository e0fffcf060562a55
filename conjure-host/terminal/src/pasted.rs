//! What is pasted to go with a message: paths of files, as terminals paste what is dropped on them, and
//! the image that the clipboard holds.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use conjure_config::fs;
use crossterm::event::Event as Input;
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::image::ImageSize;

/// The most bytes of an image in the clipboard.
const MAX_IMAGE_BYTES: u64 = 32 * 1024 * 1024;
/// How long a program may take to give it.
const LIMIT: Duration = Duration::from_secs(3);
/// How long a disk may take to tell what pasted paths are: what is typed waits for it.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
/// The most bytes of a paste that may be paths.
const MAX_PATHS_BYTES: usize = 16 * 1024;

/// Programs that give the clipboard's image, each with the variable that says that it can be asked.
const PROGRAMS: [(&str, Option<&str>, &[&str]); 3] = [
    (
        "wl-paste",
        Some("WAYLAND_DISPLAY"),
        &["--type", "image/png"],
    ),
    (
        "xclip",
        Some("DISPLAY"),
        &["-selection", "clipboard", "-t", "image/png", "-o"],
    ),
    ("pngpaste", None, &["-"]),
];

/// The mentions of a text that is nothing but paths of files, quoted, escaped or as addresses;
/// nothing of any other text.
pub(crate) fn mentions(text: &str) -> Option<String> {
    if !may_be_paths(text) {
        return None;
    }
    let text = text.trim();
    // A path with blanks in it may come as it is.
    let whole = path(text).map(|path| vec![path]);
    let paths = whole.or_else(|| {
        let words = words(text)?;
        words.iter().map(|word| path(word)).collect()
    })?;
    let mentions: Option<String> = paths.iter().map(|path| mention(path)).collect();
    mentions.filter(|mentions| !mentions.is_empty())
}

/// Whether a text may be paths of files, as far as its length and its beginning say.
pub(crate) fn may_be_paths(text: &str) -> bool {
    let text = text.trim();
    let begins_so = text.starts_with(['/', '\'', '"']) || text.starts_with("file://");
    begins_so && text.len() <= MAX_PATHS_BYTES
}

/// A paste that may be paths of files, while the files are looked at.
#[derive(Debug)]
pub(crate) struct PathPaste {
    pub(crate) text: String,
    /// What was typed and pasted meanwhile.
    pub(crate) following_input: Vec<Input>,
    mentions: JoinHandle<Option<String>>,
    until: Instant,
}

impl PathPaste {
    /// Begins to look at the files, aside: a disk may be slow.
    pub(crate) fn start(text: String) -> Self {
        let paths = text.clone();
        Self {
            mentions: tokio::task::spawn_blocking(move || mentions(&paths)),
            until: Instant::now() + LOOKUP_TIMEOUT,
            following_input: Vec::new(),
            text,
        }
    }

    /// The mentions, as [`mentions`] has them; nothing too where a disk takes too long to tell.
    pub(crate) async fn mentions(&mut self) -> Option<String> {
        let looked_at = tokio::time::timeout_at(self.until, &mut self.mentions).await;
        looked_at.ok()?.ok()?
    }
}

/// How a file is mentioned so that it goes with the message.
pub(crate) fn mention(path: &Path) -> Option<String> {
    let path = path.to_str()?;
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+~".contains(c);
    let ends_so = path.ends_with(char::is_alphanumeric);
    if path.chars().all(is_plain) && ends_so {
        return Some(format!("@{path} "));
    }
    let is_sayable = ends_so && !path.contains(['"', '\n', '\r']);
    is_sayable.then(|| format!("@\"{path}\" "))
}

/// The regular file that a word names.
fn path(word: &str) -> Option<PathBuf> {
    let path = match word.strip_prefix("file://") {
        Some(address) => {
            let address = address.strip_prefix("localhost").unwrap_or(address);
            PathBuf::from(decode_percent(address)?)
        }
        None => PathBuf::from(word),
    };
    // A word of a sentence is a name too: only a path is one.
    if !path.is_absolute() {
        return None;
    }
    matches!(fs::is_file(&path), Ok(true)).then_some(path)
}

/// An address without its percent signs.
fn decode_percent(address: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = address.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The words of a text as a shell reads them; nothing where a quotation does not end.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(c) = letters.next() {
        match c {
            c if c.is_whitespace() => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(letters.next()?),
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match letters.next()? {
                        end if end == c => break,
                        '\\' if c == '"' => word.push(letters.next()?),
                        letter => word.push(letter),
                    }
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words)
}

/// A file with an image of the clipboard, which goes with this value.
#[derive(Debug)]
pub(crate) struct PastedImage(pub(crate) PathBuf);

impl Drop for PastedImage {
    fn drop(&mut self) {
        fs::remove_file(&self.0);
    }
}

/// Writes the image that the clipboard holds to a file of its own, which only the person can read.
///
/// # Errors
/// In words for the person.
pub(crate) async fn from_clipboard() -> Result<PastedImage, String> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let mut asked = false;
    for (program, variable, args) in PROGRAMS {
        if variable.is_some_and(|variable| !is_set(variable)) {
            continue;
        }
        let Ok(read) = tokio::time::timeout(LIMIT, output_of(program, args)).await else {
            return Err(format!(
                "`{program}` did not give the clipboard's image in time"
            ));
        };
        let Ok(bytes) = read else { continue };
        asked = true;
        let Some(size) = ImageSize::of(&bytes) else {
            continue;
        };
        let kept = save_image(&std::env::temp_dir(), &bytes, size.format);
        return kept.map_err(|error| format!("the clipboard's image cannot be kept: {error}"));
    }
    Err(if asked {
        "there is no image in the clipboard; a text is pasted with your terminal's own key"
            .to_owned()
    } else {
        "an image is pasted with `wl-paste`, `xclip` or `pngpaste`, and none of them can be used \
         here; the path of a file can be pasted, or dropped on the terminal"
            .to_owned()
    })
}

/// Writes an image to a new file with mode 0600. Its name is random: no other user can make it first.
fn save_image(dir: &Path, bytes: &[u8], format: &str) -> io::Result<PastedImage> {
    let mut file = tempfile::Builder::new()
        .prefix("conjure-pasted-")
        .suffix(&format!(".{format}"))
        .tempfile_in(dir)?;
    file.write_all(bytes)?;
    let (_, path) = file.keep()?;
    Ok(PastedImage(path))
}

async fn output_of(program: &str, args: &[&str]) -> io::Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut bytes = Vec::new();
    if let Some(stdout) = child.stdout.take() {
        stdout.take(MAX_IMAGE_BYTES).read_to_end(&mut bytes).await?;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn an_image_is_kept_in_a_file_that_nobody_could_name_before() {
        let dir = tempfile::tempdir().unwrap();
        let one = save_image(dir.path(), b"one", "png").unwrap();
        let two = save_image(dir.path(), b"two", "png").unwrap();
        for (image, bytes) in [(&one, b"one"), (&two, b"two")] {
            assert_eq!(std::fs::read(&image.0).unwrap(), bytes);
            let mode = std::fs::metadata(&image.0).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
            let name = image.0.file_name().unwrap().to_str().unwrap();
            assert!(
                !name.contains(&format!("-{}-", std::process::id())),
                "{name}"
            );
            assert!(mention(&image.0).is_some(), "{name}");
        }
        drop((one, two));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn paths_of_files_are_mentioned_however_a_terminal_pastes_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap();
        let image = b"GIF89a\x0a\x00\x14\x00";
        for name in ["a.gif", "two words.gif", "it's.gif"] {
            std::fs::write(at.join(name), image).unwrap();
        }
        std::fs::write(at.join("notes.txt"), "no image").unwrap();
        let dir = at.to_str().unwrap();
        let one = format!("@{dir}/a.gif ");
        let two = format!("@\"{dir}/two words.gif\" ");
        let both = format!("{one}{two}");
        let notes = format!("@{dir}/notes.txt ");
        let quote = format!("@\"{dir}/it's.gif\" ");
        for (pasted, wanted) in [
            (format!("{dir}/a.gif"), Some(&one)),
            (format!("'{dir}/a.gif' "), Some(&one)),
            (format!("\"{dir}/two words.gif\""), Some(&two)),
            (format!("{dir}/two\\ words.gif\n"), Some(&two)),
            (format!("{dir}/two words.gif"), Some(&two)),
            (format!("file://{dir}/two%20words.gif"), Some(&two)),
            (format!("{dir}/a.gif '{dir}/two words.gif'"), Some(&both)),
            (format!("'{dir}/it'\\''s.gif'"), Some(&quote)),
            (format!("{dir}/notes.txt"), Some(&notes)),
            (dir.to_owned(), None),
            (format!("{dir}/none.gif"), None),
            (format!("see {dir}/a.gif"), None),
            (format!("'{dir}/a.gif"), None),
            (format!("file://{dir}/two%2"), None),
            ("a.gif".to_owned(), None),
            ("/dev/zero".to_owned(), None),
            (String::new(), None),
        ] {
            let found = mentions(&pasted);
            assert_eq!(found.as_ref(), wanted, "{pasted:?}");
        }
    }
}
