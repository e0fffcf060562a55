//! The kinds of words, and which scopes of a grammar they stand for.

use std::sync::LazyLock;

use syntect::parsing::Scope;

/// Kind of a piece of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CodeKind {
    /// Text without a kind of its own.
    Plain,
    /// A comment.
    Comment,
    /// A word of the language: `if`, `fn`, `static`.
    Keyword,
    /// A text in quotation marks.
    String,
    /// What stands for something else within a text: `\n`, `{}`.
    Escape,
    /// A number.
    Number,
    /// A constant of the language, such as `true`, or one that is written as such.
    Constant,
    /// The name of a function.
    Function,
    /// The name of a type, a class or a module.
    Type,
    /// A variable or a parameter.
    Variable,
    /// The name of an element of a markup language.
    Tag,
    /// The name of an attribute or of a member: a key of JSON, YAML or TOML.
    Attribute,
    /// An operator.
    Operator,
    /// Brackets, commas and the like.
    Punctuation,
    /// A heading of a marked-up text, or of a difference.
    Heading,
    /// A line that a difference adds.
    Inserted,
    /// A line that a difference takes away.
    Deleted,
}

/// Scopes with the kind that they stand for. Of two that fit, the longer one counts.
const SCOPES: &[(&str, CodeKind)] = &[
    ("comment", CodeKind::Comment),
    ("constant", CodeKind::Constant),
    ("constant.character.escape", CodeKind::Escape),
    ("constant.numeric", CodeKind::Number),
    ("constant.other.placeholder", CodeKind::Escape),
    ("entity.name", CodeKind::Type),
    ("entity.name.function", CodeKind::Function),
    ("entity.name.section", CodeKind::Heading),
    ("entity.name.tag", CodeKind::Tag),
    ("entity.name.tag.toml", CodeKind::Attribute),
    ("entity.name.tag.yaml", CodeKind::Attribute),
    ("entity.other.attribute-name", CodeKind::Attribute),
    ("entity.other.inherited-class", CodeKind::Type),
    ("keyword", CodeKind::Keyword),
    ("keyword.operator", CodeKind::Operator),
    ("keyword.operator.word", CodeKind::Keyword),
    ("markup.deleted", CodeKind::Deleted),
    ("markup.heading", CodeKind::Heading),
    ("markup.inserted", CodeKind::Inserted),
    ("markup.raw", CodeKind::String),
    ("meta.diff.header", CodeKind::Heading),
    ("meta.diff.range", CodeKind::Heading),
    ("punctuation", CodeKind::Punctuation),
    ("punctuation.definition.comment", CodeKind::Comment),
    ("punctuation.definition.string", CodeKind::String),
    ("punctuation.definition.heading", CodeKind::Heading),
    ("punctuation.definition.inserted", CodeKind::Inserted),
    ("punctuation.definition.deleted", CodeKind::Deleted),
    ("storage", CodeKind::Keyword),
    ("string", CodeKind::String),
    ("support", CodeKind::Type),
    ("support.constant", CodeKind::Constant),
    ("support.function", CodeKind::Function),
    ("support.macro", CodeKind::Function),
    ("support.type.property-name", CodeKind::Attribute),
    ("variable", CodeKind::Variable),
    ("variable.function", CodeKind::Function),
    ("variable.language", CodeKind::Constant),
];

static SCOPE_KINDS: LazyLock<Vec<(Scope, CodeKind)>> = LazyLock::new(|| {
    let scope = |(name, kind): &(&str, CodeKind)| Scope::new(name).ok().map(|scope| (scope, *kind));
    let mut kinds: Vec<_> = SCOPES.iter().filter_map(scope).collect();
    // The longest first.
    kinds.sort_by_key(|(scope, _)| std::cmp::Reverse(scope.len()));
    kinds
});

/// Scope around a key of JSON.
static JSON_KEY: LazyLock<Scope> =
    LazyLock::new(|| Scope::new("meta.mapping.key").unwrap_or_default());

impl CodeKind {
    /// What the scopes of a place say, the innermost first.
    pub(crate) fn of(scopes: &[Scope]) -> Self {
        let innermost = scopes.iter().rev().find_map(|scope| {
            let mut kinds = SCOPE_KINDS.iter();
            kinds.find(|(known, _)| known.is_prefix_of(*scope))
        });
        match innermost {
            // A key in quotation marks is a key.
            Some((_, CodeKind::String))
                if scopes.iter().any(|scope| JSON_KEY.is_prefix_of(*scope)) =>
            {
                CodeKind::Attribute
            }
            Some((_, kind)) => *kind,
            None => CodeKind::Plain,
        }
    }

    /// Name of the kind, in lower case: `keyword`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            CodeKind::Plain => "plain",
            CodeKind::Comment => "comment",
            CodeKind::Keyword => "keyword",
            CodeKind::String => "string",
            CodeKind::Escape => "escape",
            CodeKind::Number => "number",
            CodeKind::Constant => "constant",
            CodeKind::Function => "function",
            CodeKind::Type => "type",
            CodeKind::Variable => "variable",
            CodeKind::Tag => "tag",
            CodeKind::Attribute => "attribute",
            CodeKind::Operator => "operator",
            CodeKind::Punctuation => "punctuation",
            CodeKind::Heading => "heading",
            CodeKind::Inserted => "inserted",
            CodeKind::Deleted => "deleted",
        }
    }
}
