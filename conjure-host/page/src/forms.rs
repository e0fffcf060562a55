//! Pieces of forms: fields with their labels and what is wrong with them, dialogs.
//!
//! A form with `data-swap` is sent by the module, and its answer's pieces are put in place; without
//! script it is sent by the browser, and its answer is a page. So each form has an ordinary `action`.

use axum::response::Response;
use maud::{Markup, html};

use crate::layout::{PageFrame, layout};
use crate::request::PageRequest;
use crate::respond::{Swap, piece, pieces};

/// A field of a form.
pub(crate) struct Field<'a> {
    /// Name of the field in what the form sends.
    pub(crate) name: &'a str,
    /// Id of the element in the page.
    pub(crate) id: &'a str,
    pub(crate) label: &'a str,
    /// What helps to fill it in.
    pub(crate) hint: &'a str,
    /// What is wrong with what was sent.
    pub(crate) error: Option<&'a str>,
    pub(crate) required: bool,
}

impl<'a> Field<'a> {
    pub(crate) fn new(id: &'a str, name: &'a str, label: &'a str) -> Self {
        Self {
            name,
            id,
            label,
            hint: "",
            error: None,
            required: false,
        }
    }

    pub(crate) fn hint(self, hint: &'a str) -> Self {
        Self { hint, ..self }
    }

    pub(crate) fn error(self, error: Option<&'a str>) -> Self {
        Self { error, ..self }
    }

    pub(crate) fn required(self) -> Self {
        Self {
            required: true,
            ..self
        }
    }

    /// A line of text; `kind` is the input's type, such as `text` or `password`.
    pub(crate) fn input(&self, kind: &str, value: &str) -> Markup {
        self.wrap(&html! {
            input id=(self.id) name=(self.name) type=(kind) value=(value) required[self.required]
                aria-invalid=[self.error.map(|_| "true")] aria-describedby=[self.description_id()]
                autofocus[self.error.is_some()] autocomplete="off" spellcheck="false";
        })
    }

    /// Several lines of text.
    pub(crate) fn textarea(&self, rows: usize, value: &str) -> Markup {
        self.wrap(&html! {
            textarea id=(self.id) name=(self.name) rows=(rows) required[self.required]
                aria-invalid=[self.error.map(|_| "true")] aria-describedby=[self.description_id()]
                autofocus[self.error.is_some()] {
                // A browser takes the first line end away.
                "\n" (value)
            }
        })
    }

    /// One of several: value and words.
    pub(crate) fn select(&self, chosen: &str, all: &[(String, String)]) -> Markup {
        self.wrap(&html! {
            select id=(self.id) name=(self.name) required[self.required]
                aria-invalid=[self.error.map(|_| "true")] aria-describedby=[self.description_id()]
                autofocus[self.error.is_some()] {
                @for (value, words) in all {
                    option value=(value) selected[value == chosen] { (words) }
                }
            }
        })
    }

    /// Yes or no: `on` is sent for yes.
    pub(crate) fn checkbox(&self, checked: bool) -> Markup {
        html! {
            div.field.check {
                input id=(self.id) name=(self.name) type="checkbox" checked[checked]
                    aria-describedby=[self.description_id()];
                label for=(self.id) { (self.label) }
                (self.description())
            }
        }
    }

    fn description_id(&self) -> Option<String> {
        let is_said = self.error.is_some() || !self.hint.is_empty();
        is_said.then(|| format!("{}-words", self.id))
    }

    fn wrap(&self, control: &Markup) -> Markup {
        html! {
            div.field {
                label for=(self.id) { (self.label) }
                (control)
                (self.description())
            }
        }
    }

    fn description(&self) -> Markup {
        html! {
            @if let Some(id) = self.description_id() {
                p.hint.wrong[self.error.is_some()] id=(id) { (self.error.unwrap_or(self.hint)) }
            }
        }
    }
}

/// What a dialog holds: its title, its body, and a button that closes it. The module puts it into
/// the page's dialog and opens that.
pub(crate) fn dialog(title: &str, body: &Markup) -> Markup {
    html! {
        section.sheet aria-label=(title) {
            header {
                h2 { (title) }
                button.plain.close #dialog-close type="button" data-close aria-label="Close" { "×" }
            }
            (body)
        }
    }
}

/// A dialog at an address of its own: pieces that open it for the module, a page without script,
/// whose heading is the title and which has nothing to close. `view` is that page.
pub(crate) fn show_dialog(
    request: &PageRequest,
    view: &PageFrame<'_>,
    title: &str,
    body: &Markup,
) -> Response {
    if request.pieces {
        pieces(piece(Swap::Inner, "dialog", &dialog(title, body)))
    } else {
        layout(
            request,
            view,
            &html! { div.narrow { h1 { (title) } (body) } },
        )
    }
}

/// The piece that closes the dialog.
pub(crate) fn close_dialog() -> Markup {
    piece(Swap::Inner, "dialog", &html! {})
}

/// What is wrong with a form as a whole. Who sent it goes on there, as at a field that is wrong.
pub(crate) fn form_error(error: Option<&str>) -> Markup {
    html! {
        @if let Some(error) = error { p.form-error role="alert" tabindex="-1" autofocus { (error) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_says_what_is_wrong_with_it_and_escapes_what_was_sent() {
        let field = Field::new("auth-name", "name", "Name");
        let field = field.hint("3 to 50").error(Some("too <short>")).required();
        let text = field.input("text", "\"><script>").into_string();
        assert!(text.contains("aria-invalid=\"true\""), "{text}");
        assert!(text.contains(" autofocus"), "{text}");
        assert!(text.contains("aria-describedby=\"auth-name-words\""));
        assert!(text.contains("too &lt;short&gt;"));
        assert!(text.contains("&quot;&gt;&lt;script&gt;"));
        let text = field.textarea(3, "\n</textarea>").into_string();
        assert!(text.contains(">\n\n&lt;/textarea&gt;</textarea>"), "{text}");
    }
}
