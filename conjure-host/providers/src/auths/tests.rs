//! Saved auths over a real database and a real key file.

use std::path::Path;

use secrecy::ExposeSecret as _;

use super::*;
use crate::{HttpProvider, Provider as _};
use conjure_config::SessionSpec;
use conjure_store::SavedSession;

fn keys(dir: &Path) -> KeySources {
    KeySources {
        keyring: Arc::new(NoKeyring),
        ..KeySources::new(dir)
    }
}

fn auths(dir: &Path) -> Auths {
    Auths::at(keys(dir))
}

async fn add(auths: &Auths, provider: &str, name: &str, secret: &str) -> SavedAuth {
    let new = NewAuth {
        name: name.to_owned(),
        provider: provider.to_owned(),
        base_url: None,
    };
    auths
        .add(new, Credential::ApiKey(secret.into()))
        .await
        .unwrap()
}

fn named(text: &str) -> AuthRef {
    text.parse().unwrap()
}

async fn secret(auths: &Auths, name: &str) -> Result<String, AuthError> {
    let saved = auths.find(&named(name), None).await?;
    match auths.open_one(saved).await?.credential {
        Credential::ApiKey(key) => Ok(key.expose_secret().to_owned()),
        _ => panic!("a key is a key"),
    }
}

#[tokio::test]
async fn one_is_found_by_its_name_and_by_all_three_where_the_name_is_not_enough() {
    let dir = tempfile::tempdir().unwrap();
    let auths = auths(dir.path());
    add(&auths, "anthropic", "work", "sk-a").await;
    add(&auths, "openai", "work", "sk-o").await;
    add(&auths, "openai", "home", "sk-h").await;
    assert_eq!(secret(&auths, "home").await.unwrap(), "sk-h");
    assert_eq!(secret(&auths, "openai/api-key/work").await.unwrap(), "sk-o");
    let error = secret(&auths, "work").await.unwrap_err().to_string();
    assert!(
        error.contains("`anthropic/api_key/work`, `openai/api_key/work`"),
        "{error}"
    );
    let of_openai = auths.find(&named("work"), Some("openai")).await.unwrap();
    assert_eq!(of_openai.provider, "openai");
    let error = auths
        .find(&named("home"), Some("anthropic"))
        .await
        .unwrap_err();
    assert!(matches!(error, AuthError::OtherProvider { .. }), "{error}");
    // A secret of MCP servers is none that a session could have.
    add(&auths, "mcp", "MCP_NOTES_TOKEN", "s").await;
    let error = auths
        .find(&named("nobody"), None)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("there are: anthropic/api_key/work, openai/api_key/work, home"),
        "{error}"
    );
}

#[tokio::test]
async fn names_are_unique_by_provider_kind_and_name() {
    let dir = tempfile::tempdir().unwrap();
    let auths = auths(dir.path());
    add(&auths, "openai", "work", "sk-o").await;
    let again = NewAuth {
        name: "work".to_owned(),
        provider: "openai".to_owned(),
        base_url: None,
    };
    let taken = auths
        .add(again, Credential::ApiKey("sk-x".into()))
        .await
        .unwrap_err();
    assert!(matches!(taken, AuthError::Taken { .. }), "{taken}");
    let token = NewAuth {
        name: "work".to_owned(),
        provider: "openai".to_owned(),
        base_url: None,
    };
    auths
        .add(token, Credential::BearerToken("sk-t".into()))
        .await
        .unwrap();
    let kept = secret(&auths, "openai/api_key/work").await.unwrap();
    assert_eq!(kept, "sk-o");
}

#[test]
fn who_needs_no_key_needs_no_secret() {
    for provider in ["ollama", "llamacpp", "scripted", "tool-walk"] {
        let new = NewAuth {
            name: "here".to_owned(),
            provider: provider.to_owned(),
            base_url: None,
        };
        new.check(AuthKind::BaseUrl).unwrap();
    }
}

