//! The public items of a crate, one entry each: what a crate that depends on it can name.
//!
//! An entry stands under the path by which others name the item. What is hidden from the documentation
//! is no promise and is left out. Names of arguments are left out too, since no caller sees them; traits
//! that the compiler gives a type by itself, such as `Send`, are not looked at.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Fields, Generics, Item, ItemImpl, ItemTrait, Meta, TraitItem, Type};

use super::signatures::{bounds, generics, marks, patterns, raw_fields, shape, signature};
use super::source::{
    CrateSource, Gates, ModulePath, PathTarget, SourceModule, attributes, expand_macro, gates_of,
    imports_of, is_public, name_of,
};
use super::tokens::{raw, text};

/// A public item: its path, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PublicItem {
    pub(super) path: String,
    pub(super) description: String,
}

impl PublicItem {
    /// An item of a line: its path, a space, and what it is.
    pub(super) fn read(line: &str) -> Option<Self> {
        let (path, what) = line.split_once(' ')?;
        Some(Self {
            path: path.to_owned(),
            description: what.to_owned(),
        })
    }
}

/// All public items of a crate.
///
/// # Errors
/// When an implementation calls a macro that makes items which cannot be told.
pub(super) fn public_items(source: &CrateSource) -> Result<BTreeSet<PublicItem>> {
    let mut surface = PublicSurface {
        source,
        entries: BTreeSet::new(),
        named: BTreeMap::new(),
        open: Vec::new(),
    };
    surface.module(&[], &source.name, &Gates::new());
    surface.exported_macros();
    for (path, module) in &source.modules {
        for item in &module.items {
            if let Item::Impl(block) = item
                && !is_hidden(&block.attrs)
            {
                surface.implementation(path, module, block)?;
            }
        }
    }
    Ok(surface.entries)
}

struct PublicSurface<'a> {
    source: &'a CrateSource,
    entries: BTreeSet<PublicItem>,
    /// The public path of each public item, by its module and name.
    named: BTreeMap<(ModulePath, String), String>,
    /// The modules that are looked at.
    open: Vec<ModulePath>,
}

