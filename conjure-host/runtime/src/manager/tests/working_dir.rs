//! Where a session works, at one opening and at the next.

use std::os::unix::fs::symlink;

use conjure_core::turn::EffectiveFrom;

use super::stage::{Stage, always, options};
use crate::manager::{NewSession, SessionPatch, SessionView, ThreadChoice};
use conjure_store::{Run, RunState, SavedSession};

fn working_in(dir: &std::path::Path) -> SessionPatch {
    SessionPatch {
        working_dir: Some(dir.to_owned()),
        ..SessionPatch::default()
    }
}

fn is_refused(run: &Run) -> bool {
    let told = run.error.as_deref().unwrap_or_default();
    run.state == RunState::Failed && told.contains("by now") && told.contains("--working-dir")
}

/// Saves another path for a session, as an older version did: with its links.
async fn save_with_links(stage: &Stage, session: &SessionView, dir: &std::path::Path) {
    let row = stage.manager.store().session(&session.id).await.unwrap();
    let row = SavedSession {
        working_dir: dir.display().to_string(),
        ..row
    };
    stage.manager.store().update_session(row).await.unwrap();
}

#[tokio::test]
async fn a_link_in_the_place_of_the_directory_is_followed_at_no_later_opening() {
    let stage = Stage::new(always("Yes.")).await;
    let root = stage.dir.path().canonicalize().unwrap();
    let (work, old, keys) = (root.join("work"), root.join("old"), root.join("keys"));
    std::fs::create_dir(&keys).unwrap();
    symlink(&work, root.join("link")).unwrap();
    let new = NewSession {
        working_dir: root.join("link"),
        ..stage.new_session()
    };
    let session = stage.manager.create(new).await.unwrap();
    assert_eq!(session.working_dir, work);
    assert_eq!(stage.say(&session, "one").await.state, RunState::Completed);
    let stage = stage.again(options()).await;
    std::fs::rename(&work, &old).unwrap();
    symlink(&keys, &work).unwrap();
    let run = stage.say(&session, "two").await;
    assert!(is_refused(&run), "{run:?}");
    // Whoever sends the settings back as they are does not agree to it.
    let same = stage
        .manager
        .update(&session.id, working_in(&work), EffectiveFrom::NextTurn);
    assert_eq!(same.await.unwrap().working_dir, work);
    let run = stage.say(&session, "three").await;
    assert!(is_refused(&run), "{run:?}");
    let refused = stage.manager.measure(&session.id).await.unwrap_err();
    assert!(refused.to_string().contains("by now"), "{refused}");
    let refused = stage.manager.tools(&session.id).await.unwrap_err();
    assert!(refused.to_string().contains("by now"), "{refused}");
    // Whoever names it does.
    let named = stage
        .manager
        .update(&session.id, working_in(&keys), EffectiveFrom::NextTurn);
    assert_eq!(named.await.unwrap().working_dir, keys);
    assert_eq!(stage.say(&session, "four").await.state, RunState::Completed);
}

#[tokio::test]
async fn a_directory_that_was_saved_with_links_is_saved_without_them_where_it_is_the_same() {
    let stage = Stage::new(always("Yes.")).await;
    let root = stage.dir.path().canonicalize().unwrap();
    let (work, link, keys) = (root.join("work"), root.join("link"), root.join("keys"));
    std::fs::create_dir(&keys).unwrap();
    let session = stage.session().await;
    assert_eq!(stage.say(&session, "one").await.state, RunState::Completed);
    let stage = stage.again(options()).await;
    symlink(&keys, &link).unwrap();
    save_with_links(&stage, &session, &link).await;
    let run = stage.say(&session, "two").await;
    assert!(is_refused(&run), "{run:?}");
    std::fs::remove_file(&link).unwrap();
    symlink(&work, &link).unwrap();
    assert_eq!(
        stage.say(&session, "three").await.state,
        RunState::Completed
    );
    let view = stage.manager.get(&session.id).await.unwrap();
    assert_eq!(view.working_dir, work);
    // It did not move, so nobody is told that it did.
    let said = stage.said(&session.thread.unwrap().id).await;
    assert!(
        !said.iter().any(|said| said.contains("working directory")),
        "{said:?}"
    );
}

#[tokio::test]
async fn a_session_that_never_ran_works_where_its_links_lead_and_one_that_forgot_it_does_not() {
    let stage = Stage::new(always("Yes.")).await;
    let root = stage.dir.path().canonicalize().unwrap();
    let (work, link, keys) = (root.join("work"), root.join("link"), root.join("keys"));
    std::fs::create_dir(&keys).unwrap();
    symlink(&work, &link).unwrap();
    let session = stage.session().await;
    save_with_links(&stage, &session, &link).await;
    assert_eq!(stage.say(&session, "one").await.state, RunState::Completed);
    let view = stage.manager.get(&session.id).await.unwrap();
    assert_eq!(view.working_dir, work);
    // Nothing tells any more where it ran, which is not the same as not having run.
    let stage = stage.again(options()).await;
    let thread = session.thread.clone().unwrap().id;
    stage.manager.clear_thread(&thread).await.unwrap();
    std::fs::rename(&work, root.join("old")).unwrap();
    symlink(&keys, &work).unwrap();
    let run = stage.say(&session, "two").await;
    assert!(is_refused(&run), "{run:?}");
}

#[tokio::test]
async fn where_a_session_worked_is_told_by_its_newest_turn_and_by_no_other_session() {
    let stage = Stage::new(always("Yes.")).await;
    let root = stage.dir.path().canonicalize().unwrap();
    let (link, keys) = (root.join("link"), root.join("keys"));
    std::fs::create_dir(&keys).unwrap();
    let session = stage.session().await;
    assert_eq!(stage.say(&session, "one").await.state, RunState::Completed);
    // Another session goes on with its thread, elsewhere.
    let thread = session.thread.clone().unwrap().id;
    let new = NewSession {
        working_dir: keys.clone(),
        thread: ThreadChoice::Existing { thread },
        ..stage.new_session()
    };
    let other = stage.manager.create(new).await.unwrap();
    assert_eq!(stage.say(&other, "two").await.state, RunState::Completed);
    let stage = stage.again(options()).await;
    symlink(&keys, &link).unwrap();
    save_with_links(&stage, &session, &link).await;
    let run = stage.say(&session, "three").await;
    assert!(is_refused(&run), "{run:?}");
}
