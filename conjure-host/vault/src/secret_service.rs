//! The keyring of Linux: the Secret Service of the user's session, over its bus.

use std::collections::HashMap;
use std::path::Path;
use std::thread;

use secret_service::{EncryptionType, Error, Item, SecretService};
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
        with_service(async |service| {
            let Some(item) = find_item(service, entry).await? else {
                return Ok(None);
            };
            let secret = Zeroizing::new(item.get_secret().await.map_err(describe_error)?);
            match str::from_utf8(&secret) {
                Ok(text) => Ok(Some(text.to_owned().into())),
                // The error would show what was read.
                Err(_) => Err("the entry is no text".to_owned()),
            }
        })
    }

    fn set(&self, entry: &str, text: &str) -> Result<(), String> {
        with_service(async |service| {
            if let Some(item) = find_item(service, entry).await? {
                let set = item.set_secret(text.as_bytes(), CONTENT).await;
                return set.map_err(describe_error);
            }
            let collection = service
                .get_default_collection()
                .await
                .map_err(describe_error)?;
            if collection.is_locked().await.map_err(describe_error)? {
                collection.unlock().await.map_err(describe_error)?;
            }
            let label = format!("keyring:{entry}@{SERVICE}");
            let (names, text) = (attributes(entry), text.as_bytes());
            let made = collection.create_item(&label, names, text, true, CONTENT);
            made.await.map(drop).map_err(describe_error)
        })
    }

    fn remove(&self, entry: &str) -> Result<(), String> {
        with_service(async |service| {
            for item in find_items(service, entry).await? {
                unlock(&item).await?;
                item.delete().await.map_err(describe_error)?;
            }
            Ok(())
        })
    }
}

/// By what an entry is found.
fn attributes(entry: &str) -> HashMap<&str, &str> {
    HashMap::from([("service", SERVICE), ("username", entry)])
}

/// All that the entry's name finds, in every collection.
async fn find_items<'a>(
    service: &'a SecretService<'_>,
    entry: &str,
) -> Result<Vec<Item<'a>>, String> {
    let found = service.search_items(attributes(entry)).await;
    let found = found.map_err(describe_error)?;
    Ok(found.unlocked.into_iter().chain(found.locked).collect())
}

/// The entry, unlocked.
async fn find_item<'a>(
    service: &'a SecretService<'_>,
    entry: &str,
) -> Result<Option<Item<'a>>, String> {
    let mut found = find_items(service, entry).await?;
    if found.len() > 1 {
        return Err(format!(
            "{} of its entries have the service `{SERVICE}` and the name `{entry}`; remove all but one",
            found.len()
        ));
    }
    let Some(item) = found.pop() else {
        return Ok(None);
    };
    unlock(&item).await?;
    Ok(Some(item))
}

/// Unlocks an item where it is locked; the keyring may ask the person.
async fn unlock(item: &Item<'_>) -> Result<(), String> {
    if item.is_locked().await.map_err(describe_error)? {
        item.unlock().await.map_err(describe_error)?;
    }
    Ok(())
}

/// Asks the keyring on a thread and a runtime that are there for this: whoever calls may have a runtime on
/// their thread, and no idle thread stays behind.
fn with_service<T: Send>(
    work: impl AsyncFnOnce(&SecretService<'_>) -> Result<T, String> + Send,
) -> Result<T, String> {
    let asking = || -> Result<T, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("it cannot be waited for: {error}"))?;
        // Everything of the connection is dropped while the runtime runs.
        runtime.block_on(async {
            let service = SecretService::connect(EncryptionType::Dh).await;
            work(&service.map_err(describe_error)?).await
        })
    };
    thread::scope(|scope| {
        let asking = thread::Builder::new().spawn_scoped(scope, asking);
        let asking = asking.map_err(|error| format!("there is no thread to ask it: {error}"))?;
        asking
            .join()
            .unwrap_or_else(|_| Err("asking for it failed inside of this program".to_owned()))
    })
}

/// The error in words.
fn describe_error(error: Error) -> String {
    match error {
        Error::Locked => "it is locked".to_owned(),
        Error::Prompt => "its question was dismissed".to_owned(),
        Error::PromptDisconnected => "it ended while it asked".to_owned(),
        Error::NoResult => "it has no default collection".to_owned(),
        Error::Unavailable => "no Secret Service answers on the session's bus".to_owned(),
        error => error.to_string(),
    }
}
