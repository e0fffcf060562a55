//! The conversation: a session's threads, what was said and done in them, and what happens now.
//!
//! `model.rs` says what is shown of a thread's entries and `render.rs` how; `live.rs` and
//! `stream.rs` do the same for a turn that runs. `view.rs` puts a page together, `actions.rs` does
//! what its forms ask for.

mod actions;
mod address;
mod card;
mod code;
mod composer;
mod context;
mod dialogs;
mod figures;
mod find;
mod folds;
mod head;
#[cfg(test)]
mod hostile;
mod live;
mod live_item;
mod live_text;
mod markdown;
mod model;
mod question;
mod render;
mod replay;
mod replay_rooms;
mod replay_steps;
mod shared;
mod stream;
mod thread_import;
mod threads;
mod view;

pub(crate) use replay_rooms::ReplayRooms;
pub use shared::{shared_file_name, shared_html};

use axum::Router;
use axum::routing::{get, post};

use crate::PageState;

pub(crate) fn router() -> Router<PageState> {
    let of_thread = Router::new()
        .route("/", get(view::thread))
        .route("/live", get(stream::follow))
        .route("/find", get(find::find))
        .route("/replay", get(replay::show))
        .route("/summarise", get(folds::ask).post(folds::summarise))
        .route("/unfold/{seq}", post(folds::take_back))
        .route("/fork", post(actions::fork))
        .route("/rename", post(actions::rename))
        .route("/clear", get(dialogs::clear).post(actions::clear))
        .route("/edit/{seq}", get(dialogs::edit).post(actions::edit))
        .route("/output/{seq}", get(dialogs::output))
        .route("/file/{file}", get(dialogs::file));
    Router::new()
        .route("/attachments", post(actions::attach))
        .route("/sessions/{session}", get(view::session))
        .route("/sessions/{session}/say", post(actions::say))
        .route("/sessions/{session}/stop", post(actions::stop))
        .route(
            "/sessions/{session}/approvals/{call}",
            post(actions::decide),
        )
        .route(
            "/sessions/{session}/questions/{question}",
            post(actions::answer),
        )
        .route(
            "/sessions/{session}/queue/{turn}",
            get(dialogs::queued_dialog).post(actions::requeue),
        )
        .route(
            "/sessions/{session}/queue/{turn}/remove",
            post(actions::unqueue),
        )
        .route("/sessions/{session}/threads/new", post(actions::new_thread))
        .nest("/sessions/{session}/threads/{thread}", of_thread)
        .merge(thread_import::router())
}
