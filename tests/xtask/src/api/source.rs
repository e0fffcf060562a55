//! The source of a crate: its modules, what stands in them, and what a path in one of them leads to.
//!
//! Everything that is there with all features and without tests. Macros of other crates are not looked
//! into.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use proc_macro2::{TokenStream, TokenTree};
use syn::{Attribute, Ident, Item, Meta, UseTree, Visibility};

use super::expand::expand;
use super::tokens::raw;

/// How many imports a path is followed through, and how many imports of everything a name is looked for
/// behind.
const MAX_IMPORTS: u8 = 16;
const MAX_GLOBS: u8 = 3;

/// Conditions under which something is there, as `cfg` has them.
pub(super) type Gates = BTreeSet<String>;

/// The name of a module, without the crate.
pub(super) type ModulePath = Vec<String>;

/// A crate's source.
pub(super) struct CrateSource {
    /// The crate's name as a path has it.
    pub(super) name: String,
    pub(super) modules: BTreeMap<ModulePath, SourceModule>,
    /// What stands behind `macro_rules! name`.
    pub(super) macros: BTreeMap<String, TokenStream>,
}

/// A module's own items.
pub(super) struct SourceModule {
    pub(super) items: Vec<Item>,
    pub(super) gates: Gates,
}

/// What a path leads to.
pub(super) enum PathTarget {
    /// An item of this crate: its module and name.
    Local(ModulePath, String),
    /// A module of this crate.
    Module(ModulePath),
    /// Something of another crate, by its path.
    Foreign(String),
}

/// One name that a `use` brings.
pub(super) struct UseImport {
    pub(super) path: Vec<String>,
    /// The name that it has here; nothing where it is `*`.
    pub(super) name: Option<String>,
}

impl CrateSource {
    /// Reads a crate from the file of its root.
    ///
    /// # Errors
    /// When a file is missing or is no Rust, or a macro makes items that cannot be told.
    pub(super) fn read(name: &str, root: &Path) -> Result<Self> {
        let mut source = Self {
            name: name.replace('-', "_"),
            modules: BTreeMap::new(),
            macros: BTreeMap::new(),
        };
        let dir = root.parent().context("a file is in a directory")?;
        source.file(root, dir, Vec::new(), Gates::new())?;
        source.expand_calls()?;
        Ok(source)
    }

    /// Reads the file of a module; `dir` is where those below it are.
    fn file(&mut self, file: &Path, dir: &Path, path: ModulePath, gates: Gates) -> Result<()> {
        let shown = file.display();
        let text =
            std::fs::read_to_string(file).with_context(|| format!("`{shown}` cannot be read"))?;
        let parsed = syn::parse_file(&text).with_context(|| format!("`{shown}` is no Rust"))?;
        self.module(parsed.items, dir, path, gates)
    }

    fn module(
        &mut self,
        items: Vec<Item>,
        dir: &Path,
        path: ModulePath,
        gates: Gates,
    ) -> Result<()> {
        let mut kept = Vec::new();
        for item in items {
            if is_for_tests(attributes(&item)) {
                continue;
            }
            match &item {
                Item::Mod(module) => {
                    let name = module.ident.to_string();
                    let (inner, folder) = (below(&path, &name), dir.join(&name));
                    let mut gates = gates.clone();
                    gates.extend(gates_of(&module.attrs));
                    match &module.content {
                        Some((_, items)) => self.module(items.clone(), &folder, inner, gates)?,
                        None => {
                            let files = [dir.join(format!("{name}.rs")), folder.join("mod.rs")];
                            let file = files.iter().find(|file| file.is_file());
                            let file = file.with_context(|| {
                                format!("there is no file of the module `{}`", inner.join("::"))
                            })?;
                            self.file(file, &folder, inner, gates)?;
                        }
                    }
                }
                Item::Macro(made) => {
                    if let Some(name) = &made.ident {
                        let tokens = made.mac.tokens.clone();
                        self.macros.insert(name.to_string(), tokens);
                    }
                }
                _ => {}
            }
            kept.push(item);
        }
        self.modules
            .insert(path, SourceModule { items: kept, gates });
        Ok(())
    }

    /// Puts what the crate's macros make in the place of their calls.
    fn expand_calls(&mut self) -> Result<()> {
        for (path, module) in &mut self.modules {
            let mut items = Vec::new();
            for item in std::mem::take(&mut module.items) {
                match &item {
                    Item::Macro(call) if call.ident.is_none() => {
                        let made = expand_macro(&self.macros, &call.mac);
                        let made = made.with_context(|| format!("in `{}`", path.join("::")))?;
                        items.extend(syn::parse2::<syn::File>(made)?.items);
                    }
                    _ => items.push(item),
                }
            }
            module.items = items;
        }
        Ok(())
    }

