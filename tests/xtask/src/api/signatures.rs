//! What stands behind the name of an item: its signature, its shape, what a macro takes.
//!
//! As much as others rely on, in one way of writing it.

use proc_macro2::{TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Attribute, Fields, FnArg, Generics, ReceiverKind, Safety, Signature};

use super::source::is_public;
use super::tokens::{raw, text};

/// Attributes that are part of what an item is.
const MARKS: [&str; 5] = [
    "non_exhaustive",
    "proc_macro",
    "proc_macro_attribute",
    "proc_macro_derive",
    "repr",
];

/// The attributes that are part of what an item is, each with a space behind it.
pub(super) fn marks(attributes: &[Attribute]) -> String {
    let is_mark = |it: &&Attribute| MARKS.iter().any(|mark| it.path().is_ident(mark));
    let shown = |it: &Attribute| format!("#[{}] ", raw(it.meta.to_token_stream()));
    attributes.iter().filter(is_mark).map(shown).collect()
}

pub(super) fn generics(generics: &Generics) -> String {
    text(generics)
}

/// What stands behind `where`, with a space in front.
pub(super) fn bounds(generics: &Generics) -> String {
    let Some(clause) = &generics.where_clause else {
        return String::new();
    };
    let clause = text(clause);
    match clause.trim_end_matches(',') {
        "" => String::new(),
        clause => format!(" {clause}"),
    }
}

/// A function's type: what a caller has to know.
pub(super) fn signature(of: &Signature) -> String {
    let mut what = String::new();
    let words = [
        (of.constness.is_some(), "const "),
        (of.asyncness.is_some(), "async "),
        (matches!(of.safety, Safety::Unsafe(_)), "unsafe "),
    ];
    words
        .iter()
        .filter(|(is_there, _)| *is_there)
        .for_each(|(_, word)| what.push_str(word));
    if let Some(abi) = &of.abi {
        what.push_str(&format!("{} ", text(abi)));
    }
    let arguments: Vec<String> = of.inputs.iter().map(argument).collect();
    what.push_str(&format!(
        "fn{}({})",
        generics(&of.generics),
        arguments.join(", ")
    ));
    if let syn::ReturnType::Type(_, result) = &of.output {
        what.push_str(&format!(" -> {}", text(result)));
    }
    what + &bounds(&of.generics)
}

fn argument(of: &FnArg) -> String {
    let receiver = match of {
        FnArg::Typed(argument) => return text(&argument.ty),
        FnArg::Receiver(receiver) => receiver,
    };
    match &receiver.kind {
        ReceiverKind::Value => "self".to_owned(),
        ReceiverKind::Typed(_, of) => format!("self: {}", text(of)),
        _ => text(receiver),
    }
}

/// Whether somebody else can write the struct down: `{}` where all fields are public.
pub(super) fn shape(fields: &Fields) -> String {
    match fields {
        Fields::Unit => String::new(),
        Fields::Named(_) if fields.iter().all(|field| is_public(&field.vis)) => " {}".to_owned(),
        Fields::Named(_) => " { .. }".to_owned(),
        Fields::Unnamed(_) => {
            let shown = fields.iter().map(|field| match is_public(&field.vis) {
                true => text(&field.ty),
                false => "_".to_owned(),
            });
            format!("({})", shown.collect::<Vec<_>>().join(", "))
        }
    }
}

/// What a variant holds.
pub(super) fn raw_fields(fields: &Fields) -> String {
    let shown = fields.iter().map(|field| match &field.ident {
        Some(name) => format!("{name}: {}", text(&field.ty)),
        None => text(&field.ty),
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    match fields {
        Fields::Unit => String::new(),
        Fields::Named(_) => format!(" {{ {shown} }}"),
        Fields::Unnamed(_) => format!("({shown})"),
    }
}

/// What a macro takes: the patterns of its arms.
pub(super) fn patterns(definition: &TokenStream) -> String {
    let trees: Vec<TokenTree> = definition.clone().into_iter().collect();
    let arms = trees.windows(2).filter_map(|two| match two {
        [TokenTree::Group(pattern), TokenTree::Punct(sign)] if sign.as_char() == '=' => {
            Some(format!("({})", raw(pattern.stream())))
        }
        _ => None,
    });
    arms.collect::<Vec<_>>().join("; ")
}