#[test]
fn what_cannot_be_saved_is_told_before_a_secret_is_asked_for() {
    for (name, provider, base_url, kind, word) in [
        ("ab", "openai", None, AuthKind::ApiKey, "3 to 50"),
        ("a b c", "openai", None, AuthKind::ApiKey, "3 to 50"),
        ("work", "open/ai", None, AuthKind::ApiKey, "letters"),
        (
            "work",
            "scripted",
            None,
            AuthKind::ApiKey,
            "nobody over HTTP",
        ),
        (
            "work",
            "opneai",
            None,
            AuthKind::ApiKey,
            "nobody says where",
        ),
        (
            "work",
            "openai-compatible",
            None,
            AuthKind::ApiKey,
            "nobody says where",
        ),
        ("work", "openai", None, AuthKind::BaseUrl, "none is given"),
        (
            "work",
            "tool-walk",
            Some("http://127.0.0.1:1"),
            AuthKind::BaseUrl,
            "nobody over HTTP",
        ),
        ("work", "openai", Some("ftp://a"), AuthKind::ApiKey, "https"),
        (
            "work",
            "openai",
            Some("http://me:sk-1@a"),
            AuthKind::ApiKey,
            "custom-headers",
        ),
    ] {
        let new = NewAuth {
            name: name.to_owned(),
            provider: provider.to_owned(),
            base_url: base_url.map(str::to_owned),
        };
        let error = new.check(kind).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
        assert!(!error.contains("sk-1"), "{error}");
    }
}

#[tokio::test]
async fn one_in_use_is_not_removed_and_its_sessions_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let auths = auths(dir.path());
    let saved = add(&auths, "openai", "work", "sk-o").await;
    let store = auths.store().await.unwrap();
    let session = store
        .create_session(SavedSession::new(&saved.id, "m", "/"))
        .await
        .unwrap();
    let error = auths.remove(&named("work")).await.unwrap_err().to_string();
    assert!(error.contains(&session.id), "{error}");
    let renamed = auths.rename(&named("work"), "office").await.unwrap();
    assert_eq!(renamed.id, saved.id);
    assert_eq!(secret(&auths, "office").await.unwrap(), "sk-o");
    store.delete_session(&session.id).await.unwrap();
    auths.remove(&named("office")).await.unwrap();
    assert!(auths.list().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_rotation_that_was_killed_is_gone_on_with_and_loses_nothing() {
    let names = ["one", "two", "three"];
    for done in 0..=names.len() {
        let dir = tempfile::tempdir().unwrap();
        let auths = auths(dir.path());
        for name in names {
            add(&auths, "openai", name, name).await;
        }
        let before = conjure_config::fs::read(dir.path().join("vault.key")).unwrap();
        // As far as it came: there is a key, and so many rows have it.
        let rows = auths.list().await.unwrap();
        let (first, rows) = auths.reseal(rows).await.unwrap();
        for (row, bytes) in rows.into_iter().take(done) {
            auths.save(row, bytes.unwrap().unwrap()).await.unwrap();
        }
        for name in names {
            assert_eq!(secret(&auths, name).await.unwrap(), name);
        }
        let rotated = auths.rotate().await.unwrap();
        assert_eq!(rotated.sealed, names.len() - done);
        assert_eq!(rotated.key, first.to_string());
        let after = conjure_config::fs::read(dir.path().join("vault.key")).unwrap();
        assert_ne!(after, before);
        assert!(!dir.path().join("vault.key.next").exists());
        for name in names {
            assert_eq!(secret(&auths, name).await.unwrap(), name);
        }
    }
}

#[tokio::test]
async fn the_old_key_stays_while_something_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let auths = auths(dir.path());
    add(&auths, "openai", "good", "sk-good").await;
    let mut bad = add(&auths, "openai", "bad", "sk-bad").await;
    *bad.sealed.last_mut().unwrap() ^= 1;
    auths.store().await.unwrap().update_auth(bad).await.unwrap();
    let before = conjure_config::fs::read(dir.path().join("vault.key")).unwrap();
    let error = auths.rotate().await.unwrap_err().to_string();
    assert!(error.contains("`openai/api_key/bad`"), "{error}");
    assert_eq!(
        conjure_config::fs::read(dir.path().join("vault.key")).unwrap(),
        before
    );
    auths.remove(&named("bad")).await.unwrap();
    auths.rotate().await.unwrap();
    assert_ne!(
        conjure_config::fs::read(dir.path().join("vault.key")).unwrap(),
        before
    );
    assert_eq!(secret(&auths, "good").await.unwrap(), "sk-good");
}

