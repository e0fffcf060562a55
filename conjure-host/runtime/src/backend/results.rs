//! From what a plugin gives back to what a call's output is in canonical chat.
//!
//! Files become artifacts, texts that are too long become artifacts with both ends shown, and
//! everything that a plugin got wrong is said without losing the rest.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use conjure_core::chat::OutputPart;
use conjure_core::context::{cut, file_line, result_lines};
use conjure_core::foreign_text::escape_line;
use conjure_skill_sdk::protocol::{FileRef, Part, ToolResult};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::artifacts::{
    Artifact, Artifacts, CallWindow, Fetch, FileError, FileMatch, HashBudget, LocationSlot,
    is_media_type,
};

/// What is shown of a text at the least, however much came before it.
const LEAST_SHOWN: usize = 256;
/// The most refusals that the model is told one by one.
const LISTED_REFUSALS: usize = 5;
/// The most parts of a result; what is beyond is counted. A text and the file of it behind it, as a
/// text resource of an MCP server comes, are one.
const MOST_PARTS: usize = 200;
/// The most bytes of a text that crossed as a file.
const MOST_SPILLED: u64 = 16 * 1024 * 1024;

/// Whether the data beside a result holds what an MCP server answered, word for word, for a
/// program on the other side of the session: as it is, in a file, or as an error.
pub fn has_server_answer(meta: &Map<String, Value>) -> bool {
    let names = ["mcp_result", "mcp_result_file", "mcp_error"];
    names.iter().any(|name| meta.contains_key(*name))
}

/// The most bytes of items of a provider's own tools that are kept of a call.
const MOST_SERVER_ITEMS: usize = 1024 * 1024;

/// Items of a provider's own tools that a call used, as its plugin tells them for people; none where
/// they are too many.
fn server_items(meta: &Map<String, Value>) -> Option<Value> {
    let told = meta.get("server_items")?.as_object()?;
    let (provider, items) = (told.get("provider")?.as_str()?, told.get("items")?);
    let items = items.as_array().filter(|items| !items.is_empty())?;
    let kept = json!({ "provider": provider, "server_items": items });
    (kept.to_string().len() <= MOST_SERVER_ITEMS).then_some(kept)
}

/// Collects the output of one call.
pub(crate) struct OutputCollector<'a> {
    files: CallFiles<'a>,
    working_dir: &'a Path,
    most_bytes: usize,
    /// Bytes of text that the model reads so far.
    used: usize,
    parts: Vec<OutputPart>,
    /// Whether what a plugin says is kept word for word too.
    verbatim: bool,
    plugin_result: Option<Box<ToolResult>>,
    server_items: Option<Value>,
}

/// Collects the files of one call.
pub(crate) struct CallFiles<'a> {
    artifacts: &'a Artifacts,
    backend: &'a Arc<str>,
    fetch: Option<Fetch>,
    budget: HashBudget,
    /// The call, among those that may write at the same time; nothing where it looks for no files.
    window: Option<CallWindow<'a>>,
    /// Whether the files that the call tells of while it runs were only found beside it.
    are_found: bool,
    /// Number of files that were refused.
    refused: usize,
    /// Files that the call made.
    created: Vec<Artifact>,
    /// Files that were found meanwhile and that the call cannot be said to have made.
    other_files: Vec<Artifact>,
}

/// What was collected.
pub(crate) struct CollectedOutput {
    pub(crate) parts: Vec<OutputPart>,
    pub(crate) files: Vec<Artifact>,
    pub(crate) other_files: Vec<Artifact>,
    pub(crate) plugin_result: Option<Box<ToolResult>>,
    pub(crate) server_items: Option<Value>,
}

impl<'a> CallFiles<'a> {
    /// An empty collection for a call on this backend. Nobody waits for large files any more once the
    /// call is cancelled.
    pub(crate) fn new(
        artifacts: &'a Artifacts,
        backend: &'a Arc<str>,
        fetch: Option<Fetch>,
        are_found: bool,
        cancel: &CancellationToken,
    ) -> Self {
        Self {
            artifacts,
            backend,
            fetch,
            budget: HashBudget::new(cancel.clone()),
            window: None,
            are_found,
            refused: 0,
            created: Vec::new(),
            other_files: Vec::new(),
        }
    }

