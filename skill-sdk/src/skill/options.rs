//! What else can be said about a tool.

use serde_json::Value;

use crate::protocol::{Effects, ToolDecl, ToolMode};

/// What else can be said about a tool.
///
/// Without it a tool is stateful and has effects; `read` has none.
#[derive(Debug, Clone, Default)]
pub struct ToolOptions {
    effects: Option<Effects>,
    stateless: bool,
    in_place: bool,
    timeout_ms: Option<u64>,
    title: Option<String>,
    output_schema: Option<Value>,
    annotations: Option<Value>,
}

impl ToolOptions {
    /// Options that say nothing about the tool.
    pub fn new() -> Self {
        Self::default()
    }

    /// The tool changes nothing.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.effects = Some(Effects::Read);
        self
    }

    /// What the tool does cannot be undone.
    #[must_use]
    pub fn destructive(mut self) -> Self {
        self.effects = Some(Effects::Destructive);
        self
    }

    /// Calls do not depend on each other and may run at the same time.
    #[must_use]
    pub fn stateless(mut self) -> Self {
        self.stateless = true;
        self
    }

    /// The tool takes at most 50 µs and may be called without a thread of its own. Host
    /// operations are refused in such calls. A tool that has output, or asks the host, while it
    /// is called so, is never called so again.
    #[must_use]
    pub fn in_place(mut self) -> Self {
        self.in_place = true;
        self
    }

    /// How long a call may take; without it the host's default holds (30 s).
    #[must_use]
    pub fn timeout_ms(mut self, milliseconds: u64) -> Self {
        self.timeout_ms = Some(milliseconds);
        self
    }

    /// A title for people.
    #[must_use]
    pub fn title(mut self, title: &str) -> Self {
        self.title = Some(title.to_owned());
        self
    }

    /// JSON Schema of the structured result.
    #[must_use]
    pub fn output_schema(mut self, schema: Value) -> Self {
        self.output_schema = Some(schema);
        self
    }

    /// Annotations in MCP's form, such as `{"idempotentHint": true}`, for MCP clients. What the
    /// tool changes is said by [`ToolOptions::read_only`] and [`ToolOptions::destructive`].
    #[must_use]
    pub fn annotations(mut self, annotations: Value) -> Self {
        self.annotations = Some(annotations);
        self
    }

    pub(super) fn apply(self, tool: &mut ToolDecl) {
        if let Some(effects) = self.effects {
            tool.effects = effects;
        }
        if self.stateless {
            tool.mode = ToolMode::Stateless;
        }
        tool.in_place |= self.in_place;
        tool.timeout_ms = self.timeout_ms.or(tool.timeout_ms);
        tool.title = self.title.or(tool.title.take());
        tool.output_schema = self.output_schema.or(tool.output_schema.take());
        tool.annotations = self.annotations.or(tool.annotations.take());
    }
}
