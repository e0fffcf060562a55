//! The sessions of an executor, by their ids.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use conjure_skill_sdk::Result;

/// The sessions that were prepared and are not over.
#[derive(Debug)]
pub(super) struct Sessions<S>(Mutex<HashMap<String, Arc<S>>>);

impl<S> Default for Sessions<S> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<S> Sessions<S> {
    /// The session with this id, which is made when it is new.
    pub(super) fn get_or_try_insert(
        &self,
        id: &str,
        make: impl FnOnce() -> Result<S>,
    ) -> Result<Arc<S>> {
        match self.lock().entry(id.to_owned()) {
            Entry::Occupied(found) => Ok(Arc::clone(found.get())),
            Entry::Vacant(free) => Ok(Arc::clone(free.insert(Arc::new(make()?)))),
        }
    }

    pub(super) fn of(&self, id: &str) -> Option<Arc<S>> {
        self.lock().get(id).cloned()
    }

    pub(super) fn take(&self, id: &str) -> Option<Arc<S>> {
        self.lock().remove(id)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<S>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