    /// What a path in a module leads to.
    pub(super) fn resolve(&self, from: &[String], path: &[String]) -> PathTarget {
        self.resolve_path(from, path, MAX_IMPORTS)
    }

    fn resolve_path(&self, from: &[String], path: &[String], imports: u8) -> PathTarget {
        let foreign = || PathTarget::Foreign(path.join("::"));
        let Some(imports) = imports.checked_sub(1) else {
            return foreign();
        };
        let (mut at, mut rest, mut is_own) = match path.split_first() {
            Some((first, rest)) if first == "crate" => (Vec::new(), rest, true),
            Some((first, rest)) if first == "self" => (from.to_vec(), rest, true),
            _ => (from.to_vec(), path, false),
        };
        while let Some((name, behind)) = rest.split_first() {
            if name == "super" {
                at.pop();
                (rest, is_own) = (behind, true);
                continue;
            }
            if behind.is_empty() && self.defines(&at, name) {
                return PathTarget::Local(at, name.clone());
            }
            let module = below(&at, name);
            if self.modules.contains_key(&module) {
                (at, rest, is_own) = (module, behind, true);
                continue;
            }
            if self.defines(&at, name) {
                return PathTarget::Local(at, name.clone());
            }
            if let Some(imported) = self.import_path(&at, name, imports) {
                let whole = [imported.as_slice(), behind].concat();
                return self.resolve_path(&at, &whole, imports);
            }
            return match is_own {
                true => PathTarget::Local(at, name.clone()),
                false => foreign(),
            };
        }
        PathTarget::Module(at)
    }

    /// The path by which a module imports a name.
    fn import_path(&self, at: &[String], name: &str, imports: u8) -> Option<Vec<String>> {
        let all: Vec<UseImport> = self.items(at).iter().flat_map(imports_of).collect();
        let is_it =
            |import: &&UseImport| import.name.as_deref() == Some(name) && import.path != [name];
        if let Some(import) = all.iter().find(is_it) {
            return Some(import.path.clone());
        }
        let globs = all.iter().filter(|import| import.name.is_none());
        let mut offering = globs.filter(|glob| {
            let target = self.resolve_path(at, &glob.path, imports.min(1));
            matches!(target, PathTarget::Module(other) if other != at && self.has_name(&other, name, MAX_GLOBS))
        });
        offering.next().map(|glob| below(&glob.path, name))
    }

    /// Whether a module has a name: of its own, or by a `use`.
    fn has_name(&self, at: &[String], name: &str, globs: u8) -> bool {
        if self.defines(at, name) || self.modules.contains_key(&below(at, name)) {
            return true;
        }
        let mut imports = self.items(at).iter().flat_map(imports_of);
        imports.any(|import| match (&import.name, globs.checked_sub(1)) {
            (Some(own), _) => own == name,
            (None, Some(globs)) => {
                let target = self.resolve_path(at, &import.path, 1);
                matches!(target, PathTarget::Module(other) if other != at && self.has_name(&other, name, globs))
            }
            (None, None) => false,
        })
    }

    fn defines(&self, at: &[String], name: &str) -> bool {
        let mut names = self.items(at).iter().filter_map(name_of);
        names.any(|own| own == name)
    }

    fn items(&self, at: &[String]) -> &[Item] {
        let module = self.modules.get(at);
        module
            .map(|module| module.items.as_slice())
            .unwrap_or_default()
    }
}

/// What the call of a macro becomes: nothing for one of another crate.
///
/// # Errors
/// When one of another crate makes public items, or its own definition does not take it.
pub(super) fn expand_macro(
    macros: &BTreeMap<String, TokenStream>,
    call: &syn::Macro,
) -> Result<TokenStream> {
    let name = call.path.get_ident().map(Ident::to_string);
    if let Some(definition) = name.and_then(|name| macros.get(&name)) {
        return expand(definition, &call.tokens);
    }
    let tokens: Vec<TokenTree> = call.tokens.clone().into_iter().collect();
    let is_public = tokens.windows(2).any(
        |two| matches!(two, [TokenTree::Ident(word), next] if word == "pub" && !is_group(next)),
    );
    if is_public {
        let called = raw(quote::ToTokens::to_token_stream(&call.path));
        bail!("`{called}!` makes public items, and what they are cannot be told from the source");
    }
    Ok(TokenStream::new())
}

fn is_group(tree: &TokenTree) -> bool {
    matches!(tree, TokenTree::Group(_))
}

/// A module's path with one more name.
pub(super) fn below(path: &[String], name: &str) -> Vec<String> {
    let mut longer = path.to_vec();
    longer.push(name.to_owned());
    longer
}

/// What a `use` brings; nothing for other items.
pub(super) fn imports_of(item: &Item) -> Vec<UseImport> {
    let mut imports = Vec::new();
    if let Item::Use(item) = item {
        collect_imports(&item.tree, &[], &mut imports);
    }
    imports
}