#[tokio::test]
async fn a_program_that_runs_seals_with_the_key_that_another_one_made() {
    let dir = tempfile::tempdir().unwrap();
    let (server, other) = (auths(dir.path()), auths(dir.path()));
    add(&server, "openai", "one", "sk-1").await;
    other.rotate().await.unwrap();
    add(&server, "openai", "two", "sk-2").await;
    // Whoever starts now has the new key alone.
    for (name, key) in [("one", "sk-1"), ("two", "sk-2")] {
        assert_eq!(secret(&auths(dir.path()), name).await.unwrap(), key);
    }
}

#[tokio::test]
async fn adding_while_the_key_is_replaced_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let all = auths(dir.path());
    add(&all, "openai", "first", "sk").await;
    let adding = async {
        for number in 0..8 {
            add(
                &auths(dir.path()),
                "openai",
                &format!("name-{number}"),
                "sk",
            )
            .await;
        }
    };
    let rotating = async {
        for _ in 0..4 {
            auths(dir.path()).rotate().await.unwrap();
        }
    };
    tokio::join!(adding, rotating);
    let all = auths(dir.path());
    let saved = all.list().await.unwrap();
    assert_eq!(saved.len(), 9);
    for saved in saved {
        all.open_one(saved).await.unwrap();
    }
}

#[tokio::test]
async fn a_session_gets_its_provider_and_address_from_its_auth() {
    let dir = tempfile::tempdir().unwrap();
    let auths = auths(dir.path());
    let new = NewAuth {
        name: "mine".to_owned(),
        provider: "ollama".to_owned(),
        base_url: Some("http://10.0.0.7:1/v1".to_owned()),
    };
    auths.add(new, Credential::BaseUrl).await.unwrap();
    let spec = |text: &str| SessionSpec::from_toml(text).unwrap();
    let opened = auths.open(spec("auth = \"mine\"")).await.unwrap();
    assert_eq!(opened.provider.as_deref(), Some("ollama"));
    let provider = HttpProvider::of("ollama", &opened).unwrap();
    let name = provider.auth().unwrap();
    assert_eq!(
        (name.kind.as_str(), name.name.as_str()),
        ("base_url", "mine")
    );
    // After a switch: as without any auth.
    let other = HttpProvider::of("llamacpp", &opened).unwrap();
    assert!(other.auth().is_none());
    // What is written of it, and printed, is its name.
    assert!(
        toml::to_string(&opened)
            .unwrap()
            .contains("auth = \"ollama/base_url/mine\"")
    );
    assert!(format!("{opened:?}").contains("AuthRef(\"ollama/base_url/mine\")"));

    let of_provider = "provider = \"llamacpp\"\n[providers.ollama]\nauth = \"mine\"";
    let opened = auths.open(spec(of_provider)).await.unwrap();
    assert!(
        HttpProvider::of("ollama", &opened)
            .unwrap()
            .auth()
            .is_some()
    );

    let problem = async |text: &str| auths.open(spec(text)).await.unwrap_err().to_string();
    let error = problem("auth = \"mine\"\nprovider = \"openai\"").await;
    assert!(error.contains("is for the provider `ollama`"), "{error}");
    let error = problem("auth = \"mine\"\nbase_url = \"http://elsewhere\"").await;
    assert!(error.contains("is for http://10.0.0.7:1/v1"), "{error}");
    assert!(SessionSpec::from_toml("auth = \"a/b\"").is_err());
}
