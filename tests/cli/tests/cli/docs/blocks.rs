//! The fenced code blocks of the documentation, as a reader sees them.
//!
//! Knows which pages there are and what stands on them. How a block is checked is said by
//! [`Block::check`]; the checking itself is elsewhere.

use conjure_kit::repo_root;

/// Ahead of a block that cannot be run or checked, with the reason behind it.
const NOT_RUN: &str = "<!-- not run: ";
/// Ahead of a block that is a file of another kind than its language says.
const FILE: &str = "<!-- file: ";

/// A fenced code block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    /// The page, from the root of the repository.
    pub(super) page: String,
    /// The line of its fence, for messages.
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) text: String,
    /// The line ahead of it, where that is a comment.
    comment: Option<String>,
}

/// How a block is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// The commands run, one after the other, in the directory of the block's page.
    Commands,
    /// The program reads it as a session file.
    Session,
    /// The program reads it as a file of models and prices.
    Models,
    /// Cargo reads it as a manifest.
    Manifest,
    /// The program writes it where a person allows a call for always.
    Rules,
    /// The program reads it as the description of a plugin.
    Description,
    /// Python runs it, and it says its manifest.
    Python,
    /// A host runs it: the file of a plugin that is a program.
    Program,
    /// A reader takes it as JSON, and a script for the provider `scripted` answers.
    Json,
    /// Cargo compiles it as an example of a crate, and runs it where it has something to run.
    Example,
    /// Nothing checks it, for this reason.
    NotRun(String),
}

impl Block {
    /// Page and line of the block, for messages.
    pub(super) fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// Check for the block.
    ///
    /// # Errors
    /// When nothing says how: each block is run, checked, or has a reason not to be.
    pub(super) fn check(&self) -> Result<Check, String> {
        let comment = self.comment.as_deref().unwrap_or_default();
        let after = |mark| comment.strip_prefix(mark)?.strip_suffix(" -->");
        if let Some(reason) = after(NOT_RUN) {
            return Ok(Check::NotRun(reason.to_owned()));
        }
        match (self.language.as_str(), after(FILE)) {
            ("sh" | "console", None) => Ok(Check::Commands),
            ("toml", None) => Ok(Check::Session),
            ("toml", Some("models.toml")) => Ok(Check::Models),
            ("toml", Some("always.toml")) => Ok(Check::Rules),
            ("toml", Some("Cargo.toml")) => Ok(Check::Manifest),
            ("toml", Some("plugin.toml")) => Ok(Check::Description),
            ("python", None) => Ok(Check::Python),
            ("python", Some("program.py")) => Ok(Check::Program),
            ("json", None) => Ok(Check::Json),
            ("rust" | "rust,no_run", None) => Ok(Check::Example),
            (language, _) => Err(format!(
                "{}: nothing says how a block of `{language}` is checked; if it cannot be, give the \
                 reason on the line ahead of it: `{NOT_RUN}REASON -->`",
                self.place()
            )),
        }
    }
}

/// The pages that a reader of the project finds.
pub(super) fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    for folder in ["conjure-host/docs", "skill-sdk/docs"] {
        for entry in std::fs::read_dir(repo_root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") {
                pages.push(format!("{folder}/{name}"));
            }
        }
    }
    pages.sort();
    pages
}

/// The blocks of a page, in order.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let text = std::fs::read_to_string(repo_root().join(page)).unwrap();
    let mut blocks = Vec::new();
    let mut ahead = "";
    let mut open: Option<Block> = None;
    for (number, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), &mut open) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(language), None) => {
                let comment = ahead.starts_with("<!--").then(|| ahead.to_owned());
                open = Some(Block {
                    page: page.to_owned(),
                    line: number + 1,
                    language: language.trim().to_owned(),
                    text: String::new(),
                    comment,
                });
            }
            (None, Some(block)) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, None) if line.trim().is_empty() => {}
            (None, None) => ahead = line.trim(),
        }
        if open.is_some() || line.trim_start().starts_with("```") {
            ahead = "";
        }
    }
    assert!(open.is_none(), "{page}: a block does not end");
    blocks
}

/// All blocks of all pages that are checked in a certain way.
pub(super) fn checked_as(check: &Check) -> Vec<Block> {
    let blocks = pages().into_iter().flat_map(|page| blocks(&page));
    blocks
        .filter(|block| block.check().as_ref() == Ok(check))
        .collect()
}