impl PublicSurface<'_> {
    fn entry(&mut self, path: &str, what: impl Into<String>, gates: &Gates) {
        let mut what = what.into();
        for gate in gates {
            what.push_str(&format!(" #[cfg({gate})]"));
        }
        self.entries.insert(PublicItem {
            path: path.to_owned(),
            description: what,
        });
    }

    /// What a module offers, under a public path.
    fn module(&mut self, at: &[String], public: &str, gates: &Gates) {
        let source = self.source;
        let Some(module) = source.modules.get(at) else {
            return;
        };
        if self.open.iter().any(|open| open == at) {
            return;
        }
        self.open.push(at.to_vec());
        for item in &module.items {
            if is_hidden(attributes(item)) {
                continue;
            }
            let mut gates = gates.clone();
            gates.extend(gates_of(attributes(item)));
            match item {
                Item::Use(used) if is_public(&used.vis) => {
                    for import in imports_of(item) {
                        let target = source.resolve(at, &import.path);
                        self.add_reexport(target, import.name.as_deref(), public, &gates);
                    }
                }
                Item::Mod(inner) if is_public(&inner.vis) => {
                    let (name, mut path) = (inner.ident.to_string(), at.to_vec());
                    path.push(name.clone());
                    let public = format!("{public}::{name}");
                    self.entry(&public, "mod", &gates);
                    self.module(&path, &public, &gates);
                }
                Item::Use(_) | Item::Mod(_) | Item::Macro(_) | Item::Impl(_) => {}
                _ => {
                    if let Some(name) = name_of(item)
                        && is_visible(item)
                    {
                        let name = name.to_string();
                        let public = format!("{public}::{name}");
                        self.named
                            .entry((at.to_vec(), name))
                            .or_insert_with(|| public.clone());
                        self.item(item, &public, &gates);
                    }
                }
            }
        }
        self.open.pop();
    }

    /// What a `pub use` brings.
    fn add_reexport(
        &mut self,
        target: PathTarget,
        name: Option<&str>,
        public: &str,
        gates: &Gates,
    ) {
        let source = self.source;
        let named = name.map(|name| format!("{public}::{name}"));
        let gates_in = |at: &[String]| -> Gates {
            let own = source.modules.get(at).map(|module| &module.gates);
            gates
                .iter()
                .chain(own.into_iter().flatten())
                .cloned()
                .collect()
        };
        match (target, named) {
            (PathTarget::Module(at), None) => self.module(&at, public, &gates_in(&at)),
            (PathTarget::Module(at), Some(public)) => {
                let gates = gates_in(&at);
                self.entry(&public, "mod", &gates);
                self.module(&at, &public, &gates);
            }
            (PathTarget::Local(at, name), Some(public)) => {
                let gates = gates_in(&at);
                let items = source.modules.get(&at).map(|module| &module.items);
                let is_it = |item: &&Item| name_of(item).is_some_and(|own| *own == name);
                let found: Vec<&Item> = items.into_iter().flatten().filter(is_it).collect();
                if found.is_empty() {
                    self.entry(&public, "made by a macro", &gates);
                }
                for item in found
                    .into_iter()
                    .filter(|item| !is_hidden(attributes(item)))
                {
                    let mut gates = gates.clone();
                    gates.extend(gates_of(attributes(item)));
                    self.item(item, &public, &gates);
                }
                self.named.entry((at, name)).or_insert(public);
            }
            (PathTarget::Foreign(path), Some(public)) => {
                self.entry(&public, format!("use {path}"), gates);
            }
            (PathTarget::Foreign(path), None) => {
                self.entry(public, format!("use {path}::*"), gates);
            }
            (PathTarget::Local(_, name), None) => {
                self.entry(public, format!("use {name}::*"), gates);
            }
        }
    }

    fn item(&mut self, item: &Item, public: &str, gates: &Gates) {
        let front = marks(attributes(item));
        match item {
            Item::Const(item) => self.entry(public, format!("const: {}", text(&item.ty)), gates),
            Item::Static(item) => self.entry(public, format!("static: {}", text(&item.ty)), gates),
            Item::Fn(item) => self.entry(public, front + &signature(&item.sig), gates),
            Item::Type(item) => {
                let generics = generics(&item.generics);
                let what = format!("type{generics} = {}", text(&item.ty));
                self.entry(public, what, gates);
            }
            Item::Struct(item) => {
                let shape = shape(&item.fields);
                let of = generics(&item.generics) + &bounds(&item.generics);
                let what = format!("{front}struct{of}{shape}");
                self.entry(public, what, gates);
                if let Fields::Named(_) = item.fields {
                    self.fields(&item.fields, public, gates);
                }
                self.derived(&item.attrs, &item.ident, public, gates);
            }
            Item::Union(item) => {
                let what = format!("{front}union{}", generics(&item.generics));
                self.entry(public, what, gates);
                self.fields(&Fields::Named(item.fields.clone()), public, gates);
                self.derived(&item.attrs, &item.ident, public, gates);
            }
            Item::Enum(item) => {
                let of = generics(&item.generics) + &bounds(&item.generics);
                let what = format!("{front}enum{of}");
                self.entry(public, what, gates);
                for variant in &item.variants {
                    let mut what = format!("{}variant", marks(&variant.attrs));
                    what.push_str(&raw_fields(&variant.fields));
                    if let Some((_, number)) = &variant.discriminant {
                        what.push_str(&format!(" = {}", text(number)));
                    }
                    let mut gates = gates.clone();
                    gates.extend(gates_of(&variant.attrs));
                    self.entry(&format!("{public}::{}", variant.ident), what, &gates);
                }
                self.derived(&item.attrs, &item.ident, public, gates);
            }
            Item::Trait(item) => self.interface(item, public, gates),
            _ => {}
        }
    }

    fn fields(&mut self, fields: &Fields, public: &str, gates: &Gates) {
        for field in fields.iter().filter(|field| is_public(&field.vis)) {
            if let Some(name) = &field.ident {
                let what = format!("field: {}", text(&field.ty));
                self.entry(&format!("{public}::{name}"), what, gates);
            }
        }
    }

    fn interface(&mut self, item: &ItemTrait, public: &str, gates: &Gates) {
        let mut what = String::new();
        if item.unsafety.is_some() {
            what.push_str("unsafe ");
        }
        what.push_str("trait");
        what.push_str(&generics(&item.generics));
        if !item.supertraits.is_empty() {
            what.push_str(&format!(": {}", text(&item.supertraits)));
        }
        what.push_str(&bounds(&item.generics));
        self.entry(public, what, gates);
        for inner in &item.items {
            let (attributes, name, is_provided, what) = match inner {
                TraitItem::Fn(it) => {
                    let what = signature(&it.sig);
                    (&it.attrs, &it.sig.ident, it.default.is_some(), what)
                }
                TraitItem::Const(it) => {
                    let what = format!("const: {}", text(&it.ty));
                    (&it.attrs, &it.ident, it.default.is_some(), what)
                }
                TraitItem::Type(it) => {
                    let mut what = format!("type{}", generics(&it.generics));
                    if !it.bounds.is_empty() {
                        what.push_str(&format!(": {}", text(&it.bounds)));
                    }
                    (&it.attrs, &it.ident, it.default.is_some(), what)
                }
                _ => continue,
            };
            if !is_hidden(attributes) {
                let word = if is_provided { "provided" } else { "required" };
                let mut gates = gates.clone();
                gates.extend(gates_of(attributes));
                self.entry(
                    &format!("{public}::{name}"),
                    format!("{word} {what}"),
                    &gates,
                );
            }
        }
    }

    /// What `#[derive(…)]` implements.
    fn derived(
        &mut self,
        attributes: &[Attribute],
        name: &syn::Ident,
        public: &str,
        gates: &Gates,
    ) {
        for attribute in attributes {
            let Meta::List(list) = &attribute.meta else {
                continue;
            };
            let mut gates = gates.clone();
            let derived = if list.path.is_ident("derive") {
                list.tokens.clone()
            } else if list.path.is_ident("cfg_attr") {
                let Some((gate, derived)) = conditional(&list.tokens) else {
                    continue;
                };
                gates.insert(gate);
                derived
            } else {
                continue;
            };
            for one in split(derived) {
                self.entry(public, format!("impl {} for {name}", text(&one)), &gates);
            }
        }
    }

    /// Macros that are exported stand at the root of the crate, wherever they are written.
    fn exported_macros(&mut self) {
        let source = self.source;
        for module in source.modules.values() {
            for item in &module.items {
                let Item::Macro(made) = item else { continue };
                let is_exported = made
                    .attrs
                    .iter()
                    .any(|it| it.path().is_ident("macro_export"));
                if let Some(name) = &made.ident
                    && is_exported
                    && !is_hidden(&made.attrs)
                {
                    let public = format!("{}::{name}", source.name);
                    let what = format!("macro {}", patterns(&made.mac.tokens));
                    self.entry(&public, what, &module.gates);
                }
            }
        }
    }

    fn implementation(
        &mut self,
        at: &[String],
        module: &SourceModule,
        block: &ItemImpl,
    ) -> Result<()> {
        let own = self.public_name(at, &block.generics, &block.self_ty);
        let mut gates = module.gates.clone();
        gates.extend(gates_of(&block.attrs));
        let Some((path, _)) = &block.trait_ else {
            return match own {
                ImplOwner::Public(public) => self.inherent(&public, block, &gates),
                ImplOwner::Private | ImplOwner::Foreign => Ok(()),
            };
        };
        let words: Vec<String> = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        let interface = match self.source.resolve(at, &words) {
            PathTarget::Local(module, name) => match self.named.get(&(module, name)) {
                Some(public) => Some(public.clone()),
                None => return Ok(()),
            },
            PathTarget::Module(_) | PathTarget::Foreign(_) => None,
        };
        let public = match (own, interface) {
            (ImplOwner::Public(public), _) | (ImplOwner::Foreign, Some(public)) => public,
            (ImplOwner::Private, _) | (ImplOwner::Foreign, None) => return Ok(()),
        };
        let mut what = format!("impl{} ", generics(&block.generics));
        if block.modifiers.polarity.is_some() {
            what.push('!');
        }
        what.push_str(&format!("{} for {}", text(path), text(&block.self_ty)));
        what.push_str(&bounds(&block.generics));
        for item in &block.items {
            if let syn::ImplItem::Type(item) = item {
                what.push_str(&format!(" {{ type {} = {} }}", item.ident, text(&item.ty)));
            }
        }
        self.entry(&public, what, &gates);
        Ok(())
    }

    /// The functions and constants of a type.
    fn inherent(&mut self, public: &str, block: &ItemImpl, gates: &Gates) -> Result<()> {
        let mut of = String::new();
        if !block.generics.params.is_empty() {
            let generics = generics(&block.generics);
            of = format!(
                " in impl{generics} {}{}",
                text(&block.self_ty),
                bounds(&block.generics)
            );
        }
        for item in &block.items {
            let (attributes, visibility, name, what) = match item {
                syn::ImplItem::Fn(it) => (&it.attrs, &it.vis, &it.sig.ident, signature(&it.sig)),
                syn::ImplItem::Const(it) => {
                    let what = format!("const: {}", text(&it.ty));
                    (&it.attrs, &it.vis, &it.ident, what)
                }
                syn::ImplItem::Macro(call) => {
                    let made = expand_macro(&self.source.macros, &call.mac)?;
                    let mut inner = block.clone();
                    inner.items = items_of(&made)?;
                    self.inherent(public, &inner, gates)?;
                    continue;
                }
                _ => continue,
            };
            if is_public(visibility) && !is_hidden(attributes) {
                let mut gates = gates.clone();
                gates.extend(gates_of(attributes));
                self.entry(&format!("{public}::{name}"), format!("{what}{of}"), &gates);
            }
        }
        Ok(())
    }

    /// The type that an implementation is of, by its public name.
    fn public_name(&self, at: &[String], generics: &Generics, of: &Type) -> ImplOwner {
        let Type::Path(path) = of else {
            return ImplOwner::Foreign;
        };
        let words: Vec<String> = path
            .path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        let is_parameter = |name: &String| generics.type_params().any(|it| it.ident == *name);
        if path.qself.is_some() || words.first().is_some_and(is_parameter) {
            return ImplOwner::Foreign;
        }
        match self.source.resolve(at, &words) {
            PathTarget::Local(module, name) => match self.named.get(&(module, name)) {
                Some(public) => ImplOwner::Public(public.clone()),
                None => ImplOwner::Private,
            },
            PathTarget::Module(_) | PathTarget::Foreign(_) => ImplOwner::Foreign,
        }
    }
}

