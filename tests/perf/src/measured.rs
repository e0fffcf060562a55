//! The measured skill: loaded by itself with an instance, and in a host's session.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow};
use conjure_core::chat::FunctionCall;
use conjure_host::plugin::{
    CallOptions, CopyStore, Instance, LoadedPlugin, Loader, LoaderOptions, NoServices,
    PluginRegistry, WorkerOptions,
};
use conjure_host::session::{SessionSpec, ToolSession};
use conjure_host::{Host, host_operations, plugin_create};
use conjure_skill_sdk::abi::HEADER_MAGIC;
use conjure_skill_sdk::protocol::Request;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::samples::Samples;

/// Operations of the measured skill.
pub(crate) const EXECUTE: &str = "skill.execute";
pub(crate) const NOTHING: &str = "skill.tool.nothing";

/// A place with a store, a plugin directory and a registry.
pub(crate) struct PluginFixture {
    pub(crate) root: TempDir,
    pub(crate) plugins: PathBuf,
    pub(crate) registry: Arc<PluginRegistry>,
}

impl PluginFixture {
    pub(crate) fn new() -> Result<Self> {
        Self::with(None)
    }

    /// A place whose plugins run in workers.
    pub(crate) fn with_workers(workers: WorkerOptions) -> Result<Self> {
        Self::with(Some(workers))
    }

    fn with(worker: Option<WorkerOptions>) -> Result<Self> {
        let root = tempfile::tempdir()?;
        let plugins = root.path().join("plugins");
        conjure_host::fs::create_private_dir(&plugins)?;
        let options = LoaderOptions {
            operations: host_operations(),
            worker,
            ..LoaderOptions::default()
        };
        let loader = Loader::new(CopyStore::open(root.path().join("store"))?, options);
        Ok(Self {
            plugins,
            registry: Arc::new(PluginRegistry::new(loader)),
            root,
        })
    }

    /// Puts a library's bytes into the plugin directory, whole at once.
    pub(crate) fn put(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.plugins.join(name);
        conjure_host::fs::write_atomic(&path, bytes)?;
        Ok(path)
    }

    /// Copies a library in and loads it.
    pub(crate) fn load(&self, library: &Path) -> Result<Arc<LoadedPlugin>> {
        let name = library.file_name().context("a library has a name")?;
        let path = self.put(&name.to_string_lossy(), &std::fs::read(library)?)?;
        Ok(self.registry.add(&path, false)?)
    }

    /// Copies a library in, loads it and makes an instance.
    pub(crate) async fn instance(&self, library: &Path) -> Result<Arc<Instance>> {
        instance(&self.load(library)?).await
    }
}

/// Makes an instance and waits for its first answer.
pub(crate) async fn instance(plugin: &Arc<LoadedPlugin>) -> Result<Arc<Instance>> {
    Ok(plugin
        .create(&plugin_create(None), Arc::new(NoServices))
        .await?)
}

/// A library of which other versions can be made: the same code under another hash.
pub(crate) struct Versions {
    bytes: Vec<u8>,
    /// Where the header's spare bytes are, which mean nothing.
    spare_offset: usize,
}

impl Versions {
    pub(crate) fn of(library: &Path) -> Result<Self> {
        /// Where the spare bytes begin in a header of this length.
        const SPARE_OFFSET: usize = 212;
        let bytes = std::fs::read(library)?;
        let mut beginning = HEADER_MAGIC.to_vec();
        beginning.extend(u32::try_from(conjure_abi::HEADER_LEN)?.to_le_bytes());
        let header = bytes
            .windows(beginning.len())
            .position(|window| window == beginning)
            .context("the library has no header")?;
        let spare = header + SPARE_OFFSET;
        Ok(Self {
            bytes,
            spare_offset: spare,
        })
    }

