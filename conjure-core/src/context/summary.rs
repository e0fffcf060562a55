//! What asks the model for a summary.

/// Asks for a summary, behind the conversation that it is about.
pub(crate) const ASK_FOR_SUMMARY: &str = "[note of the host] The conversation is about to be cut. Write the summary that \
replaces everything above. Its reader is you: you go on with the work and see nothing else of what \
was before. Keep what was asked for and by whom, decisions, facts, names, figures, file handles \
and paths, what was tried and how it ended, and what is still to be done. Leave out pleasantries. \
Write plain text, call no tool, and do not go on with the work itself.";