/// The type that an implementation is of.
enum ImplOwner {
    /// A public one of the crate, by its path.
    Public(String),
    Private,
    /// One of another crate, or any that fits.
    Foreign,
}

fn items_of(made: &TokenStream) -> Result<Vec<syn::ImplItem>> {
    let block: ItemImpl = syn::parse2(quote::quote! { impl Made { #made } })?;
    Ok(block.items)
}

fn is_visible(item: &Item) -> bool {
    match item {
        Item::Const(item) => is_public(&item.vis),
        Item::Enum(item) => is_public(&item.vis),
        Item::Fn(item) => is_public(&item.vis),
        Item::Static(item) => is_public(&item.vis),
        Item::Struct(item) => is_public(&item.vis),
        Item::Trait(item) => is_public(&item.vis),
        Item::Type(item) => is_public(&item.vis),
        Item::Union(item) => is_public(&item.vis),
        _ => false,
    }
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("doc") => raw(list.tokens.clone()) == "hidden",
        _ => false,
    })
}

/// The condition and the derived traits of `cfg_attr(condition, derive(…))`.
fn conditional(tokens: &TokenStream) -> Option<(String, TokenStream)> {
    let mut parts = split(tokens.clone()).into_iter();
    let condition = raw(parts.next()?);
    let derive: syn::MetaList = syn::parse2(parts.next()?).ok()?;
    let is_derive = derive.path.is_ident("derive");
    is_derive.then_some((condition, derive.tokens))
}

/// The parts between commas.
fn split(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![TokenStream::new()];
    for tree in tokens {
        match &tree {
            TokenTree::Punct(punct) if punct.as_char() == ',' => parts.push(TokenStream::new()),
            _ => {
                if let Some(part) = parts.last_mut() {
                    part.extend([tree]);
                }
            }
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}
