//! The saved sessions, as an editor lists them.

use std::collections::BTreeSet;

use agent_client_protocol::v1::schema::{ClientCapabilities, ListSessionsRequest};
use conjure_kit::Model;

use super::editor::{Editor, with_editor};
use super::{acp, stage};
use crate::session::{done, show};

/// More than are listed at once.
const SESSIONS: usize = 52;

#[test]
fn sessions_are_listed_page_by_page_those_used_last_first() {
    let model = Model::start().unwrap();
    let workspace = stage(&model);
    let far = workspace.root().join("far");
    std::fs::create_dir(&far).unwrap();
    let create = format!(
        "session create far --auth work --model m --working-dir {}",
        far.display()
    );
    done(&workspace, &create);
    for n in 1..=SESSIONS {
        let create = format!("session create s{n} --auth work --model m");
        done(&workspace, &create);
    }
    let last = show(&workspace, &format!("s{SESSIONS}"));
    let can = ClientCapabilities::new();
    let editor = Editor::default();
    let (pages, of_far) = with_editor(acp(&workspace), &editor, can, async |talk| {
        let mut pages: Vec<Vec<String>> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let request = ListSessionsRequest::new().cursor(cursor.take());
            let page = talk.agent.send_request(request).block_task().await?;
            let ids = page.sessions.iter().map(|one| one.session_id.0.to_string());
            pages.push(ids.collect());
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        // The only one of its directory, used before all others.
        let of_far = ListSessionsRequest::new().cwd(far.clone());
        let of_far = talk.agent.send_request(of_far).block_task().await?;
        Ok((pages, of_far.sessions))
    });
    let counts: Vec<usize> = pages.iter().map(Vec::len).collect();
    assert_eq!(counts, [50, 3]);
    let all: BTreeSet<&String> = pages.iter().flatten().collect();
    assert_eq!(all.len(), SESSIONS + 1);
    let first = pages.iter().flatten().next().unwrap();
    assert_eq!(last["id"], first.as_str());
    let [of_far] = of_far.as_slice() else {
        panic!("{of_far:?}");
    };
    assert_eq!(of_far.cwd, far);
}