    /// Registers a file that the call made.
    fn register(&mut self, file: &FileRef) -> Result<Option<Artifact>, FileError> {
        if self.artifacts.is_host_file(file) {
            return Ok(None);
        }
        let (artifacts, fetch) = (self.artifacts, self.fetch.clone());
        let window = self.window.as_ref();
        let created =
            artifacts.register_created(window, self.backend, file, fetch, &self.budget)?;
        Ok(Some(self.add_created(created)))
    }

    /// Registers a file that was found; nothing where the call cannot be said to have made it.
    fn register_found(&mut self, file: &FileRef) -> Result<Option<Artifact>, FileError> {
        if self.artifacts.is_host_file(file) {
            return Ok(None);
        }
        let (artifacts, fetch) = (self.artifacts, self.fetch.clone());
        let window = self.window.as_ref();
        let found = artifacts.register_found(window, self.backend, file, fetch, &self.budget)?;
        Ok(match found {
            FileMatch::Own(artifact) => Some(self.add_created(artifact)),
            FileMatch::Other(artifact) => {
                self.other_files.push(artifact);
                None
            }
            FileMatch::Nothing => None,
        })
    }

    /// Puts a file to those of the call.
    fn add_created(&mut self, artifact: Artifact) -> Artifact {
        if !self.created.iter().any(|known| known.id == artifact.id) {
            self.created.push(artifact.clone());
        }
        artifact
    }
}

impl<'a> OutputCollector<'a> {
    /// Nothing yet, of a call that reads so much at the most.
    pub(crate) fn new(files: CallFiles<'a>, working_dir: &'a Path, most_bytes: usize) -> Self {
        Self {
            files,
            working_dir,
            most_bytes,
            used: 0,
            parts: Vec::new(),
            verbatim: false,
            plugin_result: None,
            server_items: None,
        }
    }

    /// Keeps what the plugin says word for word too.
    pub(crate) fn verbatim(self, verbatim: bool) -> Self {
        Self { verbatim, ..self }
    }

    /// The call runs beside others that may write. Gives back the slot for the location where it
    /// works, which an executor alone tells.
    pub(crate) fn open_window(&mut self) -> Option<LocationSlot> {
        let CallFiles {
            artifacts,
            backend,
            are_found,
            ..
        } = self.files;
        let window = artifacts.begin(backend, are_found);
        let location = are_found.then(|| Arc::clone(window.location()));
        self.files.window = Some(window);
        location
    }

    /// Whether the call has said nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns everything that was collected.
    pub(crate) fn finish(self) -> CollectedOutput {
        CollectedOutput {
            parts: self.parts,
            files: self.files.created,
            other_files: self.files.other_files,
            plugin_result: self.plugin_result,
            server_items: self.server_items,
        }
    }

    /// Takes a tool result in; what of it is for programs comes back.
    pub(crate) fn tool_result(&mut self, result: ToolResult) -> Option<Value> {
        if self.verbatim {
            let is_whole = result.meta.as_ref().is_some_and(has_server_answer);
            self.plugin_result = Some(Box::new(result.clone()));
            // Nobody reads anything else of it.
            if is_whole {
                return result.structured;
            }
        }
        self.server_items = result.meta.as_ref().and_then(server_items);
        self.parts
            .reserve_exact(result.content.len().min(MOST_PARTS));
        let (mut parts, mut behind_text) = (0, false);
        for part in result.content {
            let is_of_text = behind_text && matches!(part, Part::File { .. });
            behind_text = matches!(part, Part::Text { .. });
            parts += usize::from(!is_of_text);
            if parts > MOST_PARTS {
                continue;
            }
            match part {
                Part::Text { text } => self.push_text(text),
                Part::Image { media_type, data } => self.image(&media_type, &data),
                Part::File { file } => self.spilled_or_file(&file),
                Part::Raw { value, .. } | Part::Other(value) => self.text(&value.to_string()),
            }
        }
        if parts > MOST_PARTS {
            self.text(&result_lines::more_parts(parts - MOST_PARTS));
        }
        if self.parts.is_empty()
            && let Some(structured) = &result.structured
        {
            self.text(&structured.to_string());
        }
        for file in result.files {
            self.file(&file);
        }
        result.structured
    }