fn collect_imports(tree: &UseTree, path: &[String], imports: &mut Vec<UseImport>) {
    match tree {
        UseTree::Path(inner) => {
            collect_imports(&inner.tree, &below(path, &inner.ident.to_string()), imports);
        }
        UseTree::Name(own) if own.ident == "self" => imports.push(UseImport {
            path: path.to_vec(),
            name: path.last().cloned(),
        }),
        UseTree::Name(own) => imports.push(UseImport {
            path: below(path, &own.ident.to_string()),
            name: Some(own.ident.to_string()),
        }),
        UseTree::Rename(own) => imports.push(UseImport {
            path: below(path, &own.ident.to_string()),
            name: Some(own.rename.to_string()),
        }),
        UseTree::Glob(_) => imports.push(UseImport {
            path: path.to_vec(),
            name: None,
        }),
        UseTree::Group(group) => {
            for tree in &group.items {
                collect_imports(tree, path, imports);
            }
        }
    }
}

/// The name of an item that defines one.
pub(super) fn name_of(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

pub(super) fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

pub(super) const fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// The conditions in `#[cfg(…)]`.
pub(super) fn gates_of(attributes: &[Attribute]) -> Gates {
    let gates = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::List(list) if list.path.is_ident("cfg") => Some(raw(list.tokens.clone())),
            _ => None,
        });
    gates.collect()
}

/// Whether something is there in tests only.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    gates_of(attributes).iter().any(|gate| {
        let words = || gate.split(|sign: char| !(sign.is_alphanumeric() || sign == '_'));
        let is_choice = words().any(|word| word == "not" || word == "any");
        !is_choice && words().any(|word| word == "test" || word == "doctest")
    })
}

/// The crate of a package that cargo describes: its root file.
pub(super) fn root_of(package: &serde_json::Value) -> Result<std::path::PathBuf> {
    let targets = package.get("targets").and_then(serde_json::Value::as_array);
    let kinds = ["lib", "proc-macro"];
    let library = targets.into_iter().flatten().find(|target| {
        let own = target.get("kind").and_then(serde_json::Value::as_array);
        let mut own = own.into_iter().flatten();
        own.any(|kind| kinds.iter().any(|known| kind == known))
    });
    let path = library.and_then(|target| target.get("src_path")?.as_str());
    let path = path.context("the package has no library")?;
    ensure!(Path::new(path).is_file(), "`{path}` is not there");
    Ok(path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(files: &[(&str, &str)]) -> CrateSource {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        CrateSource::read("a-crate", &root.path().join("lib.rs")).unwrap()
    }

    fn words(path: &str) -> Vec<String> {
        let words = path.split("::").filter(|word| !word.is_empty());
        words.map(str::to_owned).collect()
    }

    #[test]
    fn paths_are_followed_through_imports_and_modules() {
        let source = source(&[
            (
                "lib.rs",
                "mod a; mod b; pub use a::Deep; #[cfg(test)] mod gone;",
            ),
            ("a.rs", "mod inner; pub use inner::*; use std::fmt;"),
            ("a/inner.rs", "pub struct Deep; pub struct Other;"),
            (
                "b/mod.rs",
                "use super::a::{self, Deep as Renamed}; use crate::a::*;",
            ),
        ]);
        for (from, path, expected) in [
            ("", "Deep", "own a::inner Deep"),
            ("b", "Renamed", "own a::inner Deep"),
            ("b", "a::Other", "own a::inner Other"),
            ("b", "Other", "own a::inner Other"),
            ("a", "fmt::Display", "foreign std::fmt::Display"),
            ("a::inner", "super::super::b", "module b"),
            ("b", "super::a::Made", "own a Made"),
            ("b", "serde::Serialize", "foreign serde::Serialize"),
        ] {
            let found = match source.resolve(&words(from), &words(path)) {
                PathTarget::Local(module, name) => format!("own {} {name}", module.join("::")),
                PathTarget::Module(module) => format!("module {}", module.join("::")),
                PathTarget::Foreign(path) => format!("foreign {path}"),
            };
            assert_eq!(found, expected, "{path} in {from}");
        }
        assert!(!source.modules.contains_key(&words("gone")));
    }

    #[test]
    fn a_foreign_macro_that_makes_public_items_is_not_passed_over() {
        let call = |text: &str| expand_macro(&BTreeMap::new(), &syn::parse_str(text).unwrap());
        let error = call("flags! { pub struct A; }").unwrap_err().to_string();
        assert!(error.contains("`flags!` makes public items"), "{error}");
        assert!(call("local! { static A: u8 = 0; }").unwrap().is_empty());
        assert!(
            call("local! { pub(crate) static A: u8 = 0; }")
                .unwrap()
                .is_empty()
        );
    }
}
