//! How release builds are laid out: which functions lie side by side.

mod arguments;
mod order;
mod symbols;

pub use arguments::Arguments;
pub use order::{Order, name};
pub use symbols::{defined_functions, functions};
