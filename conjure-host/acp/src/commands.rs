//! The commands of a conversation, as an editor offers and sends them: a prompt that begins with a
//! slash and the name of one. What they do is the business of whoever started the host.

use std::sync::Arc;

use agent_client_protocol::v1::schema::{
    AvailableCommand, AvailableCommandInput, AvailableCommandsUpdate, ContentBlock, SessionUpdate,
    UnstructuredCommandInput,
};
use futures_util::future::BoxFuture;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcpCommand {
    /// Name of the command, without the slash.
    pub name: String,
    /// What stands behind it; empty for nothing.
    pub arguments: String,
    /// Description of the command.
    pub help: String,
}

/// What runs a line of a session, by the session's id, and gives back what it says. A line that it
/// could not run says why in that.
pub type RunCommand = dyn Fn(String, String) -> BoxFuture<'static, String> + Send + Sync;

/// The commands that editors are offered.
#[derive(Clone)]
pub struct AcpCommands {
    /// Each of them.
    pub list: Vec<AcpCommand>,
    /// Function that runs the commands.
    pub run: Arc<RunCommand>,
}

impl std::fmt::Debug for AcpCommands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AcpCommands")
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

impl AcpCommands {
    /// The update that lists the commands to an editor.
    pub(crate) fn update(&self) -> SessionUpdate {
        let offered = |command: &AcpCommand| {
            let offered = AvailableCommand::new(&*command.name, &*command.help);
            if command.arguments.is_empty() {
                return offered;
            }
            let hint = UnstructuredCommandInput::new(&*command.arguments);
            offered.input(AvailableCommandInput::Unstructured(hint))
        };
        let list = self.list.iter().map(offered).collect();
        SessionUpdate::AvailableCommandsUpdate(AvailableCommandsUpdate::new(list))
    }

    /// The line of a prompt that is one of them. With anything else in it, a prompt is for the model.
    pub(crate) fn line(&self, prompt: &[ContentBlock]) -> Option<String> {
        let [ContentBlock::Text(text)] = prompt else {
            return None;
        };
        let line = text.text.trim();
        let name = line.strip_prefix('/')?.split(char::is_whitespace).next()?;
        let is_known = self.list.iter().any(|command| command.name == name);
        (is_known && !line.contains('\n')).then(|| line.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use agent_client_protocol::v1::schema::TextContent;

    use super::*;

    #[test]
    fn only_a_line_with_the_name_of_one_is_a_command() {
        let commands = AcpCommands {
            list: vec![AcpCommand {
                name: "cost".to_owned(),
                arguments: String::new(),
                help: "what it cost".to_owned(),
            }],
            run: Arc::new(|_, _| Box::pin(async { String::new() })),
        };
        let of = |text: &str| commands.line(&[ContentBlock::Text(TextContent::new(text))]);
        assert_eq!(of(" /cost\n").as_deref(), Some("/cost"));
        assert_eq!(of("/cost all").as_deref(), Some("/cost all"));
        for text in [
            "/usr/bin is where?",
            "cost",
            "/costs",
            "/cost\nand more",
            "/",
        ] {
            assert_eq!(of(text), None, "{text:?}");
        }
    }
}
