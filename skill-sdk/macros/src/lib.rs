//! The attribute `#[skill]` of Conjure's plugin SDK. It is used through `conjure_skill_sdk::skill`,
//! where its documentation is.
//!
//! The attribute writes what an author would: a function that builds the skill with the SDK's
//! builder. Begin at `expand.rs`; `parse.rs` reads the `impl` block, `marks.rs` what stands above
//! its functions.

mod expand;
mod marks;
mod parse;

use proc_macro::TokenStream;

/// Makes a skill of an `impl` block; see `conjure_skill_sdk::skill`.
#[proc_macro_attribute]
pub fn skill(options: TokenStream, block: TokenStream) -> TokenStream {
    expand::expand(options.into(), &block.into()).into()
}