    /// The library with another number in its spare bytes.
    pub(crate) fn number(&self, number: u64) -> Result<Vec<u8>> {
        let mut bytes = self.bytes.clone();
        let spare = bytes
            .get_mut(self.spare_offset..self.spare_offset + 8)
            .filter(|spare| spare.iter().all(|byte| *byte == 0))
            .context("the header has no spare bytes where they should be")?;
        spare.copy_from_slice(&number.to_le_bytes());
        Ok(bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Kilobytes that are the process's own: resident and not backed by a file.
pub(crate) fn own_memory() -> Result<f64> {
    status("self", "RssAnon:")
}

/// A field of a process's status, in kilobytes.
pub(crate) fn status(process: &str, field: &str) -> Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    text.lines()
        .find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB"))
        .and_then(|kilobytes| kilobytes.parse().ok())
        .with_context(|| format!("the process's status has no {field}"))
}

/// A call of the measured skill with 100 bytes.
pub(crate) fn call(tool: &str) -> FunctionCall {
    let text = "x".repeat(100);
    FunctionCall {
        call_id: "toolu_01A09q90qw90lq917835lq9".to_owned(),
        name: format!("measured_{tool}"),
        arguments: match tool {
            "write" => json!({ "path": "x", "content": text }),
            _ => json!({ "command": text }),
        },
        arguments_text: None,
    }
}

/// The request of a call, as a plugin gets it.
pub(crate) fn request(call: &FunctionCall) -> Result<Vec<u8>> {
    let text = |text: &str| Some(text.to_owned());
    let request = Request {
        session: text("0198f2a4-7c1e-7d3a-9b52-3c5f0e6a1d20"),
        call_id: Some(call.call_id.clone()),
        working_dir: text("/tmp/.tmpAbCdEf/sessions/0198f2a4-7c1e-7d3a-9b52-3c5f0e6a1d20/work"),
        exchange_dir: text(
            "/tmp/.tmpAbCdEf/sessions/0198f2a4-7c1e-7d3a-9b52-3c5f0e6a1d20/exchange",
        ),
        deadline_ms: 30_000,
        ..Request::new(&call.arguments)
    };
    Ok(serde_json::to_vec(&request)?)
}

/// A host with the measured skill alone, and a session of it for calls without a model.
pub(crate) struct Session {
    calls: ToolSession,
    cancel: CancellationToken,
    _host: Host,
    _data: TempDir,
}

impl Session {
    pub(crate) async fn open(library: &Path) -> Result<Self> {
        Self::open_with(library, None).await
    }

    /// Opens a session with a host that has workers.
    pub(crate) async fn open_with(library: &Path, workers: Option<WorkerOptions>) -> Result<Self> {
        let data = tempfile::tempdir()?;
        let mut builder = Host::builder().data_dir(data.path()).plugin_file(library);
        if let Some(workers) = workers {
            builder = builder.workers(workers);
        }
        let host = builder.build().await?;
        Ok(Self {
            calls: host.calls(SessionSpec::calls(&[], None)).await?,
            cancel: CancellationToken::new(),
            _host: host,
            _data: data,
        })
    }

    /// One call, from tool call to result.
    pub(crate) async fn call(&self, call: &FunctionCall) -> Result<()> {
        let report = self.calls.call(call, &self.cancel).await?;
        anyhow::ensure!(!report.output.is_error, "the skill answered {report:?}");
        Ok(())
    }
}

/// Measures calls of an operation in place, until there are enough samples. A busy machine takes
/// the permission back in between, so each attempt loads the plugin anew and earns it again.
///
/// # Errors
/// When it cannot be earned, or is lost all the time.
pub(crate) async fn measure_in_place(
    library: &Path,
    op: &str,
    enough: usize,
    measure: impl Fn(&Instance) -> Samples,
) -> Result<Samples> {
    const ATTEMPTS: usize = 200;
    let place = PluginFixture::new()?;
    let mut samples = Samples::default();
    for _ in 0..ATTEMPTS {
        let instance = place.instance(library).await?;
        earn_in_place(&instance, op).await?;
        samples.extend(&measure(&instance));
        if samples.len() >= enough {
            return Ok(samples);
        }
    }
    Err(anyhow!(
        "only {} batches of {enough} could be measured: the machine is too busy for calls in place",
        samples.len()
    ))
}

/// Makes ordinary calls until the operation may be called in place.
///
/// # Errors
/// When that takes too many.
async fn earn_in_place(instance: &Instance, op: &str) -> Result<()> {
    let json = serde_json::to_vec(&Request::new(json!({ "command": "x" })))?;
    // On a busy machine the first hundred are not always quick enough.
    for _ in 0..500 {
        for _ in 0..100 {
            instance
                .request(op, json.clone(), CallOptions::default())
                .await?;
        }
        if instance.request_in_place(op, &json).is_some() {
            return Ok(());
        }
    }
    Err(anyhow!(
        "`{op}` did not earn to be called in place; the machine is too busy"
    ))
}
