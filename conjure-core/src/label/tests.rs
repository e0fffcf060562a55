//! Names of threads: what they are made of, and what never stands in one.

use proptest::prelude::*;

use super::*;
use crate::chat::{Content, Part};

fn named(text: &str) -> String {
    name_of(text).unwrap_or_default()
}

#[test]
fn a_name_is_what_the_message_is_about() {
    for (text, name) in [
        (
            "Please help me fix the login page of our web shop",
            "Fix Login Page Web Shop",
        ),
        (
            "Could you refactor /home/ann/work/src/parser.rs so that it handles Unicode input?",
            "Refactor Parser.rs Handles Unicode Input",
        ),
        (
            "Review https://example.com/pull/7 and www.example.org: the cache eviction is wrong",
            "Review Cache Eviction Wrong",
        ),
        (
            "Explain this loop\n```rust\nfor secret in vault {}\n```\nand its running time",
            "Explain Loop Running Time",
        ),
        (
            r"Convert C:\Users\ann\Documents\report.xlsx into a PDF document",
            "Convert Report.xlsx PDF Document",
        ),
        (
            "Übersetze den Bericht über Äpfel bitte",
            "Übersetze Den Bericht Über Äpfel Bitte",
        ),
        (
            "一些关于登录页面的问题需要修复",
            "一些关于登录页面的问题需要修复",
        ),
        ("plan plan Plan the README update", "Plan README Update"),
    ] {
        assert_eq!(named(text), name, "{text}");
    }
}

#[test]
fn what_says_too_little_has_no_name() {
    for text in [
        "",
        "hi",
        "Hello, can you help me please?",
        "ok thanks",
        "```\nall of it\n",
        "https://a.b/c",
    ] {
        assert_eq!(name_of(text), None, "{text}");
    }
}

#[test]
fn nothing_secret_is_repeated() {
    for (text, secret) in [
        (
            "Deploy with sk-proj-aaaaaaaaaaaaaaaaaaaa to production servers today",
            "aaaa",
        ),
        (
            "Deploy staging, my password is swordfish, then production servers",
            "ordfish",
        ),
        (
            "Deploy staging with password swordfish then production servers",
            "ordfish",
        ),
        (
            "Deploy staging DB_PASSWORD=swordfish then production servers",
            "ordfish",
        ),
        (
            "Deploy staging API_KEY: swordfish then production servers",
            "ordfish",
        ),
        (
            "Deploy staging token swordfish9 then production servers",
            "ordfish",
        ),
        (
            "Deploy staging (ghp_0123456789abcdefghij) then production servers",
            "0123",
        ),
        (
            "Deploy staging 9f86d081884c7d659a2feaa0c55ad015 then production",
            "9f86",
        ),
        (
            "Deploy staging eyJhbGciOiJIUzI1NiJ9.e30.abc then production servers",
            "JIUz",
        ),
        (
            "Deploy staging AKIAIOSFODNN7EXAMPLE then production servers",
            "IOSF",
        ),
        (
            "Write to ann.smith@example.com about the new contract",
            "mith",
        ),
        (
            "Open /home/ann/secret-project/notes.txt and summarise the plan",
            "ann",
        ),
        (
            "Charge 4111111111111111 for the yearly subscription",
            "4111",
        ),
    ] {
        let name = named(text);
        assert!(!name.is_empty(), "{text}");
        assert!(
            !name.to_lowercase().contains(&secret.to_lowercase()),
            "{name}"
        );
    }
}

#[test]
fn ordinary_words_are_no_secrets() {
    for text in [
        "Key features of modern compilers",
        "Token budget of long conversations",
        "Rename internationalization_module_loader everywhere",
        "Upgrade PostgreSQL 15 cluster configuration",
    ] {
        assert_eq!(
            named(text).split(' ').count(),
            text.replace(" of ", " ").split(' ').count(),
            "{}",
            named(text)
        );
    }
}

fn entry(seq: u64, role: Role, text: &str) -> Entry {
    let text = Content::Text {
        text: text.to_owned(),
    };
    Entry {
        seq,
        turn: seq,
        at_ms: 0,
        body: EntryBody::Message {
            message: Message::new(role, vec![Part::from(text)]),
        },
    }
}