    /// Takes a text in, cut when it is too long.
    pub(crate) fn text(&mut self, text: &str) {
        self.push_text(text.to_owned());
    }

    /// Takes a line of the host's about the call in, whole, however much came before it.
    pub(crate) fn note(&mut self, text: String) {
        self.parts.push(OutputPart::Text { text });
    }

    fn push_text(&mut self, text: String) {
        if text.is_empty() {
            return;
        }
        let room = self.most_bytes.saturating_sub(self.used).max(LEAST_SHOWN);
        let shown = if text.len() > room {
            match self
                .files
                .artifacts
                .spill(self.files.backend, "output.txt", &text)
            {
                Ok(artifact) => {
                    let shown = cut(&text, room, Some(&artifact.reference()));
                    self.files.created.push(artifact);
                    shown
                }
                Err(_) => cut(&text, room, None),
            }
        } else {
            None
        };
        let text = shown.unwrap_or(text);
        self.used += text.len();
        self.parts.push(OutputPart::Text { text });
    }

    /// Takes a file in that a call made, and tells the model about it.
    pub(crate) fn file(&mut self, file: &FileRef) {
        if let Some(artifact) = self.register(file) {
            self.push_file(&artifact);
        }
    }

    fn push_file(&mut self, artifact: &Artifact) {
        let place = artifact.path.as_deref().map(|path| {
            path.strip_prefix(self.working_dir)
                .unwrap_or(path)
                .display()
                .to_string()
        });
        let line = file_line(&artifact.reference(), place.as_deref());
        self.parts.push(OutputPart::Text { text: line });
        self.parts.push(OutputPart::File {
            artifact: artifact.reference(),
        });
    }

    /// Takes a file in that was found beside a command, and tells the model about it where this
    /// call made it.
    pub(crate) fn add_found(&mut self, file: &FileRef) {
        if let Some(artifact) = self.register_found(file) {
            self.push_file(&artifact);
        }
    }

    /// Takes files in that a call told of while it ran; the model hears how many there are.
    pub(crate) fn add_files(&mut self, files: &[FileRef]) {
        let mut kept = 0;
        for file in files {
            let taken = match self.files.are_found {
                true => self.register_found(file),
                false => self.register(file),
            };
            kept += usize::from(taken.is_some());
        }
        if kept > 0 {
            self.parts.push(OutputPart::Text {
                text: result_lines::more_files(kept),
            });
        }
    }

    /// Registers a file without a word to the model.
    pub(crate) fn register(&mut self, file: &FileRef) -> Option<Artifact> {
        let registered = self.files.register(file);
        self.report_refusal(registered)
    }

    fn register_found(&mut self, file: &FileRef) -> Option<Artifact> {
        let found = self.files.register_found(file);
        self.report_refusal(found)
    }

    /// Tells the model of a file that was refused.
    fn report_refusal(
        &mut self,
        registered: Result<Option<Artifact>, FileError>,
    ) -> Option<Artifact> {
        let error = match registered {
            Ok(artifact) => return artifact,
            Err(error) => error,
        };
        self.files.refused += 1;
        match self.files.refused {
            1..=LISTED_REFUSALS => {
                let why = error.to_string();
                self.text(&result_lines::refused_file(&escape_line(&why)));
            }
            number if number == LISTED_REFUSALS + 1 => {
                self.text(result_lines::MORE_REFUSED_FILES);
            }
            _ => {}
        }
        None
    }

