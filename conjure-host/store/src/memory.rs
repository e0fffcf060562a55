//! A store that ends with the process: for one-shot runs that nobody goes on with.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};

use crate::{Log, PendingAppend, Record, StoreError, ThreadId, ThreadLog};

type Threads = Arc<Mutex<BTreeMap<ThreadId, MemoryThread>>>;

#[derive(Debug, Default)]
struct MemoryThread {
    records: Vec<Record>,
    epoch: u64,
    is_open: bool,
}

/// A log that keeps its threads in memory.
#[derive(Debug, Default)]
pub struct MemoryLog {
    threads: Threads,
}

fn lock(threads: &Threads) -> MutexGuard<'_, BTreeMap<ThreadId, MemoryThread>> {
    threads.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryLog {
    fn begin(&self, id: &ThreadId) -> Result<Box<dyn ThreadLog>, StoreError> {
        let mut threads = lock(&self.threads);
        let thread = threads.entry(id.clone()).or_default();
        if std::mem::replace(&mut thread.is_open, true) {
            return Err(StoreError::Busy {
                thread: id.clone(),
                owner: "this process".to_owned(),
            });
        }
        thread.epoch += 1;
        let last_seq = thread.records.iter().rev().find_map(|record| match record {
            Record::Entry(entry) => Some(entry.seq),
            _ => None,
        });
        Ok(Box::new(MemoryWriter {
            threads: Arc::clone(&self.threads),
            epoch: thread.epoch,
            last_seq: last_seq.unwrap_or_default(),
            thread: id.clone(),
        }))
    }
}

impl Log for MemoryLog {
    fn open<'a>(
        &'a self,
        thread: &'a ThreadId,
    ) -> BoxFuture<'a, Result<Box<dyn ThreadLog>, StoreError>> {
        ready(self.begin(thread)).boxed()
    }

    fn read<'a>(&'a self, thread: &'a ThreadId) -> BoxFuture<'a, Result<Vec<Record>, StoreError>> {
        let threads = lock(&self.threads);
        let records = threads.get(thread).map(|thread| thread.records.clone());
        let records = records.ok_or_else(|| StoreError::NoThread {
            thread: thread.clone(),
        });
        ready(records).boxed()
    }

    fn threads(&self) -> BoxFuture<'_, Result<Vec<ThreadId>, StoreError>> {
        ready(Ok(lock(&self.threads).keys().cloned().collect())).boxed()
    }
}

struct MemoryWriter {
    threads: Threads,
    thread: ThreadId,
    epoch: u64,
    last_seq: u64,
}

impl ThreadLog for MemoryWriter {
    fn thread(&self) -> &ThreadId {
        &self.thread
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn last_seq(&self) -> u64 {
        self.last_seq
    }

    fn append(&mut self, records: &[Record], _durable: bool) -> PendingAppend {
        let mut threads = lock(&self.threads);
        let thread = threads.entry(self.thread.clone()).or_default();
        thread.records.extend_from_slice(records);
        PendingAppend::ready(Ok(()))
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        if let Some(thread) = lock(&self.threads).get_mut(&self.thread) {
            thread.is_open = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_second_writer_is_refused_until_the_first_is_gone() {
        let store = MemoryLog::default();
        let thread = ThreadId::parse("t").unwrap();
        let first = store.open(&thread).await.unwrap();
        let second = store.open(&thread).await;
        assert!(matches!(second, Err(StoreError::Busy { .. })));
        drop(first);
        let second = store.open(&thread).await.unwrap();
        assert_eq!(second.epoch(), 2);
    }
}
