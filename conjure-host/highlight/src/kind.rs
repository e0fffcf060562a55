//! The kinds of words, and which scopes of a grammar they stand for.

use std::sync::LazyLock;

use syntect::parsing::Scope;

/// What a piece of code is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Nothing special.
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
const SCOPES: &[(&str, Kind)] = &[
    ("comment", Kind::Comment),
    ("constant", Kind::Constant),
    ("constant.character.escape", Kind::Escape),
    ("constant.numeric", Kind::Number),
    ("constant.other.placeholder", Kind::Escape),
    ("entity.name", Kind::Type),
    ("entity.name.function", Kind::Function),
    ("entity.name.section", Kind::Heading),
    ("entity.name.tag", Kind::Tag),
    ("entity.name.tag.toml", Kind::Attribute),
    ("entity.name.tag.yaml", Kind::Attribute),
    ("entity.other.attribute-name", Kind::Attribute),
    ("entity.other.inherited-class", Kind::Type),
    ("keyword", Kind::Keyword),
    ("keyword.operator", Kind::Operator),
    ("keyword.operator.word", Kind::Keyword),
    ("markup.deleted", Kind::Deleted),
    ("markup.heading", Kind::Heading),
    ("markup.inserted", Kind::Inserted),
    ("markup.raw", Kind::String),
    ("meta.diff.header", Kind::Heading),
    ("meta.diff.range", Kind::Heading),
    ("punctuation", Kind::Punctuation),
    ("punctuation.definition.comment", Kind::Comment),
    ("punctuation.definition.string", Kind::String),
    ("punctuation.definition.heading", Kind::Heading),
    ("punctuation.definition.inserted", Kind::Inserted),
    ("punctuation.definition.deleted", Kind::Deleted),
    ("storage", Kind::Keyword),
    ("string", Kind::String),
    ("support", Kind::Type),
    ("support.constant", Kind::Constant),
    ("support.function", Kind::Function),
    ("support.macro", Kind::Function),
    ("support.type.property-name", Kind::Attribute),
    ("variable", Kind::Variable),
    ("variable.function", Kind::Function),
    ("variable.language", Kind::Constant),
];

static KINDS: LazyLock<Vec<(Scope, Kind)>> = LazyLock::new(|| {
    let scope = |(name, kind): &(&str, Kind)| Scope::new(name).ok().map(|scope| (scope, *kind));
    let mut kinds: Vec<_> = SCOPES.iter().filter_map(scope).collect();
    // The longest first.
    kinds.sort_by_key(|(scope, _)| std::cmp::Reverse(scope.len()));
    kinds
});

/// What stands around a key of JSON.
static KEY: LazyLock<Scope> = LazyLock::new(|| Scope::new("meta.mapping.key").unwrap_or_default());

impl Kind {
    /// What the scopes of a place say, the innermost first.
    pub(crate) fn of(scopes: &[Scope]) -> Self {
        let innermost = scopes.iter().rev().find_map(|scope| {
            let mut kinds = KINDS.iter();
            kinds.find(|(known, _)| known.is_prefix_of(*scope))
        });
        match innermost {
            // A key in quotation marks is a key.
            Some((_, Kind::String)) if scopes.iter().any(|scope| KEY.is_prefix_of(*scope)) => {
                Kind::Attribute
            }
            Some((_, kind)) => *kind,
            None => Kind::Plain,
        }
    }

    /// Its name, in lower case: `keyword`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Plain => "plain",
            Kind::Comment => "comment",
            Kind::Keyword => "keyword",
            Kind::String => "string",
            Kind::Escape => "escape",
            Kind::Number => "number",
            Kind::Constant => "constant",
            Kind::Function => "function",
            Kind::Type => "type",
            Kind::Variable => "variable",
            Kind::Tag => "tag",
            Kind::Attribute => "attribute",
            Kind::Operator => "operator",
            Kind::Punctuation => "punctuation",
            Kind::Heading => "heading",
            Kind::Inserted => "inserted",
            Kind::Deleted => "deleted",
        }
    }
}
