//! Tools, resources and prompts that a skill knows at run time only.
//!
//! Two functions each: one lists, one carries out. When the list is another one, the skill says
//! so with [`Cx::catalog_changed`], and the host asks again.

use std::collections::BTreeMap;

use conjure_abi::CallContext;
use serde_json::{Value, json};

use super::Skill;
use super::contents::Contents;
use crate::cx::Cx;
use crate::dispatch::{decode, encode};
use crate::error::{Error, Result};
use crate::output::IntoToolResult;
use crate::protocol::{Empty, Prompt, PromptText, Resource, SkillTools, ToolDecl, ToolResult, op};
use crate::spill;

type ListFn<T> = Box<dyn Fn(&Cx) -> Result<Vec<T>> + Send + Sync>;
type CallFn = Box<dyn Fn(&Cx, &str, Value) -> ToolResult + Send + Sync>;
type ReadFn = Box<dyn Fn(&Cx, &str) -> Result<Contents> + Send + Sync>;
type PromptFn =
    Box<dyn Fn(&Cx, &str, &BTreeMap<String, String>) -> Result<PromptText> + Send + Sync>;

/// State that a skill has at run time only.
#[derive(Default)]
pub(super) struct RunTime {
    tools: Option<(ListFn<ToolDecl>, CallFn)>,
    pub(super) resources: Option<RunTimeResources>,
    pub(super) prompts: Option<RunTimePrompts>,
}

pub(super) struct RunTimeResources {
    pub(super) list: ListFn<Resource>,
    pub(super) read: ReadFn,
}

pub(super) struct RunTimePrompts {
    pub(super) list: ListFn<Prompt>,
    pub(super) get: PromptFn,
}

impl Skill {
    /// Registers tools that the skill knows at run time only, beside those that are registered
    /// one by one: `list` says which there are now, `call` runs one by its name. The `op` of what
    /// is listed is filled in. A host that does not know such tools offers the others.
    ///
    /// The set of tools may differ between sessions and over time; the definition of one tool may
    /// not. A host that has seen another definition of a tool, from the same build with the same
    /// settings, holds this one until a person approves it: what depends on the session or its
    /// directory belongs into the results.
    #[must_use]
    pub fn run_time_tools<R: IntoToolResult>(
        mut self,
        list: impl Fn(&Cx) -> Result<Vec<ToolDecl>> + Send + Sync + 'static,
        call: impl Fn(&Cx, &str, Value) -> R + Send + Sync + 'static,
    ) -> Self {
        let call: CallFn =
            Box::new(move |cx, name, arguments| call(cx, name, arguments).into_tool_result());
        self.run_time.tools = Some((Box::new(list), call));
        self
    }

    /// Registers resources that the skill knows at run time only: `list` says which there are
    /// now, `read` reads one by its URI, and answers one that it does not know with
    /// [`Error::not_found`].
    #[must_use]
    pub fn run_time_resources<C: Into<Contents>>(
        mut self,
        list: impl Fn(&Cx) -> Result<Vec<Resource>> + Send + Sync + 'static,
        read: impl Fn(&Cx, &str) -> Result<C> + Send + Sync + 'static,
    ) -> Self {
        self.run_time.resources = Some(RunTimeResources {
            list: Box::new(list),
            read: Box::new(move |cx, uri| read(cx, uri).map(Into::into)),
        });
        self
    }

    /// Registers prompts that the skill knows at run time only: `list` says which there are now,
    /// `get` fills one in by its name, and answers one that it does not know with
    /// [`Error::not_found`].
    #[must_use]
    pub fn run_time_prompts<P: Into<PromptText>>(
        mut self,
        list: impl Fn(&Cx) -> Result<Vec<Prompt>> + Send + Sync + 'static,
        get: impl Fn(&Cx, &str, &BTreeMap<String, String>) -> Result<P> + Send + Sync + 'static,
    ) -> Self {
        self.run_time.prompts = Some(RunTimePrompts {
            list: Box::new(list),
            get: Box::new(move |cx, name, arguments| get(cx, name, arguments).map(Into::into)),
        });
        self
    }
}

impl RunTime {
    pub(super) fn operations(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.tools.is_some().then_some(op::SKILL_TOOLS).into_iter()
    }

    /// The tools, each with the operation that runs it.
    pub(super) fn tools(&self, json: &[u8], raw: CallContext) -> Result<Vec<u8>> {
        let (Empty {}, envelope) = decode(op::SKILL_TOOLS, json)?;
        let mut tools = match &self.tools {
            Some((list, _)) => list(&Cx::new(raw, envelope))?,
            None => Vec::new(),
        };
        for tool in &mut tools {
            tool.op = format!("{}{}", op::SKILL_TOOL, tool.name);
        }
        encode(&SkillTools { tools })
    }

    /// Runs the tool of this name.
    pub(super) fn call(&self, name: &str, json: &[u8], raw: CallContext) -> Result<Vec<u8>> {
        let unknown = || Error::not_found(format!("this skill has no tool `{name}`"));
        let (_, call) = self.tools.as_ref().ok_or_else(unknown)?;
        let (arguments, envelope) = decode::<Value>(name, json)?;
        let arguments = if arguments.is_null() {
            json!({})
        } else {
            arguments
        };
        let cx = Cx::new(raw, envelope);
        let result = call(&cx, name, arguments);
        Ok(spill::encode(result, cx.exchange_dir())?)
    }
}
