//! A native skill: code that *is* the tool.
//!
//! A callback exists exactly when it is registered, so what the manifest declares and what the
//! code does cannot differ. What a skill has beside tools is in [`lists`].

mod contents;
mod lists;
mod options;
mod run_time;
mod text_arguments;
mod uri_template;

use conjure_abi::CallContext;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cx::Cx;
use crate::dispatch::{Dispatch, decode, encode, unsupported};
use crate::envelope::{self, Envelope};
use crate::error::{Error, Result};
use crate::manifest_base::{ManifestBase, ManifestKind, manifest_methods};
use crate::output::IntoToolResult;
use crate::protocol::{
    Empty, Execute, Manifest, Modify, Read, State, StateScope, ToolDecl, ToolResult, Write, op,
};
use crate::setup::Setup;
use crate::spill;

pub use contents::Contents;
pub use lists::ResourceTemplate;
use lists::SkillLists;
pub use options::ToolOptions;
use run_time::RunTime;

type SkillHandler = Box<dyn Fn(&[u8], CallContext) -> Result<Vec<u8>> + Send + Sync>;
type OnCreate = Box<dyn Fn(&Setup) -> Result<()> + Send + Sync>;

/// Builds a native skill.
///
/// The function that makes it runs once an instance: what its closures capture is the state of
/// one session, or of the whole host with [`Skill::shared`].
pub struct Skill {
    base: ManifestBase,
    tools: Vec<(ToolDecl, SkillHandler)>,
    hidden: Vec<(&'static str, SkillHandler)>,
    lists: SkillLists,
    run_time: RunTime,
    on_create: Vec<OnCreate>,
    state: StateScope,
}

impl Skill {
    /// A skill without callbacks.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            base: ManifestBase::new(name.into(), description.into()),
            tools: Vec::new(),
            hidden: Vec::new(),
            lists: SkillLists::default(),
            run_time: RunTime::default(),
            on_create: Vec::new(),
            state: StateScope::Session,
        }
    }

    manifest_methods!("skill", "http.send/1");

    /// Registers `execute`: a command in the skill's own grammar, which the model is shown.
    #[must_use]
    pub fn execute<R: IntoToolResult>(
        self,
        grammar: &str,
        run: impl Fn(&Cx, Execute) -> R + Send + Sync + 'static,
    ) -> Self {
        let schema = strings(&[("command", "The command, in this skill's grammar")], &[]);
        let text = format!("Runs a command. Grammar: {grammar}");
        self.callback(
            op::SKILL_EXECUTE,
            "execute",
            text,
            schema,
            ToolOptions::new(),
            run,
        )
    }

    /// Registers `read`; `what` says what can be read.
    #[must_use]
    pub fn read<R: IntoToolResult>(
        self,
        what: &str,
        run: impl Fn(&Cx, Read) -> R + Send + Sync + 'static,
    ) -> Self {
        let schema = strings(
            &[("path", "What to read")],
            &[
                ("offset", "How many units to skip"),
                ("limit", "How many units at the most"),
            ],
        );
        let options = ToolOptions::new().read_only();
        self.callback(
            op::SKILL_READ,
            "read",
            format!("Reads: {what}"),
            schema,
            options,
            run,
        )
    }

    /// Registers `write`; `what` says what can be written.
    #[must_use]
    pub fn write<R: IntoToolResult>(
        self,
        what: &str,
        run: impl Fn(&Cx, Write) -> R + Send + Sync + 'static,
    ) -> Self {
        let schema = strings(
            &[("path", "Where to write"), ("content", "What to write")],
            &[],
        );
        let text = format!("Writes: {what}");
        self.callback(
            op::SKILL_WRITE,
            "write",
            text,
            schema,
            ToolOptions::new(),
            run,
        )
    }

    /// Registers `modify`; `what` says what can be modified.
    #[must_use]
    pub fn modify<R: IntoToolResult>(
        self,
        what: &str,
        run: impl Fn(&Cx, Modify) -> R + Send + Sync + 'static,
    ) -> Self {
        let schema = strings(
            &[
                ("path", "What to modify"),
                ("old_content", "The passage to replace"),
                ("new_content", "What to put in its place"),
            ],
            &[],
        );
        let text = format!("Modifies: {what}");
        self.callback(
            op::SKILL_MODIFY,
            "modify",
            text,
            schema,
            ToolOptions::new(),
            run,
        )
    }

    /// Registers a tool whose schema comes from the type of its arguments.
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn tool<A, R>(
        self,
        name: &str,
        description: &str,
        run: impl Fn(&Cx, A) -> R + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + schemars::JsonSchema + 'static,
        R: IntoToolResult,
    {
        self.tool_with(name, description, ToolOptions::new(), run)
    }

    /// [`Skill::tool`] with options.
    #[cfg(feature = "schema")]
    #[must_use]
    pub fn tool_with<A, R>(
        self,
        name: &str,
        description: &str,
        options: ToolOptions,
        run: impl Fn(&Cx, A) -> R + Send + Sync + 'static,
    ) -> Self
    where
        A: DeserializeOwned + schemars::JsonSchema + 'static,
        R: IntoToolResult,
    {
        let operation = format!("{}{name}", op::SKILL_TOOL);
        self.callback(
            &operation,
            name,
            description.to_owned(),
            schema_of::<A>(),
            options,
            run,
        )
    }

    /// Registers a tool with a schema written by hand.
    #[must_use]
    pub fn raw_tool<R: IntoToolResult>(
        self,
        name: &str,
        description: &str,
        input_schema: Value,
        options: ToolOptions,
        run: impl Fn(&Cx, Value) -> R + Send + Sync + 'static,
    ) -> Self {
        let operation = format!("{}{name}", op::SKILL_TOOL);
        self.callback(
            &operation,
            name,
            description.to_owned(),
            input_schema,
            options,
            run,
        )
    }

    /// Says more about the tool that was registered last.
    #[must_use]
    pub fn with(mut self, options: ToolOptions) -> Self {
        if let Some((tool, _)) = self.tools.last_mut() {
            options.apply(tool);
        }
        self
    }

    /// One instance serves all sessions of the host.
    #[must_use]
    pub fn shared(mut self) -> Self {
        self.state = StateScope::Shared;
        self
    }

    /// Runs when an instance is made; an error refuses the instance.
    #[must_use]
    pub fn on_create(mut self, run: impl Fn(&Setup) -> Result<()> + Send + Sync + 'static) -> Self {
        self.on_create.push(Box::new(run));
        self
    }

    /// Registers the hand-over of state from one version to the next.
    #[must_use]
    pub fn upgrade(
        mut self,
        export: impl Fn(&Cx) -> Result<Value> + Send + Sync + 'static,
        import: impl Fn(&Cx, State) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.hidden.push((
            op::STATE_EXPORT,
            Box::new(move |json, raw| {
                let (Empty {}, envelope) = decode::<Empty>(op::STATE_EXPORT, json)?;
                let state = export(&Cx::new(raw, envelope))?;
                encode(&State {
                    version: String::new(),
                    state,
                })
            }),
        ));
        self.hidden.push((
            op::STATE_IMPORT,
            Box::new(move |json, raw| {
                let (state, envelope) = decode::<State>(op::STATE_IMPORT, json)?;
                import(&Cx::new(raw, envelope), state)?;
                encode(&Empty {})
            }),
        ));
        self
    }

    fn callback<A: DeserializeOwned + 'static, R: IntoToolResult>(
        mut self,
        operation: &str,
        name: &str,
        description: String,
        input_schema: Value,
        options: ToolOptions,
        run: impl Fn(&Cx, A) -> R + Send + Sync + 'static,
    ) -> Self {
        let mut tool = ToolDecl {
            op: operation.to_owned(),
            ..ToolDecl::new(name, description, input_schema)
        };
        options.apply(&mut tool);
        let operation = tool.op.clone();
        let handler: SkillHandler = Box::new(move |json, raw| {
            let (body, envelope) = match envelope::read::<A>(json) {
                Ok(parts) => parts,
                Err(_) => match arguments(&operation, json)? {
                    Ok(parts) => parts,
                    Err(answer) => return encode(&answer),
                },
            };
            let cx = Cx::new(raw, envelope);
            let result = run(&cx, body).into_tool_result();
            Ok(spill::encode(result, cx.exchange_dir())?)
        });
        self.tools.push((tool, handler));
        self
    }

    pub(crate) fn manifest(&self, name: &str, version: &str) -> Result<Manifest> {
        self.validate(name)?;
        let mut capabilities = vec!["conjure.ping/1".to_owned(), "stream/1".to_owned()];
        for (tool, _) in &self.tools {
            let capability = match tool.op.strip_prefix(op::SKILL_TOOL) {
                Some(_) => "skill.tool/1".to_owned(),
                None => format!("{}/1", tool.op),
            };
            if !capabilities.contains(&capability) {
                capabilities.push(capability);
            }
        }
        let hidden = self.hidden.iter().map(|(op, _)| *op);
        let lists = self.lists.operations(&self.run_time);
        let beside = hidden.chain(lists).chain(self.run_time.operations());
        capabilities.extend(beside.map(|op| format!("{op}/1")));
        let kind = ManifestKind {
            kind: "skill",
            capabilities,
            state: self.state,
            tools: self.tools.iter().map(|(tool, _)| tool.clone()).collect(),
        };
        Ok(self.base.manifest(name, version, kind))
    }

    fn validate(&self, name: &str) -> Result<()> {
        let own = &self.base.name;
        if own != name {
            return Err(Error::invalid(format!(
                "the skill calls itself `{own}` and the export macro `{name}`: write \
                 `export_skill!(…, name = \"{own}\")`"
            )));
        }
        for (i, (tool, _)) in self.tools.iter().enumerate() {
            if self
                .tools
                .iter()
                .skip(i + 1)
                .any(|(other, _)| other.name == tool.name)
            {
                return Err(Error::invalid(format!(
                    "two tools are called `{}`",
                    tool.name
                )));
            }
        }
        self.lists.validate()
    }

    pub(crate) fn instance(self, setup: &Setup) -> Result<SkillInstance> {
        for run in &self.on_create {
            run(setup)?;
        }
        let handlers = self
            .tools
            .into_iter()
            .map(|(tool, handler)| (tool.op, handler))
            .chain(
                self.hidden
                    .into_iter()
                    .map(|(op, handler)| (op.to_owned(), handler)),
            )
            .collect();
        Ok(SkillInstance {
            handlers,
            lists: self.lists,
            run_time: self.run_time,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.base.name
    }
}

/// Reads a request whose arguments did not fit at first sight. No arguments at all count as
/// `{}`; arguments that do not fit are an answer for the model, not a fault.
fn arguments<A: DeserializeOwned>(
    op: &str,
    json: &[u8],
) -> Result<std::result::Result<(A, Envelope), ToolResult>> {
    let (mut body, envelope) = decode::<Value>(op, json)?;
    if body.is_null() {
        body = json!({});
    }
    Ok(match serde_json::from_value(body) {
        Ok(body) => Ok((body, envelope)),
        Err(error) => Err(ToolResult::error(format!(
            "The arguments do not fit: {error}."
        ))),
    })
}

/// An instance of a skill.
pub(crate) struct SkillInstance {
    handlers: Vec<(String, SkillHandler)>,
    lists: SkillLists,
    run_time: RunTime,
}

impl Dispatch for SkillInstance {
    fn call(&self, name: &str, json: &[u8], cx: CallContext) -> Result<Vec<u8>> {
        if let Some((_, handler)) = self.handlers.iter().find(|(op, _)| op == name) {
            return handler(json, cx);
        }
        if let Some(tool) = name.strip_prefix(op::SKILL_TOOL) {
            return self.run_time.call(tool, json, cx);
        }
        match name {
            op::PING | op::SHUTDOWN => encode(&Empty {}),
            op::SKILL_TOOLS if self.run_time.operations().any(|op| op == name) => {
                self.run_time.tools(json, cx)
            }
            _ if self.lists.operations(&self.run_time).any(|op| op == name) => {
                self.lists.answer(&self.run_time, name, json, cx)
            }
            _ => Err(unsupported(name)),
        }
    }
}

fn strings(required: &[(&str, &str)], numbers: &[(&str, &str)]) -> Value {
    let mut properties = serde_json::Map::new();
    for (name, description) in required {
        properties.insert(
            (*name).to_owned(),
            json!({ "type": "string", "description": description }),
        );
    }
    for (name, description) in numbers {
        properties.insert(
            (*name).to_owned(),
            json!({ "type": "integer", "minimum": 0, "description": description }),
        );
    }
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    json!({ "type": "object", "properties": properties, "required": names })
}

#[cfg(feature = "schema")]
fn schema_of<A: schemars::JsonSchema>() -> Value {
    let settings = schemars::generate::SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = schemars::SchemaGenerator::new(settings).into_root_schema_for::<A>();
    schema.remove("title");
    let mut value = schema.to_value();
    if let Some(object) = value.as_object_mut() {
        object.entry("type").or_insert_with(|| json!("object"));
    }
    value
}
