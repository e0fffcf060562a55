//! The outer side of a plugin: header, root, `create`, and the macros that export them.
//!
//! With the loader in the host, the only place where bytes of one library are trusted by another.

use conjure_abi::abi_stable::sabi_trait::TD_Opaque;
use conjure_abi::{CallContext, Fault, Plugin_TO, PluginObject, RResult, RSlice, RVec, code};

use crate::cx::Cx;
use crate::dispatch::{Dispatch, GuardedPlugin};
use crate::envelope::Envelope;
use crate::error::{Error, Result, to_fault};
use crate::guard::{Library, guard, install_panic_hook};
use crate::protocol::{Create, Manifest};
use crate::setup::Setup;
use crate::skill::Skill;

/// What the attribute `#[skill]` writes names of.
#[cfg(feature = "macros")]
pub use crate::macro_support::{IntoState, SkillState};
#[cfg(feature = "macros")]
pub use {schemars, serde};

/// Something that can be exported from a library or linked into a host: a [`Skill`], an
/// `ExecutorPlugin` or a `BackendPlugin`.
pub trait Exported: Sized {
    /// The name that the builder was given.
    fn plugin_name(&self) -> String;

    /// The manifest under that name and version.
    ///
    /// # Errors
    /// What is wrong with the builder.
    fn plugin_manifest(&self, name: &str, version: &str) -> Result<Manifest>;

    /// Makes an instance.
    ///
    /// # Errors
    /// What author code says.
    fn into_plugin(self, setup: Setup) -> Result<PluginObject>;
}

impl Exported for Skill {
    fn plugin_name(&self) -> String {
        self.name().to_owned()
    }

    fn plugin_manifest(&self, name: &str, version: &str) -> Result<Manifest> {
        self.manifest(name, version)
    }

    fn into_plugin(self, setup: Setup) -> Result<PluginObject> {
        Ok(object(self.instance(&setup)?))
    }
}

pub(crate) fn object(dispatch: impl Dispatch) -> PluginObject {
    Plugin_TO::from_value(GuardedPlugin::new(dispatch), TD_Opaque)
}

/// What `Root::manifest` returns. A builder that panics or contradicts itself gives
/// `{"error": "…"}`, which no host takes for a manifest.
pub fn manifest<E: Exported>(make: fn() -> E, name: &str, version: &str) -> RVec<u8> {
    install_panic_hook(Library::Plugin);
    let manifest = guard(|| make().plugin_manifest(name, version))
        .and_then(|manifest| Ok(serde_json::to_vec(&manifest)?));
    let bytes = manifest.unwrap_or_else(|error| {
        serde_json::json!({ "error": error.message() })
            .to_string()
            .into_bytes()
    });
    RVec::from(bytes)
}

/// What `Root::create` does.
pub fn create<E: Exported>(
    make: fn() -> E,
    config: RSlice<'_, u8>,
    cx: CallContext,
) -> RResult<PluginObject, Fault> {
    install_panic_hook(Library::Plugin);
    match guard(|| instance(make(), config.as_slice(), cx)) {
        Ok(plugin) => RResult::ROk(plugin),
        Err(error) => RResult::RErr(to_fault(error)),
    }
}

/// The manifest of something that is linked into the host. Its name is the builder's.
///
/// # Errors
/// As [`Exported::plugin_manifest`], and [`code::PANIC`].
pub fn manifest_linked<E: Exported>(make: impl FnOnce() -> E, version: &str) -> Result<Manifest> {
    install_panic_hook(Library::Program);
    guard(|| {
        let exported = make();
        exported.plugin_manifest(&exported.plugin_name(), version)
    })
}

/// Makes an instance of something that is linked into the host, through the same steps.
///
/// # Errors
/// As [`Exported::into_plugin`], and [`code::PANIC`].
pub fn create_linked<E: Exported>(
    make: impl FnOnce() -> E,
    config: &[u8],
    cx: CallContext,
) -> Result<PluginObject> {
    install_panic_hook(Library::Program);
    guard(|| instance(make(), config, cx))
}

fn instance<E: Exported>(exported: E, config: &[u8], cx: CallContext) -> Result<PluginObject> {
    let create: Create = serde_json::from_slice(config)
        .map_err(|e| Error::with_code(code::INVALID, format!("`create` does not fit: {e}")))?;
    let envelope = Envelope::of_session(create.session.as_deref());
    exported.into_plugin(Setup {
        create,
        cx: Cx::new(cx, envelope),
    })
}

/// Exports a [`Skill`] from a library: `export_skill!(make)` with `fn make() -> Skill`.
///
/// The plugin's name is the crate's unless `name = "…"` says otherwise; it must be the name that
/// the builder was given. Its version is the crate's.
#[macro_export]
macro_rules! export_skill {
    ($make:path $(, name = $name:expr)? $(,)?) => {
        $crate::__export_plugin!(Skill, $make $(, $name)?);
    };
}

/// Exports an `ExecutorPlugin` from a library, as [`export_skill!`] does a skill.
#[macro_export]
macro_rules! export_executor {
    ($make:path $(, name = $name:expr)? $(,)?) => {
        $crate::__export_plugin!(Executor, $make $(, $name)?);
    };
}

/// Exports a `BackendPlugin` from a library, as [`export_skill!`] does a skill.
#[macro_export]
macro_rules! export_backend {
    ($make:path $(, name = $name:expr)? $(,)?) => {
        $crate::__export_plugin!(Backend, $make $(, $name)?);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __export_plugin {
    ($kind:ident, $make:path) => {
        $crate::__export_plugin!($kind, $make, env!("CARGO_PKG_NAME"));
    };
    ($kind:ident, $make:path, $name:expr) => {
        #[allow(
            unsafe_code,
            reason = "a header in a section of its own, and one exported symbol"
        )]
        const _: () = {
            const NAME: &str = $name;
            const VERSION: &str = env!("CARGO_PKG_VERSION");

            #[used]
            #[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__conjure"))]
            #[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".conjure"))]
            #[unsafe(export_name = "conjure_header_v1")]
            pub static HEADER: $crate::abi::Header = $crate::abi::Header::new(
                $crate::abi::PluginKind::$kind,
                cfg!(panic = "unwind"),
                NAME,
                VERSION,
                $crate::SDK_VERSION,
                $crate::RUSTC_VERSION,
            );

            extern "C" fn manifest() -> $crate::abi::RVec<u8> {
                $crate::export::manifest($make, NAME, VERSION)
            }

            extern "C" fn create(
                config: $crate::abi::RSlice<'_, u8>,
                cx: $crate::abi::CallContext,
            ) -> $crate::abi::RResult<$crate::abi::PluginObject, $crate::abi::Fault> {
                $crate::export::create($make, config, cx)
            }

            extern "C" fn root() -> $crate::abi::abi_stable::library::RootModuleResult {
                $crate::abi::erase($crate::abi::Root { manifest, create })
            }

            // SAFETY: `root` returns what `erase` made.
            #[unsafe(export_name = "conjure_root_v1")]
            pub static ROOT: $crate::abi::abi_stable::library::LibHeader =
                unsafe { $crate::abi::export_constructor(root) };
        };
    };
}
