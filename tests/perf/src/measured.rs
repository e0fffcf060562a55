//! A loaded plugin with an instance, and one call of a tool as the host makes it.
//!
//! The host's own runner of calls is not public, so [`Caller`] takes its steps with the same
//! types: look-up, envelope, JSON, the instance, JSON, output. Measures nothing.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use conjure_core::chat::{FunctionCall, FunctionCallOutput, OutputPart};
use conjure_core::routing::{Catalog, CatalogTool, Effects, Naming, Prefix, RoutingTable};
use conjure_host::plugin::{
    CallMeta, CallOptions, Emit, Instance, LoadedPlugin, Loader, LoaderOptions, NoServices,
    Registry, Store, emit_channel,
};
use conjure_host::{host_operations, plugin_create};
use conjure_skill_sdk::abi::HEADER_MAGIC;
use conjure_skill_sdk::protocol::{Part, Request, ToolResult};
use serde::Serialize;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::samples::Samples;

/// Operations of the measured skill.
pub(crate) const EXECUTE: &str = "skill.execute";
pub(crate) const NOTHING: &str = "skill.tool.nothing";

/// How long calls may take.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A place with a store, a plugin directory and a registry.
pub(crate) struct Place {
    pub(crate) root: TempDir,
    pub(crate) plugins: PathBuf,
    pub(crate) registry: Arc<Registry>,
}

