//! Search: found by words, in every thread, and gone when it is cleared.

use conjure_core::chat::{Content, Message, Part, Role};
use conjure_core::log::{Entry, EntryBody};

use crate::{Log as _, Record, SearchHit, Store};

use super::{Bed, cases, event, id};

cases! {
    what_was_said_is_found_by_its_words_the_newest_first
    what_is_cleared_or_removed_is_not_found_and_a_fork_keeps_what_it_shows
    what_a_fork_keeps_is_found_also_where_nobody_searched_before
    questions_are_words_whatever_stands_in_them
    ten_who_search_at_once_find_the_same
}

fn says(seq: u64, role: Role, text: &str) -> Record {
    Record::Entry(Entry {
        seq,
        turn: 1,
        at_ms: 1_000 + i64::try_from(seq).unwrap(),
        body: EntryBody::Message {
            message: Message::new(role, vec![Part::text(text)]),
        },
    })
}

/// A thread in which these are said, by the person and the model in turns.
pub(super) async fn talk(store: &Store, thread: &str, texts: &[&str]) {
    let mut log = store.open(&id(thread)).await.unwrap();
    let roles = [Role::User, Role::Assistant].into_iter().cycle();
    let records = (1..).zip(texts.iter().zip(roles));
    let records = records.map(|(seq, (text, role))| says(seq, role, text));
    let records: Vec<Record> = records.chain([event(1, 1)]).collect();
    log.append(&records, true).await.unwrap();
}

/// Where something is found: threads and entries.
async fn found(store: &Store, words: &str) -> Vec<(String, u64)> {
    let all = store.search(words, 100).await.unwrap();
    let place = |found: SearchHit| (found.thread.to_string(), found.seq);
    all.into_iter().map(place).collect()
}

fn at(thread: &str, seq: u64) -> (String, u64) {
    (thread.to_owned(), seq)
}

async fn what_was_said_is_found_by_its_words_the_newest_first(bed: Bed) {
    let store = bed.open().await;
    talk(
        &store,
        "a",
        &["Where is the lamp?", "The LAMP is in the Grünen Raum."],
    )
    .await;
    talk(&store, "b", &["nothing", "of this", "lamp-lighter, lamp_2"]).await;
    store.rename_thread(&id("b"), "Lights").await.unwrap();
    assert_eq!(
        found(&store, "lamp").await,
        [at("b", 3), at("a", 2), at("a", 1)]
    );
    assert_eq!(found(&store, "raum lamp").await, [at("a", 2)]);
    assert_eq!(found(&store, "GRÜNEN").await, [at("a", 2)]);
    assert_eq!(found(&store, "the la").await, [at("a", 2), at("a", 1)]);
    assert_eq!(found(&store, "la the").await, []);
    assert_eq!(found(&store, "2 lamp").await, [at("b", 3)]);
    assert_eq!(store.search("lamp", 2).await.unwrap().len(), 2);
    let all = store.search("lighter", 10).await.unwrap();
    let [one] = &all[..] else { panic!("{all:?}") };
    assert_eq!(
        (one.label.as_str(), one.role, one.at_ms),
        ("Lights", Role::User, 1_003)
    );
    assert_eq!(one.session, None);
    let said: Vec<_> = one
        .excerpt
        .iter()
        .map(|it| (&*it.text, it.is_hit))
        .collect();
    assert_eq!(
        said,
        [("lamp-", false), ("lighter", true), (", lamp_2", false)]
    );
    // What is said later is found without being told.
    let mut log = store.open(&id("a")).await.unwrap();
    let thought = Content::Reasoning {
        text: "lamp secret".to_owned(),
    };
    let message = Message::new(
        Role::Assistant,
        vec![thought.into(), Part::text("A lamp again.")],
    );
    let entry = Entry {
        seq: 3,
        turn: 1,
        at_ms: 9_000,
        body: EntryBody::Message { message },
    };
    log.append(&[Record::Entry(entry)], true).await.unwrap();
    assert_eq!(found(&store, "lamp").await[0], at("a", 3));
    assert_eq!(found(&store, "secret").await, []);
}

async fn what_is_cleared_or_removed_is_not_found_and_a_fork_keeps_what_it_shows(bed: Bed) {
    let store = bed.open().await;
    talk(&store, "a", &["a lamp", "a river"]).await;
    talk(&store, "b", &["a lamp of b"]).await;
    talk(&store, "c", &["a lamp of c"]).await;
    store.fork(&id("c"), 1, &id("f")).await.unwrap();
    assert_eq!(found(&store, "lamp").await.len(), 3);
    store.clear_thread(&id("a")).await.unwrap();
    assert_eq!(found(&store, "lamp").await, [at("b", 1), at("c", 1)]);
    store.remove_thread(&id("b")).await.unwrap();
    assert_eq!(found(&store, "lamp").await, [at("c", 1)]);
    let words = "SELECT COUNT(*) AS number FROM entry_texts";
    let rows = store.all(words, []).await.unwrap();
    assert_eq!(crate::row::number(&rows[0], "number").unwrap(), 1);
    let in_fork = async || store.search_in(&id("f"), "lamp", 10).await.unwrap().len();
    assert_eq!(in_fork().await, 1);
    store.clear_thread(&id("c")).await.unwrap();
    assert_eq!(found(&store, "lamp").await, []);
    assert_eq!(in_fork().await, 1);
    store.remove_thread(&id("c")).await.unwrap();
    assert_eq!(in_fork().await, 1);
    assert!(store.check().await.unwrap().is_sound());
}

async fn what_a_fork_keeps_is_found_also_where_nobody_searched_before(bed: Bed) {
    let store = bed.open().await;
    talk(&store, "c", &["a lamp of c"]).await;
    store.fork(&id("c"), 1, &id("f")).await.unwrap();
    store.remove_thread(&id("c")).await.unwrap();
    let hits = store.search_in(&id("f"), "lamp", 10).await.unwrap();
    assert_eq!(hits.len(), 1);
    assert_eq!(found(&store, "lamp").await, []);
}

async fn questions_are_words_whatever_stands_in_them(bed: Bed) {
    let store = bed.open().await;
    talk(
        &store,
        "a",
        &["x AND y OR z NEAR NOT it's 100% \"quoted\" a:b *"],
    )
    .await;
    for words in [
        "AND",
        "OR",
        "NOT",
        "NEAR(x",
        "\"quoted\"",
        "it's",
        "100%",
        "a:b",
        "x*",
        "x' OR '2'='2",
        "x & y",
        "x | y",
        "!x",
        "x:*",
        "(x",
        "-x",
        "^x",
        "x + y",
        "{x}",
        "\\x",
        "x;--",
    ] {
        let all = store.search(words, 10).await.unwrap();
        let expected = usize::from(words != "x' OR '2'='2");
        assert_eq!(all.len(), expected, "{words}");
    }
    for nothing in ["", " ", "*", "\"\"", "'", "\0", "- -"] {
        assert_eq!(store.search(nothing, 10).await.unwrap(), [], "{nothing}");
    }
}

async fn ten_who_search_at_once_find_the_same(bed: Bed) {
    let (store, other) = (bed.open().await, bed.open().await);
    for thread in 0..10 {
        let texts = vec!["a lamp"; 70];
        talk(&store, &format!("t{thread}"), &texts).await;
    }
    let searches = (0..10).map(|number| {
        let store = if number % 2 == 0 { &store } else { &other };
        store.search("lamp", 1_000)
    });
    for all in futures_util::future::join_all(searches).await {
        assert_eq!(all.unwrap().len(), 700);
    }
}
