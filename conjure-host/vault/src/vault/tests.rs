//! Keys in every place, moved, lost, replaced, and made by many at once.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use zeroize::Zeroizing;

use super::*;
use crate::{AuthKind, NoKeyring};

fn options(dir: &Path) -> VaultOptions {
    VaultOptions {
        keyring: Arc::new(NoKeyring),
        ..VaultOptions::new(dir)
    }
}

/// A keyring in memory.
#[derive(Default)]
struct MemoryKeyring(Mutex<HashMap<String, String>>);

impl Keyring for MemoryKeyring {
    fn is_there(&self) -> bool {
        true
    }

    fn get(&self, entry: &str) -> Result<Option<Zeroizing<String>>, String> {
        let text = self.0.lock().unwrap().get(entry).cloned();
        Ok(text.map(Zeroizing::new))
    }

    fn set(&self, entry: &str, text: &str) -> Result<(), String> {
        let mut entries = self.0.lock().unwrap();
        entries.insert(entry.to_owned(), text.to_owned());
        Ok(())
    }

    fn remove(&self, entry: &str) -> Result<(), String> {
        self.0.lock().unwrap().remove(entry);
        Ok(())
    }
}

fn keyring() -> Arc<dyn Keyring> {
    Arc::new(MemoryKeyring::default())
}

fn secret() -> Credential {
    Credential::read(AuthKind::ApiKey, &"sk-test".into()).unwrap()
}

fn text(credential: Credential) -> String {
    match credential {
        Credential::ApiKey(key) => key.expose_secret().to_owned(),
        _ => panic!("a key is a key"),
    }
}

fn fresh_text() -> SecretString {
    let text = MasterKey::fresh().unwrap().to_text();
    text.as_str().into()
}

#[test]
fn without_a_keyring_the_key_is_in_a_file_that_only_its_owner_reads() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let vault = Vault::open(options(&data)).unwrap();
    assert_eq!(vault.key_location(), None);
    assert!(!data.exists(), "nothing is made before something is sealed");
    let sealed = vault.seal("a", &secret()).unwrap();
    let file = data.join("vault.key");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(
        fs::metadata(&data).unwrap().permissions().mode() & 0o777,
        0o700
    );
    let names = fs::read_dir(&data)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let names: std::collections::BTreeSet<_> = names.collect();
    assert_eq!(names, ["vault.key".into(), "vault.key.lock".into()].into());

    let again = Vault::open(options(&data)).unwrap();
    assert_eq!(text(again.unseal("a", &sealed).unwrap()), "sk-test");
    assert!(matches!(
        again.unseal("b", &sealed),
        Err(VaultError::Damaged)
    ));
}

#[test]
fn a_key_file_that_others_may_read_is_refused_with_its_remedy() {
    let dir = tempfile::tempdir().unwrap();
    Vault::open(options(dir.path()))
        .unwrap()
        .seal("a", &secret())
        .unwrap();
    let file = dir.path().join("vault.key");
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let error = Vault::open(options(dir.path())).err().unwrap().to_string();
        assert!(error.contains("chmod 600"), "{error}");
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let error = Vault::open(options(dir.path())).err().unwrap();
    assert!(matches!(error, VaultError::NotAFile { .. }), "{error}");
}