impl Place {
    pub(crate) fn new() -> Result<Self> {
        let root = tempfile::tempdir()?;
        let plugins = root.path().join("plugins");
        conjure_host::fs::create_private_dir(&plugins)?;
        let options = LoaderOptions {
            operations: host_operations(),
            ..LoaderOptions::default()
        };
        let loader = Loader::new(Store::open(root.path().join("store"))?, options);
        Ok(Self {
            plugins,
            registry: Arc::new(Registry::new(loader)),
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
    spare: usize,
}

impl Versions {
    pub(crate) fn of(library: &Path) -> Result<Self> {
        /// Where the spare bytes begin in a header of this length.
        const SPARE: usize = 212;
        let bytes = std::fs::read(library)?;
        let mut beginning = HEADER_MAGIC.to_vec();
        beginning.extend(u32::try_from(conjure_abi::HEADER_LEN)?.to_le_bytes());
        let header = bytes
            .windows(beginning.len())
            .position(|window| window == beginning)
            .context("the library has no header")?;
        let spare = header + SPARE;
        Ok(Self { bytes, spare })
    }

    /// The library with another number in its spare bytes.
    pub(crate) fn number(&self, number: u64) -> Result<Vec<u8>> {
        let mut bytes = self.bytes.clone();
        let spare = bytes
            .get_mut(self.spare..self.spare + 8)
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

/// Calls the measured skill as the host's runner does.
pub(crate) struct Caller {
    table: RoutingTable,
    targets: HashMap<Arc<str>, Arc<Instance>>,
    session: Arc<str>,
    turn_id: Arc<str>,
    working_dir: PathBuf,
    exchange_dir: PathBuf,
    cancel: CancellationToken,
}

impl Caller {
    pub(crate) fn new(place: &Place, instance: &Arc<Instance>) -> Result<Self> {
        let tools = ["execute", "write"].map(|name| {
            let tool = CatalogTool::new(name, format!("skill.{name}"), Effects::Read);
            let version = instance.plugin().id().version.clone();
            let mut tool = tool.of_skill("measured", Some(version));
            tool.in_place = name == "execute";
            Arc::new(tool)
        });
        let catalog = Catalog {
            backend: "native".to_owned(),
            kind: "native".to_owned(),
            naming: Prefix::Skill,
            tools: tools.into(),
        };
        let table = RoutingTable::build(1, &[catalog], &Naming::default())?;
        let names = table.routes().iter().map(|route| route.name.as_str());
        Ok(Self {
            targets: names
                .map(|name| (name.into(), Arc::clone(instance)))
                .collect(),
            table,
            session: "0198f2a4-7c1e-7d3a-9b52-3c5f0e6a1d20".into(),
            turn_id: "0198f2a4-7c1e-7d3a-9b52-3c5f0e6a1d21".into(),
            working_dir: place.root.path().join("sessions/work"),
            exchange_dir: place.root.path().join("sessions/exchange"),
            cancel: CancellationToken::new(),
        })
    }

    /// A call in place; nothing when that is not earned.
    pub(crate) fn in_place(&self, call: &FunctionCall) -> Option<Result<FunctionCallOutput>> {
        let route = self.table.route(&call.name)?;
        let instance = self.targets.get(route.name.as_str())?;
        let json = match serde_json::to_vec(&self.envelope(call)) {
            Ok(json) => json,
            Err(error) => return Some(Err(error.into())),
        };
        let reply = instance.request_in_place(route.op(), &json)?;
        let reply = reply.map_err(|fault| anyhow!("{}", fault.text()));
        Some(reply.and_then(|reply| output(call, &reply)))
    }

    /// An ordinary call.
    pub(crate) async fn ordinary(&self, call: &FunctionCall) -> Result<FunctionCallOutput> {
        let route = self.table.route(&call.name).context("no route")?;
        let instance = self.targets.get(route.name.as_str()).context("no target")?;
        let json = serde_json::to_vec(&self.envelope(call))?;
        let (sink, mut stream) = emit_channel();
        let options = CallOptions {
            deadline: Some(TIMEOUT),
            sink: Some(sink),
            cancel: self.cancel.clone(),
            meta: CallMeta {
                session: Some(Arc::clone(&self.session)),
                call_id: Some(Arc::from(call.call_id.as_str())),
                turn_id: Some(Arc::clone(&self.turn_id)),
            },
        };
        let answer = instance.request(route.op(), json, options);
        tokio::pin!(answer);
        let reply = loop {
            tokio::select! {
                biased;
                Some(Emit { .. }) = stream.next() => {}
                answer = &mut answer => break answer?,
            }
        };
        output(call, &reply)
    }

    /// The request of a call.
    pub(crate) fn json(&self, call: &FunctionCall) -> Result<Vec<u8>> {
        Ok(serde_json::to_vec(&self.envelope(call))?)
    }

    fn envelope<'a>(&self, call: &'a FunctionCall) -> Request<&'a impl Serialize> {
        Request {
            session: Some(self.session.as_ref().to_owned()),
            call_id: Some(call.call_id.clone()),
            turn_id: Some(self.turn_id.as_ref().to_owned()),
            working_dir: Some(self.working_dir.display().to_string()),
            exchange_dir: Some(self.exchange_dir.display().to_string()),
            deadline_ms: u64::try_from(TIMEOUT.as_millis()).unwrap_or(u64::MAX),
            ..Request::new(&call.arguments)
        }
    }
}

fn output(call: &FunctionCall, reply: &[u8]) -> Result<FunctionCallOutput> {
    let result: ToolResult = serde_json::from_slice(reply)?;
    let parts = result.content.into_iter().map(|part| match part {
        Part::Text { text } => Ok(OutputPart::Text { text }),
        _ => Err(anyhow!("the skill answers with text")),
    });
    Ok(FunctionCallOutput {
        call_id: call.call_id.clone(),
        output: parts.collect::<Result<_>>()?,
        is_error: result.is_error,
    })
}

/// Measures calls of an operation in place, until there are enough samples. A busy machine takes
/// the permission back in between, so each attempt loads the plugin anew and earns it again.
///
/// # Errors
/// When it cannot be earned, or is lost all the time.
pub(crate) async fn in_place(
    library: &Path,
    op: &str,
    enough: usize,
    measure: impl Fn(&Place, Arc<Instance>) -> Result<Samples>,
) -> Result<Samples> {
    const ATTEMPTS: usize = 200;
    let place = Place::new()?;
    let mut samples = Samples::default();
    for _ in 0..ATTEMPTS {
        let instance = place.instance(library).await?;
        earn(&instance, op).await?;
        samples.extend(&measure(&place, instance)?);
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
async fn earn(instance: &Instance, op: &str) -> Result<()> {
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
