//! What stands above the functions of a skill: which of them the model gets, and what is said of them.

use proc_macro2::TokenStream;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Expr, ExprLit, Ident, Lit, LitInt, LitStr, Meta, Result, Token};

/// Purpose of a function.
pub(crate) enum Mark {
    /// A tool of its own.
    Tool(ToolMark),
    /// One of the four callbacks, with the words for the model where they are not in its docs.
    Callback(Ident, Option<LitStr>),
    /// The function that makes the state.
    Create(Ident),
}

/// Arguments of a tool's mark.
#[derive(Default)]
pub(crate) struct ToolMark {
    pub(crate) name: Option<LitStr>,
    /// Calls of the builder of options.
    pub(crate) options: Vec<TokenStream>,
}

const CALLBACKS: [&str; 4] = ["execute", "read", "write", "modify"];

/// Takes the mark out of the attributes of a function.
pub(crate) fn take(attributes: &mut Vec<Attribute>) -> Result<Option<Mark>> {
    let is_mark = |attribute: &Attribute| {
        let path = attribute.path();
        let is_callback = CALLBACKS.iter().any(|name| path.is_ident(name));
        is_callback || path.is_ident("tool") || path.is_ident("create")
    };
    let (marks, others) = std::mem::take(attributes).into_iter().partition(is_mark);
    *attributes = others;
    let marks: Vec<Attribute> = marks;
    let mut marks = marks.into_iter();
    let Some(first) = marks.next() else {
        return Ok(None);
    };
    if let Some(second) = marks.next() {
        return Err(Error::new(
            second.span(),
            "a function is one thing: a tool, a callback or what makes the state",
        ));
    }
    mark(&first).map(Some)
}

fn mark(attribute: &Attribute) -> Result<Mark> {
    let word = attribute.path().require_ident()?.clone();
    let has_more = !matches!(attribute.meta, Meta::Path(_));
    if word == "tool" {
        return Ok(Mark::Tool(match has_more {
            true => attribute.parse_args()?,
            false => ToolMark::default(),
        }));
    }
    if word == "create" {
        if has_more {
            return Err(Error::new(
                attribute.span(),
                "`#[create]` takes no more words",
            ));
        }
        return Ok(Mark::Create(word));
    }
    let words = match has_more {
        true => Some(attribute.parse_args::<LitStr>().map_err(|error| {
            Error::new(
                error.span(),
                format!("expected words for the model, as in `#[{word}(\"…\")]`"),
            )
        })?),
        false => None,
    };
    Ok(Mark::Callback(word, words))
}

impl Parse for ToolMark {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut mark = Self::default();
        while !input.is_empty() {
            let word: Ident = input.parse()?;
            match word.to_string().as_str() {
                "name" => mark.name = Some(value(input)?),
                "read_only" | "destructive" | "stateless" | "in_place" => {
                    mark.options.push(quote!(.#word()));
                }
                "title" => {
                    let title: LitStr = value(input)?;
                    mark.options.push(quote!(.#word(#title)));
                }
                "timeout_ms" => {
                    let limit: LitInt = value(input)?;
                    mark.options.push(quote!(.#word(#limit)));
                }
                _ => {
                    return Err(Error::new(
                        word.span(),
                        "a tool has `name = \"…\"`, `title = \"…\"`, `read_only`, `destructive`, \
                         `stateless`, `in_place` and `timeout_ms = …`",
                    ));
                }
            }
            comma(input)?;
        }
        Ok(mark)
    }
}

/// What is said of the skill: its name, and whether sessions share it.
#[derive(Default)]
pub(crate) struct SkillOptions {
    pub(crate) name: Option<LitStr>,
    pub(crate) shared: Option<Ident>,
}

impl Parse for SkillOptions {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            let word: Ident = input.parse()?;
            match word.to_string().as_str() {
                "name" => options.name = Some(value(input)?),
                "shared" => options.shared = Some(word),
                _ => {
                    return Err(Error::new(
                        word.span(),
                        "a skill has `name = \"…\"` and `shared`; say more with the builder: \
                         `fn skill() -> Skill { Type::skill().permissions(…) }`",
                    ));
                }
            }
            comma(input)?;
        }
        Ok(options)
    }
}

fn value<T: Parse>(input: ParseStream<'_>) -> Result<T> {
    input.parse::<Token![=]>()?;
    input.parse()
}

fn comma(input: ParseStream<'_>) -> Result<()> {
    if !input.is_empty() {
        input.parse::<Token![,]>()?;
    }
    Ok(())
}

/// The text of doc comments, without the blank that each line begins with.
pub(crate) fn docs(attributes: &[Attribute]) -> String {
    let mut lines = Vec::new();
    for attribute in attributes {
        let Meta::NameValue(doc) = &attribute.meta else {
            continue;
        };
        let Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) = &doc.value
        else {
            continue;
        };
        if doc.path.is_ident("doc") {
            let text = text.value();
            let text = text
                .lines()
                .map(|line| line.strip_prefix(' ').unwrap_or(line));
            lines.push(text.collect::<Vec<_>>().join("\n"));
        }
    }
    lines.join("\n").trim().to_owned()
}

/// Whether an attribute says under which conditions something is there.
pub(crate) fn is_condition(attribute: &&Attribute) -> bool {
    attribute.path().is_ident("cfg")
}