#[test]
fn a_damaged_key_file_is_said_and_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vault.key");
    for text in ["", "AAAA", "not a key\n"] {
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let error = Vault::open(options(dir.path())).err().unwrap();
        assert!(matches!(error, VaultError::BadKey { .. }), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn a_key_that_is_nowhere_is_named_and_so_is_where_it_was_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let sealed = Vault::open(options(dir.path()))
        .unwrap()
        .seal("a", &secret())
        .unwrap();
    let lost = fs::read_to_string(dir.path().join("vault.key")).unwrap();
    let lost = MasterKey::parse(&lost).unwrap();
    fs::remove_file(dir.path().join("vault.key")).unwrap();
    let vault = Vault::open(options(dir.path())).unwrap();
    vault.seal("b", &secret()).unwrap();
    let error = vault.unseal("a", &sealed).err().unwrap().to_string();
    assert!(error.contains(&lost.id().to_string()), "{error}");
    for place in [
        "CONJURE_KEY (has none)",
        "vault.key` (has key",
        "the keyring (has none)",
    ] {
        assert!(error.contains(place), "{place} in {error}");
    }
    assert!(!error.contains(lost.to_text().as_str()), "{error}");
}

#[test]
fn the_variable_comes_first_and_what_the_file_sealed_can_still_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let by_file = Vault::open(options(dir.path()))
        .unwrap()
        .seal("a", &secret())
        .unwrap();
    let key = fresh_text();
    let with_key = || VaultOptions {
        key: Some(key.clone()),
        ..options(dir.path())
    };
    let vault = Vault::open(with_key()).unwrap();
    assert_eq!(text(vault.unseal("a", &by_file).unwrap()), "sk-test");
    let by_variable = vault.seal("a", &secret()).unwrap();
    assert!(matches!(
        vault.key_location(),
        Some((KeyLocation::Variable("CONJURE_KEY"), _))
    ));
    let without = Vault::open(options(dir.path())).unwrap();
    assert!(matches!(
        without.unseal("a", &by_variable),
        Err(VaultError::NoKey { .. })
    ));
    let bad = VaultOptions {
        key: Some("sk-oops".into()),
        ..options(dir.path())
    };
    let error = Vault::open(bad).err().unwrap().to_string();
    assert!(
        error.contains("CONJURE_KEY") && !error.contains("sk-oops"),
        "{error}"
    );
}

#[test]
fn where_there_is_a_keyring_no_file_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let keyring = keyring();
    let with_keyring = |dir: &Path| VaultOptions {
        keyring: Arc::clone(&keyring),
        ..VaultOptions::new(dir)
    };
    let vault = Vault::open(with_keyring(dir.path())).unwrap();
    let sealed = vault.seal("a", &secret()).unwrap();
    assert!(matches!(
        vault.key_location(),
        Some((KeyLocation::Keyring(_), _))
    ));
    assert!(!dir.path().join("vault.key").exists());
    let again = Vault::open(with_keyring(dir.path())).unwrap();
    assert_eq!(text(again.unseal("a", &sealed).unwrap()), "sk-test");
    // Another directory of data has a key of its own.
    let other = tempfile::tempdir().unwrap();
    let other = Vault::open(with_keyring(other.path())).unwrap();
    assert!(matches!(
        other.unseal("a", &sealed),
        Err(VaultError::NoKey { .. })
    ));
}

struct Locked;

impl Keyring for Locked {
    fn is_there(&self) -> bool {
        true
    }

    fn get(&self, _entry: &str) -> Result<Option<zeroize::Zeroizing<String>>, String> {
        Err("it is locked".to_owned())
    }

    fn set(&self, _entry: &str, _text: &str) -> Result<(), String> {
        Err("it is locked".to_owned())
    }

    fn remove(&self, _entry: &str) -> Result<(), String> {
        Err("it is locked".to_owned())
    }
}

#[test]
fn a_keyring_that_does_not_answer_gives_way_to_the_file_and_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let locked = || VaultOptions {
        keyring: Arc::new(Locked),
        ..VaultOptions::new(dir.path())
    };
    let vault = Vault::open(locked()).unwrap();
    let sealed = vault.seal("a", &secret()).unwrap();
    assert!(matches!(
        vault.key_location(),
        Some((KeyLocation::File(_), _))
    ));
    assert_eq!(text(vault.unseal("a", &sealed).unwrap()), "sk-test");
    let elsewhere = tempfile::tempdir().unwrap();
    let sealed = Vault::open(options(elsewhere.path()))
        .unwrap()
        .seal("a", &secret())
        .unwrap();
    let error = vault.unseal("a", &sealed).err().unwrap().to_string();
    assert!(error.contains("it is locked"), "{error}");
}

