//! The keyring of Linux: the Secret Service of the user's session, over its bus.

use std::collections::HashMap;
use std::path::Path;

use secret_service::blocking::{Item, SecretService};
use secret_service::{EncryptionType, Error};
use zeroize::Zeroizing;

use crate::Keyring;
use crate::keyring::SERVICE;

/// What kind of content an entry has.
const CONTENT: &str = "application/octet-stream";

/// The Secret Service of the session that this process belongs to.
#[derive(Debug, Clone, Copy, Default)]
pub struct SessionKeyring;

impl SessionKeyring {
    /// The keyring of this session, if it has one.
    #[must_use]
    pub fn new() -> Self {
        Self
    }
}

impl Keyring for SessionKeyring {
    /// Whether somebody is logged in whom a keyring would ask: a server has no session bus.
    fn is_there(&self) -> bool {
        let user = rustix::process::geteuid().as_raw();
        std::env::var_os("DBUS_SESSION_BUS_ADDRESS").is_some()
            || Path::new(&format!("/run/user/{user}/bus")).exists()
    }

    fn get(&self, entry: &str) -> Result<Option<Zeroizing<String>>, String> {
        let secret = aside(|service| match found(service, entry)? {
            Some(item) => item.get_secret().map(|secret| Some(Zeroizing::new(secret))),
            None => Ok(None),
        })?;
        // One that holds what was read does not show it.
        let text = secret.map(|secret| str::from_utf8(&secret).map(|text| text.to_owned().into()));
        text.transpose()
            .map_err(|_| "the entry is no text".to_owned())
    }

    fn set(&self, entry: &str, text: &str) -> Result<(), String> {
        aside(|service| {
            if let Some(item) = found(service, entry)? {
                return item.set_secret(text.as_bytes(), CONTENT);
            }
            let collection = service.get_default_collection()?;
            if collection.is_locked()? {
                collection.unlock()?;
            }
            let label = format!("keyring:{entry}@{SERVICE}");
            let made =
                collection.create_item(&label, attributes(entry), text.as_bytes(), true, CONTENT);
            made.map(drop)
        })
    }

    fn remove(&self, entry: &str) -> Result<(), String> {
        aside(|service| match found(service, entry)? {
            Some(item) => item.delete(),
            None => Ok(()),
        })
    }
}

/// By what an entry is found.
fn attributes(entry: &str) -> HashMap<&str, &str> {
    HashMap::from([("service", SERVICE), ("username", entry)])
}

/// The entry, unlocked. Who locked it may be asked.
fn found<'a>(service: &'a SecretService<'a>, entry: &str) -> Result<Option<Item<'a>>, Error> {
    let mut found = service.search_items(attributes(entry))?;
    if let Some(item) = found.unlocked.pop() {
        return Ok(Some(item));
    }
    let Some(item) = found.locked.pop() else {
        return Ok(None);
    };
    item.unlock()?;
    Ok(Some(item))
}

/// Asks the keyring on a thread of its own: the connection waits on a runtime of its own, which cannot be
/// done on a thread that already runs one.
fn aside<T: Send>(
    work: impl FnOnce(&SecretService<'_>) -> Result<T, Error> + Send,
) -> Result<T, String> {
    let asked = std::thread::scope(|scope| {
        let asking = scope.spawn(|| work(&SecretService::connect(EncryptionType::Dh)?));
        asking.join()
    });
    match asked {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("asking for it failed inside of this program".to_owned()),
    }
}
