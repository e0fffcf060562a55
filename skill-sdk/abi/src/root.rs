//! The root of a plugin: the two functions that a host calls first.

use abi_stable::StableAbi;
use abi_stable::library::{LibHeader, RootModule, RootModuleError, RootModuleResult};
use abi_stable::package_version_strings;
use abi_stable::prefix_type::{PrefixRefTrait, PrefixTypeTrait};
use abi_stable::sabi_types::VersionStrings;
use abi_stable::std_types::{RResult, RSlice, RVec};

use crate::{CallContext, Fault, PluginObject};

/// The symbol under which a plugin exports its root, NUL included. It holds the ABI's major
/// version, so a library may one day export more than one.
pub const ROOT_SYMBOL: &[u8] = b"conjure_root_v1\0";

/// The functions that a plugin exports.
#[repr(C)]
#[derive(StableAbi)]
#[sabi(kind(Prefix(prefix_ref = RootRef, prefix_fields = RootPrefix)))]
#[sabi(missing_field(panic))]
pub struct Root {
    /// The manifest as JSON (`protocol/1/manifest.json`). The same bytes every time.
    pub manifest: extern "C" fn() -> RVec<u8>,

    /// Makes an instance. The first argument is JSON (`protocol/1/create.json`); the context
    /// lives as long as the instance and serves host operations outside any call.
    #[sabi(last_prefix_field)]
    pub create: extern "C" fn(RSlice<'_, u8>, CallContext) -> RResult<PluginObject, Fault>,
}

impl RootModule for RootRef {
    abi_stable::declare_root_module_statics! {RootRef}

    const BASE_NAME: &'static str = "conjure_plugin";
    const NAME: &'static str = "conjure_plugin";
    const VERSION_STRINGS: VersionStrings = package_version_strings!();
}

/// The value that a plugin exports under [`ROOT_SYMBOL`].
///
/// For the SDK's export macro; an author never calls it.
///
/// # Safety
/// `constructor` must return what [`erase`] made.
#[doc(hidden)]
#[expect(
    unsafe_code,
    reason = "abi_stable's library header is built from an untyped constructor"
)]
pub const unsafe fn export_constructor(
    constructor: extern "C" fn() -> RootModuleResult,
) -> LibHeader {
    // SAFETY: the caller vouches that the constructor returns an erased `RootRef`.
    unsafe {
        LibHeader::from_constructor::<RootRef>(
            constructor,
            abi_stable::library::CheckTypeLayout::Yes,
        )
    }
}

/// Turns a root into what a constructor returns.
#[doc(hidden)]
#[expect(
    unsafe_code,
    reason = "the prefix is erased for abi_stable's header and restored there"
)]
pub fn erase(root: Root) -> RootModuleResult {
    let prefix = root.leak_into_prefix().to_prefix_ref();
    // SAFETY: `ErasedPrefix` is an opaque prefix; the host casts it back only after comparing
    // layouts.
    RResult::<_, RootModuleError>::ROk(unsafe { prefix.cast() })
}