/// Every place where a rotation can end: each time all that was sealed can be read afterwards.
#[test]
fn a_rotation_that_ends_anywhere_loses_nothing_and_goes_on() {
    let rows = ["a", "b", "c"];
    let keyring = keyring();
    for in_keyring in [false, true] {
        for end in 0..=rows.len() + 1 {
            let dir = tempfile::tempdir().unwrap();
            let open = || {
                let options = VaultOptions {
                    keyring: match in_keyring {
                        true => Arc::clone(&keyring),
                        false => Arc::new(NoKeyring),
                    },
                    ..VaultOptions::new(dir.path())
                };
                Vault::open(options).unwrap()
            };
            let vault = open();
            let mut sealed: Vec<Vec<u8>> = rows
                .iter()
                .map(|id| vault.seal(id, &secret()).unwrap())
                .collect();
            let old = vault.key_location().unwrap().1;
            let rotation = vault.rotation().unwrap();
            for (id, row) in rows.iter().zip(&mut sealed).take(end) {
                *row = rotation.reseal(id, row).unwrap().unwrap();
            }
            let new = rotation.key();
            if end > rows.len() {
                rotation.finish().unwrap();
            }
            drop(vault);

            let vault = open();
            for (id, row) in rows.iter().zip(&sealed) {
                assert_eq!(text(vault.unseal(id, row).unwrap()), "sk-test");
            }
            let rotation = vault.rotation().unwrap();
            assert_eq!(
                rotation.key() == new,
                end <= rows.len(),
                "it goes on, or a new one begins"
            );
            for (id, row) in rows.iter().zip(&mut sealed) {
                if let Some(new) = rotation.reseal(id, row).unwrap() {
                    *row = new;
                }
            }
            rotation.finish().unwrap();
            let (_, now) = open().key_location().unwrap();
            assert!(now != old);
            for (id, row) in rows.iter().zip(&sealed) {
                assert_eq!(sealed::key_of(row).unwrap(), now);
                assert_eq!(text(open().unseal(id, row).unwrap()), "sk-test");
            }
            assert!(!file::next_path(&dir.path().join("vault.key")).exists());
        }
    }
}

#[test]
fn a_key_of_the_environment_is_replaced_by_whoever_sets_it() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (fresh_text(), fresh_text());
    let with = |key: &SecretString, old: Option<&SecretString>| {
        let options = VaultOptions {
            key: Some(key.clone()),
            old_key: old.cloned(),
            ..options(dir.path())
        };
        Vault::open(options).unwrap()
    };
    let before = with(&old, None);
    let sealed = before.seal("a", &secret()).unwrap();
    assert!(matches!(
        before.rotation(),
        Err(VaultError::KeyInEnvironment { .. })
    ));
    let both = with(&new, Some(&old));
    let rotation = both.rotation().unwrap();
    let resealed = rotation.reseal("a", &sealed).unwrap().unwrap();
    rotation.finish().unwrap();
    assert_eq!(
        text(with(&new, None).unseal("a", &resealed).unwrap()),
        "sk-test"
    );
    assert!(with(&new, None).unseal("a", &sealed).is_err());
    assert!(!dir.path().join("vault.key").exists());
}

#[test]
fn of_many_that_make_the_key_at_once_all_have_the_same() {
    let dir = tempfile::tempdir().unwrap();
    for keyring in [keyring(), Arc::new(NoKeyring)] {
        let data = dir.path().join(keyring.is_there().to_string());
        let sealed: Vec<Vec<u8>> = std::thread::scope(|threads| {
            let makers: Vec<_> = (0..8)
                .map(|_| {
                    let options = VaultOptions {
                        keyring: Arc::clone(&keyring),
                        ..VaultOptions::new(&data)
                    };
                    let vault = Vault::open(options).unwrap();
                    threads.spawn(move || vault.seal("a", &secret()).unwrap())
                })
                .collect();
            makers
                .into_iter()
                .map(|maker| maker.join().unwrap())
                .collect()
        });
        let keys: Vec<KeyId> = sealed
            .iter()
            .map(|row| sealed::key_of(row).unwrap())
            .collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
    }
}