#[test]
fn the_first_message_that_says_enough_counts_then_the_summary_then_the_reply() {
    let none = BTreeSet::new();
    let mut log = vec![
        entry(1, Role::User, "hi"),
        entry(
            2,
            Role::Assistant,
            "Hello. I can edit files and run commands.",
        ),
    ];
    assert_eq!(label(&log, &none).unwrap(), "Edit Files Run Commands");
    log.push(entry(3, Role::User, "Sort the invoices by date"));
    log.push(entry(4, Role::User, "Then print every page twice"));
    assert_eq!(label(&log, &none).unwrap(), "Sort Invoices Date");
    let folded = vec![
        entry(1, Role::User, "hi"),
        Entry {
            seq: 2,
            turn: 1,
            at_ms: 0,
            body: EntryBody::Compacted {
                upto: 2,
                summary: "Invoices were sorted yesterday".to_owned(),
                meta: None,
            },
        },
        entry(3, Role::Assistant, "The printer works again"),
    ];
    assert_eq!(label(&folded, &none).unwrap(), "Invoices Sorted Yesterday");
    assert_eq!(label(&[], &none), None);
}

#[test]
fn a_name_that_is_taken_gets_the_first_free_number() {
    let log = [entry(1, Role::User, "Sort the invoices by date")];
    let mut taken = BTreeSet::new();
    for expected in [
        "Sort Invoices Date",
        "Sort Invoices Date 2",
        "Sort Invoices Date 3",
    ] {
        let name = label(&log, &taken).unwrap();
        assert_eq!(name, expected);
        taken.insert(name);
    }
    taken.remove("Sort Invoices Date 2");
    assert_eq!(label(&log, &taken).unwrap(), "Sort Invoices Date 2");
}

proptest! {
    #[test]
    fn a_name_keeps_the_rules_whatever_the_text(text in "\\PC{0,400}", taken in 0_usize..4) {
        let log = [entry(1, Role::User, &text)];
        let mut names = BTreeSet::new();
        for _ in 0..=taken {
            let Some(name) = label(&log, &names) else { return Ok(()) };
            prop_assert!(name.chars().count() <= MAX_CHARS, "{name}");
            prop_assert_eq!(name.trim(), &name);
            prop_assert!(!name.contains("://") && !name.contains(['/', '\\', '`', '\n', '=']));
            prop_assert!(!name.chars().any(char::is_control));
            let words: Vec<&str> = name.split(' ').collect();
            prop_assert!(words.len() <= MAX_WORDS + 1);
            // Only a text that says too little has a shorter one.
            let is_enough = words.len() >= MIN_WORDS || is_unspaced(&name);
            prop_assert!(is_enough || name_of(&text).is_none(), "{name}");
            for word in words {
                let first = word.chars().next().unwrap();
                let capital: String = first.to_uppercase().collect();
                prop_assert!(capital.starts_with(first) || !first.is_lowercase(), "{name}");
            }
            let again = label(&log, &names);
            prop_assert_eq!(again.as_ref(), Some(&name), "it depends on nothing else");
            prop_assert!(names.insert(name), "it was taken");
        }
    }

    #[test]
    fn a_token_in_any_place_is_never_repeated(
        token in "(sk-|ghp_|xoxb-|glpat-)[A-Za-z0-9]{16,40}",
        before in "[a-z]{3,8} [a-z]{3,8}",
        after in "[a-z]{3,8} [a-z]{3,8}",
        hug in prop::sample::select(vec![" ", " \"", " (", " key=", " 'Bearer ", " x:", "\n", " /tmp/", " https://h/?k="]),
    ) {
        let text = format!("{before}{hug}{token} {after}");
        let secret = &token[token.len() - 16..];
        let name = named(&text);
        prop_assert!(!name.to_lowercase().contains(&secret[..8].to_lowercase()), "{name}");
    }
}

#[test]
fn a_thread_in_which_little_is_said_has_a_name_too() {
    let none = BTreeSet::new();
    let named = |said: &[(Role, &str)]| {
        let entries: Vec<Entry> = (1..)
            .zip(said)
            .map(|(seq, (role, text))| Entry {
                seq,
                turn: 1,
                at_ms: 0,
                body: EntryBody::Message {
                    message: Message::new(*role, Message::user(*text).content),
                },
            })
            .collect();
        label(&entries, &none)
    };
    let is = |said: &[(Role, &str)], name: &str| assert_eq!(named(said).as_deref(), Some(name));
    is(&[(Role::User, "hi")], "Hi");
    is(&[(Role::User, "go on"), (Role::Assistant, "Done.")], "Go");
    is(&[(Role::User, "deploy it")], "Deploy");
    is(&[(Role::User, "!!!")], "Chat");
    is(
        &[
            (Role::User, "hi"),
            (Role::Assistant, "The winter storms come early"),
        ],
        "Winter Storms Come Early",
    );
}
