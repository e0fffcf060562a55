//! Pins every layout and signature of the binary interface to its version.
//!
//! The snapshot is named after the version: changing what crosses the boundary fails here until
//! the version is another one. Version 1.0.0 is what libraries rely on that people ship: its
//! snapshots never change. They name no compiler, no address and no type id, so every compiler
//! for a 64-bit target gives the same text.

#![cfg(test)]

use std::fmt::Write as _;

use conjure_abi::abi_stable::StableAbi;
use conjure_abi::abi_stable::library::LibHeader;
use conjure_abi::abi_stable::type_layout::{TLData, TLFields, TLFunction, TypeLayout};
use conjure_abi::{
    ABI_MAJOR, ABI_MINOR, CallContext, EmitKind, EmitStatus, Fault, FfiFuture, HEADER_LEN,
    HEADER_MAGIC, Header, LogLevel, PluginKind, PluginObject, ROOT_SYMBOL, Reply, RootRef, code,
};

/// The layouts of types and of all that they are made of, each under a name of its own: a type's
/// name without its parameters is not enough to tell two apart.
#[derive(Default)]
struct Layouts {
    known: Vec<(&'static TypeLayout, String)>,
    text: String,
}

impl Layouts {
    fn of(roots: &[(&str, &'static TypeLayout)]) -> String {
        let mut layouts = Self::default();
        for (role, layout) in roots {
            let name = layouts.name(layout);
            writeln!(layouts.text, "{role} = {name}").unwrap();
        }
        // Describing one type may name new ones, which then stand at the end.
        let mut next = 0;
        while let Some((layout, name)) = layouts.known.get(next).cloned() {
            layouts.describe(layout, &name);
            next += 1;
        }
        layouts.text
    }

    fn name(&mut self, layout: &'static TypeLayout) -> String {
        if let Some((_, name)) = self.known.iter().find(|(known, _)| *known == layout) {
            return name.clone();
        }
        let plain = layout.full_type().to_string();
        let plain = plain.split_whitespace().collect::<Vec<_>>().join(" ");
        let same = |name: &String| name.split('#').next() == Some(plain.as_str());
        let name = match self.known.iter().filter(|(_, name)| same(name)).count() {
            0 => plain,
            before => format!("{plain}#{}", before + 1),
        };
        self.known.push((layout, name.clone()));
        name
    }

    fn describe(&mut self, layout: &'static TypeLayout, name: &str) {
        writeln!(
            self.text,
            "\n{name}: {} bytes, align {}, {:?}{}",
            layout.size(),
            layout.alignment(),
            layout.repr_attr(),
            if layout.is_nonzero() { ", nonzero" } else { "" },
        )
        .unwrap();
        match layout.data() {
            TLData::Primitive(primitive) => {
                writeln!(self.text, "  primitive {primitive:?}").unwrap();
            }
            TLData::Opaque => self.text.push_str("  opaque\n"),
            TLData::Struct { fields } => self.fields("field", fields),
            TLData::Union { fields } => self.fields("union field", fields),
            TLData::Enum(data) => {
                let counts: Vec<u8> = data.field_count.iter().copied().collect();
                writeln!(
                    self.text,
                    "  variants {} = {:?} with {counts:?} fields",
                    data.variant_names.as_str(),
                    data.discriminants,
                )
                .unwrap();
                self.fields("field", data.fields);
            }
            TLData::PrefixType(data) => {
                let (always, all) = (data.first_suffix_field, data.fields.len());
                writeln!(
                    self.text,
                    "  prefix type: {always} of {all} fields are always there"
                )
                .unwrap();
                self.fields("field", data.fields);
            }
        }
        self.fields("phantom", layout.phantom_fields());
        for parameter in layout.generics().type_params() {
            let parameter = self.name(parameter());
            writeln!(self.text, "  of {parameter}").unwrap();
        }
    }

    fn fields(&mut self, what: &str, fields: TLFields) {
        for field in fields {
            let layout = self.name(field.layout());
            writeln!(self.text, "  {what} {}: {layout}", field.name()).unwrap();
            for function in field.function_range().iter() {
                let signature = self.signature(&function);
                writeln!(self.text, "    {signature}").unwrap();
            }
        }
    }

    fn signature(&mut self, function: &TLFunction) -> String {
        let qualifier = if function.to_string().starts_with("unsafe ") {
            "unsafe "
        } else {
            ""
        };
        let parameters: Vec<String> = function
            .param_type_layouts
            .iter()
            .map(|layout| self.name(layout()))
            .collect();
        let returns = match function.return_type_layout() {
            Some(layout) => self.name(layout()),
            None => "()".to_owned(),
        };
        format!(
            "{qualifier}extern \"C\" fn({}) -> {returns}",
            parameters.join(", ")
        )
    }
}

/// A name with the snapshot's version in it.
fn versioned(what: &str) -> String {
    format!("{what}-{}", env!("CARGO_PKG_VERSION"))
}

#[test]
fn every_layout_and_signature_is_pinned_to_the_version() {
    let text = Layouts::of(&[
        ("root", <RootRef as StableAbi>::LAYOUT),
        ("plugin", <PluginObject as StableAbi>::LAYOUT),
        ("context", <CallContext as StableAbi>::LAYOUT),
        ("reply", <Reply as StableAbi>::LAYOUT),
        ("fault", <Fault as StableAbi>::LAYOUT),
        ("future", <FfiFuture<Reply> as StableAbi>::LAYOUT),
    ]);
    insta::assert_snapshot!(versioned("layouts"), text);
}

#[test]
fn every_number_is_pinned_to_the_version() {
    let mut text = String::new();
    macro_rules! note {
        ($($path:path),* $(,)?) => {
            $(writeln!(text, "{} = {}", stringify!($path).replace(' ', ""), $path as u32).unwrap();)*
        };
    }
    note!(
        ABI_MAJOR,
        ABI_MINOR,
        EmitKind::Stdout,
        EmitKind::Stderr,
        EmitKind::Event,
        EmitStatus::Ok,
        EmitStatus::Cancelled,
        EmitStatus::Full,
        LogLevel::Error,
        LogLevel::Warn,
        LogLevel::Info,
        LogLevel::Debug,
        LogLevel::Trace,
        PluginKind::Skill,
        PluginKind::Executor,
        PluginKind::Backend,
        code::UNSUPPORTED,
        code::INVALID,
        code::PANIC,
        code::CANCELLED,
        code::TIMEOUT,
        code::FAILED,
        code::DENIED,
        code::NOT_FOUND,
        code::GONE,
        code::BUSY,
        HEADER_LEN,
    );
    writeln!(
        text,
        "HEADER_MAGIC = {:?}",
        HEADER_MAGIC.escape_ascii().to_string()
    )
    .unwrap();
    writeln!(
        text,
        "ROOT_SYMBOL = {:?}",
        ROOT_SYMBOL.escape_ascii().to_string()
    )
    .unwrap();
    writeln!(text, "LibHeader: {} bytes", size_of::<LibHeader>()).unwrap();
    insta::assert_snapshot!(versioned("numbers"), text);
}

#[test]
#[expect(
    unsafe_code,
    reason = "the test looks at the struct as the linker writes it"
)]
fn every_byte_of_the_header_is_pinned_to_the_version() {
    let header = Header::new(PluginKind::Backend, true, "name", "1.2.3", "sdk", "rustc");
    // SAFETY: `Header` has alignment 1 and no padding, so every byte is initialised.
    let bytes: [u8; HEADER_LEN] = unsafe { std::mem::transmute(header) };
    let mut text = String::new();
    for (row, bytes) in bytes.chunks(16).enumerate() {
        writeln!(text, "{:03}  {}", row * 16, bytes.escape_ascii()).unwrap();
    }
    insta::assert_snapshot!(versioned("header"), text);
}
