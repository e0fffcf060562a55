//! A store that ends with the process: for one-shot runs that nobody goes on with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::{Log, Record, StoreError, ThreadId, ThreadLog};

type Threads = Arc<Mutex<BTreeMap<ThreadId, Thread>>>;

#[derive(Debug, Default)]
struct Thread {
    records: Vec<Record>,
    is_open: bool,
}

/// Keeps threads in memory.
#[derive(Debug, Default)]
pub struct InMemory {
    threads: Threads,
}

impl Log for InMemory {
    fn open(&self, thread: &ThreadId) -> Result<Box<dyn ThreadLog>, StoreError> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Thread { records, is_open } = threads.entry(thread.clone()).or_default();
        if std::mem::replace(is_open, true) {
            return Err(StoreError::Busy {
                thread: thread.clone(),
            });
        }
        let epoch = 1 + records
            .iter()
            .filter(|r| matches!(r, Record::Opened { .. }))
            .count() as u64;
        let before = records.clone();
        records.push(Record::Opened { epoch });
        Ok(Box::new(Open {
            threads: Arc::clone(&self.threads),
            thread: thread.clone(),
            before,
            epoch,
        }))
    }

    fn read(&self, thread: &ThreadId) -> Result<Vec<Record>, StoreError> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads
            .get(thread)
            .map(|thread| thread.records.clone())
            .ok_or_else(|| StoreError::NoThread {
                thread: thread.clone(),
            })
    }

    fn threads(&self) -> Result<Vec<ThreadId>, StoreError> {
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(threads.keys().cloned().collect())
    }
}

struct Open {
    threads: Threads,
    thread: ThreadId,
    before: Vec<Record>,
    epoch: u64,
}

impl ThreadLog for Open {
    fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.before)
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn append(&mut self, records: &[Record], _durable: bool) -> Result<(), StoreError> {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads
            .entry(self.thread.clone())
            .or_default()
            .records
            .extend_from_slice(records);
        Ok(())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(thread) = threads.get_mut(&self.thread) {
            thread.is_open = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_writer_is_refused_until_the_first_is_gone() {
        let store = InMemory::default();
        let thread = ThreadId::parse("t").unwrap();
        let first = store.open(&thread).unwrap();
        assert!(matches!(store.open(&thread), Err(StoreError::Busy { .. })));
        drop(first);
        let second = store.open(&thread).unwrap();
        assert_eq!(second.epoch(), 2);
    }
}
