//! A block of code, with what it is and a button that copies it.

use conjure_core::foreign_text::clean;
use maud::{Markup, html};

/// The classes of pieces of code.
pub(crate) const CLASSES: [&str; 0] = [];

/// The block. `info` is what stands behind the fence.
pub(crate) fn block(info: &str, literal: &str) -> Markup {
    let language: String = info
        .split_whitespace()
        .next()
        .unwrap_or_default()
        .chars()
        .take(30)
        .collect();
    html! {
        figure.code {
            figcaption {
                span { (language) }
                button.plain type="button" data-copy="" { "Copy" }
            }
            pre tabindex="0" { code { (clean(literal)) } }
        }
    }
}
