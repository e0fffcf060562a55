//! The outer side of the library, by hand: `export_skill!` would leave no room for lies.
//!
//! Does what that macro does, and adds a constructor. The only unsafe code of the plugin.

#![allow(
    unsafe_code,
    reason = "a header in a section of its own, exported symbols, a constructor, and a fault"
)]

use conjure_skill_sdk::abi::abi_stable::library::{LibHeader, RootModuleResult};
use conjure_skill_sdk::abi::{
    CallContext, Fault, Header, PluginKind, PluginObject, RResult, RSlice, RVec, Root, erase,
    export_constructor,
};
use conjure_skill_sdk::{RUSTC_VERSION, SDK_VERSION};

use crate::load;

/// The plugin's name, in the header and in an honest manifest.
pub(crate) const NAME: &str = "misbehaving";
/// The plugin's version, there too.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__conjure"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".conjure"))]
#[unsafe(export_name = "conjure_header_v1")]
static HEADER: Header = Header::new(
    PluginKind::Skill,
    cfg!(panic = "unwind"),
    NAME,
    VERSION,
    SDK_VERSION,
    RUSTC_VERSION,
);

// SAFETY: `root` returns what `erase` made.
#[unsafe(export_name = "conjure_root_v1")]
static ROOT: LibHeader = unsafe { export_constructor(root) };

#[used]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
#[cfg_attr(not(target_os = "macos"), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn root() -> RootModuleResult {
    erase(Root { manifest, create })
}

extern "C" fn manifest() -> RVec<u8> {
    load::manifest()
}

extern "C" fn create(config: RSlice<'_, u8>, cx: CallContext) -> RResult<PluginObject, Fault> {
    load::create(config, cx)
}

extern "C" fn constructor() {
    load::constructor();
}

/// Reads from an address that nobody has.
pub(crate) fn segfault() {
    // Not the null page itself, which the compiler knows to be nobody's.
    let nowhere = std::hint::black_box(0x10 as *const u8);
    // SAFETY: none; the process ends here, which is what the mode is for.
    let byte = unsafe { nowhere.read_volatile() };
    std::hint::black_box(byte);
}
