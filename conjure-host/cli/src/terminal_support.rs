//! What the terminal of a command can do: whether there is one, whether it may be redrawn, and in colours.

use std::io::IsTerminal as _;

use super::args::Global;
use super::drawn_turn::may_redraw;

/// Whether there is a terminal that the face can have.
pub(crate) fn is_supported(global: &Global) -> bool {
    has_terminal() && !global.json
}

/// Whether there is a terminal that can be redrawn, and may be.
pub(crate) fn has_terminal() -> bool {
    std::io::stdout().is_terminal() && redraws()
}

/// Like [`has_terminal`], where the result may go elsewhere.
pub(crate) fn redraws() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && may_redraw()
}

/// Whether there are colours.
pub(crate) fn has_colors() -> bool {
    std::env::var_os(conjure_config::env::NO_COLOR).is_none_or(|value| value.is_empty())
}