    /// A text that crossed as a file is a text again; any other file is a file.
    fn spilled_or_file(&mut self, file: &FileRef) {
        let is_text = file.media_type.as_deref() == Some("text/plain") && file.id.is_none();
        let text = file.path.as_deref().filter(|_| is_text).and_then(|path| {
            let opened = self.files.artifacts.open_inside(Path::new(path)).ok()?;
            opened.bytes(MOST_SPILLED).ok()?
        });
        match text {
            Some(bytes) => self.text(&String::from_utf8_lossy(&bytes)),
            None => self.file(file),
        }
    }

    fn image(&mut self, media_type: &str, data: &str) {
        let kept = base64::engine::general_purpose::STANDARD
            .decode(data)
            .map_err(|error| error.to_string())
            .and_then(|bytes| {
                let (_, extension) = media_type
                    .rsplit_once('/')
                    .filter(|_| is_media_type(media_type))
                    .unwrap_or(("", "bin"));
                self.files
                    .artifacts
                    .keep_bytes(
                        self.files.backend,
                        &format!("image.{extension}"),
                        media_type,
                        &bytes,
                    )
                    .map_err(|error| error.to_string())
            });
        match kept {
            Ok(artifact) => {
                self.parts.push(OutputPart::Image {
                    artifact: artifact.reference(),
                });
                self.files.created.push(artifact);
            }
            Err(reason) => {
                self.parts.push(OutputPart::Text {
                    text: result_lines::refused_image(&reason),
                });
            }
        }
    }
}

/// A way to fetch the files of a backend, if it has one.
pub(crate) fn fetch_with(
    lease: &Arc<super::backend_lease::BackendLease>,
    request_context: &super::request_context::RequestContext,
) -> Option<Fetch> {
    use conjure_skill_sdk::protocol::{FilesGet, op};
    use futures_util::FutureExt as _;

    if !lease.plugin.manifest().has("files.get/1") {
        return None;
    }
    // Whatever may be fetched there keeps it open.
    let lease = Arc::clone(lease);
    let request_context = request_context.clone();
    Some(Arc::new(move |id, to| {
        let lease = Arc::clone(&lease);
        let request_context = request_context.clone();
        async move {
            // The exchange directory is where both sides may write.
            let crossing = request_context
                .exchange_dir
                .join(format!("get-{}", uuid::Uuid::now_v7()));
            let request = FilesGet {
                id,
                to: crossing.display().to_string(),
            };
            super::lease::ask::<_, FileRef>(
                lease.instance(),
                &request_context,
                op::FILES_GET,
                request,
            )
            .await
            .map_err(|error| error.to_string())?;
            conjure_config::fs::move_no_follow(&crossing, &to)
                .map_err(|error| format!("the backend wrote no file: {error}"))
        }
        .boxed()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_and_its_file_are_one_part_and_what_is_too_much_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let artifacts = Artifacts::new(vec![dir.path().to_owned()], dir.path().join("cache"));
        let backend = Arc::from("mcp");
        let resources = |count: usize| {
            let pairs = (0..count).flat_map(|number| {
                let path = dir.path().join(format!("{number}.txt"));
                std::fs::write(&path, number.to_string()).unwrap();
                let text = format!("[resource x://{number}]");
                let file = FileRef::at(path.display().to_string());
                [Part::Text { text }, Part::File { file }]
            });
            ToolResult {
                content: pairs.collect(),
                ..ToolResult::default()
            }
        };
        for (count, left_out) in [(MOST_PARTS, None), (MOST_PARTS + 3, Some("[3 more parts"))] {
            let files =
                CallFiles::new(&artifacts, &backend, None, false, &CancellationToken::new());
            let mut output = OutputCollector::new(files, dir.path(), 1 << 20);
            output.tool_result(resources(count));
            let output = output.finish();
            assert_eq!(output.files.len(), MOST_PARTS);
            let last = output.parts.last().unwrap();
            let told =
                matches!(last, OutputPart::Text { text } if text.starts_with("[3 more parts"));
            assert_eq!(told, left_out.is_some(), "{last:?}");
        }
    }
}
