//! Forms of the page that are refused: where they are shown again, and what is said of which field.

use serde_json::json;

use crate::page::{FORM, HTML, body};
use crate::stage::Stage;

#[test]
fn a_form_that_is_refused_stays_where_it_stands_with_what_was_typed() {
    let stage = Stage::new();
    let server = &stage.server;
    let fields = "persona_name=&persona_version=2&persona_text=You+keep+a+lighthouse.";
    let refused = |headers: &[(&str, &str)], status: u16| {
        let headers = [&[HTML, FORM][..], headers].concat();
        let reply = server.ask("POST", "/personas", &headers, fields);
        assert_eq!(reply.status, status, "{reply:?}");
        body(&reply)
    };
    let page = refused(&[], 422);
    let in_place = refused(&[("x-conjure-pieces", "sheet")], 200);
    let dialog = refused(&[("x-conjure-pieces", "1")], 200);
    assert!(page.contains("id=\"sheet\""), "{page}");
    for (shown, target) in [(&in_place, "sheet"), (&dialog, "dialog")] {
        let begin = format!("<template data-swap=\"inner\" data-target=\"{target}\">");
        assert!(shown.starts_with(&begin), "{shown}");
    }
    for shown in [&page, &in_place, &dialog] {
        assert!(shown.contains("aria-invalid=\"true\""), "{shown}");
        assert!(shown.contains(" autofocus"), "{shown}");
        assert!(shown.contains("You keep a lighthouse."), "{shown}");
    }
    // Which field it is comes as data.
    let new = json!({ "name": "", "persona_text": "x" });
    let problem = server.post("/api/v1/personas", &new).is(422).json();
    assert_eq!(problem["field"], "name", "{problem}");
}
