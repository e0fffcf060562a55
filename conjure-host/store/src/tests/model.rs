//! Random operations against a model that is plain lists: whatever is done in whatever order, with
//! crashes in between, a thread shows what the model shows.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use conjure_core::chat::EventId;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::{Log as _, Record, Store, StoreError, ThreadLog, Window};

use super::postgres::Server;
use super::{Bed, entry, event, id, runtime};

/// What is done. Threads are numbers; one that is not there yet is made, or nothing is done.
#[derive(Debug, Clone)]
enum Op {
    Append {
        thread: u8,
        entries: u8,
        events: u8,
        durable: bool,
    },
    Fork {
        thread: u8,
        /// Where, in 256ths of what it shows.
        at: u8,
        fork: u8,
    },
    Clear(u8),
    Remove(u8),
    Close(u8),
    Page {
        thread: u8,
        at: u8,
        forwards: bool,
        limit: u8,
    },
    EventsAfter {
        thread: u8,
        at: u8,
        limit: u8,
    },
    Restart,
    /// The process ends so many statements into an append to a thread and one to another.
    Crash {
        thread: u8,
        other: u8,
        entries: u8,
        statements: u8,
    },
}

fn op() -> impl Strategy<Value = Op> {
    let thread = || 0..5_u8;
    prop_oneof![
        8 => (thread(), 0..4_u8, 0..4_u8, any::<bool>()).prop_map(
            |(thread, entries, events, durable)| Op::Append { thread, entries, events, durable }
        ),
        4 => (thread(), any::<u8>(), thread())
            .prop_map(|(thread, at, fork)| Op::Fork { thread, at, fork }),
        2 => thread().prop_map(Op::Clear),
        1 => thread().prop_map(Op::Remove),
        2 => thread().prop_map(Op::Close),
        4 => (thread(), any::<u8>(), any::<bool>(), 1..9_u8).prop_map(
            |(thread, at, forwards, limit)| Op::Page { thread, at, forwards, limit }
        ),
        3 => (thread(), any::<u8>(), 1..9_u8)
            .prop_map(|(thread, at, limit)| Op::EventsAfter { thread, at, limit }),
        1 => Just(Op::Restart),
        2 => (thread(), thread(), 1..3_u8, 0..12_u8).prop_map(
            |(thread, other, entries, statements)| Op::Crash { thread, other, entries, statements }
        ),
    ]
}

/// A thread, as it should be.
#[derive(Debug, Clone, Default, PartialEq)]
struct Thread {
    parent: Option<u8>,
    /// Entries that it shows, by number; all of them are `entry(seq)`.
    shown: Vec<u64>,
    last: u64,
    events: Vec<EventId>,
    epoch: u64,
    /// The last event of the epoch, also when it was cleared.
    last_event: u64,
}

impl Thread {
    fn append(&mut self, entries: u64, events: u64) -> Vec<Record> {
        let mut records = Vec::new();
        for _ in 0..entries {
            self.last += 1;
            self.shown.push(self.last);
            records.push(entry(self.last));
        }
        for _ in 0..events {
            self.last_event += 1;
            let (epoch, seq) = (self.epoch, self.last_event);
            self.events.push(EventId { epoch, seq });
            records.push(event(epoch, seq));
        }
        records
    }
}

struct World {
    bed: Bed,
    store: Store,
    model: BTreeMap<u8, Thread>,
    /// Threads that were removed and whose ids are not free, since forks need their entries; with
    /// their parents.
    gone: BTreeMap<u8, Option<u8>>,
    open: BTreeMap<u8, Box<dyn ThreadLog>>,
}

fn name(thread: u8) -> crate::ThreadId {
    id(&format!("t{thread}"))
}

impl World {
    async fn run(bed: Bed, ops: Vec<Op>) {
        let store = bed.open().await;
        let mut world = Self {
            bed,
            store,
            model: BTreeMap::new(),
            gone: BTreeMap::new(),
            open: BTreeMap::new(),
        };
        for op in ops {
            world.step(op).await;
        }
        world.compare().await;
        let check = world.store.check().await.unwrap();
        assert!(check.is_sound(), "{check:?}");
        // What is not shown by anybody is not there.
        let shown: std::collections::BTreeSet<_> = world.stored().await;
        let rows = world.store.all("SELECT thread_id, seq FROM entries", []);
        assert_eq!(rows.await.unwrap().len(), shown.len());
        world.open.clear();
        world.store.close().await;
    }

    async fn step(&mut self, op: Op) {
        match op {
            Op::Append {
                thread,
                entries,
                events,
                durable,
            } => {
                if !self.opened(thread).await {
                    return;
                }
                let model = self.model.get_mut(&thread).unwrap();
                let records = model.append(entries.into(), events.into());
                let log = self.open.get_mut(&thread).unwrap();
                log.append(&records, durable).await.unwrap();
            }
            Op::Fork { thread, at, fork } => self.fork(thread, at, fork).await,
            Op::Clear(thread) => {
                let cleared = self.store.clear_thread(&name(thread)).await;
                match self.model.get_mut(&thread) {
                    Some(model) => {
                        cleared.unwrap();
                        model.shown.clear();
                        model.events.clear();
                    }
                    None => assert!(matches!(cleared, Err(StoreError::NoThread { .. }))),
                }
            }
            Op::Remove(thread) => {
                self.open.remove(&thread);
                let removed = self.store.remove_thread(&name(thread)).await;
                match self.model.remove(&thread) {
                    Some(model) => {
                        removed.unwrap();
                        self.gone.insert(thread, model.parent);
                        self.reap();
                    }
                    None => assert!(matches!(removed, Err(StoreError::NoThread { .. }))),
                }
            }
            Op::Close(thread) => drop(self.open.remove(&thread)),
            Op::Page {
                thread,
                at,
                forwards,
                limit,
            } => self.page(thread, at, forwards, limit).await,
            Op::EventsAfter { thread, at, limit } => self.events_after(thread, at, limit).await,
            Op::Restart => {
                self.open.clear();
                self.store.close().await;
                self.store = self.bed.open().await;
                self.compare().await;
            }
            Op::Crash {
                thread,
                other,
                entries,
                statements,
            } => self.crash(thread, other, entries, statements).await,
        }
    }

    /// Frees the ids of removed threads that nobody descends from.
    fn reap(&mut self) {
        let has_forks = |gone: &BTreeMap<u8, Option<u8>>, thread: u8| {
            let live = self.model.values().map(|model| model.parent);
            let mut parents = live.chain(gone.values().copied());
            parents.any(|parent| parent == Some(thread))
        };
        while let Some(free) = self
            .gone
            .keys()
            .copied()
            .find(|t| !has_forks(&self.gone, *t))
        {
            self.gone.remove(&free);
        }
    }

    /// Opens a thread, unless it was removed and is still needed.
    async fn opened(&mut self, thread: u8) -> bool {
        if self.open.contains_key(&thread) {
            return true;
        }
        if self.gone.contains_key(&thread) {
            let error = self.store.open(&name(thread)).await.err().unwrap();
            assert!(matches!(error, StoreError::NoThread { .. }), "{error}");
            return false;
        }
        let log = self.store.open(&name(thread)).await.unwrap();
        let model = self.model.entry(thread).or_default();
        model.epoch += 1;
        model.last_event = 0;
        assert_eq!((log.epoch(), log.last_seq()), (model.epoch, model.last));
        self.open.insert(thread, log);
        true
    }

    async fn fork(&mut self, thread: u8, at: u8, fork: u8) {
        let Some(parent) = self.model.get(&thread) else {
            return;
        };
        let at = parent.shown.len() * usize::from(at) / 256;
        let Some(from) = parent.shown.get(at).copied() else {
            return;
        };
        let forked = self.store.fork(&name(thread), from, &name(fork)).await;
        if self.model.contains_key(&fork) || self.gone.contains_key(&fork) {
            assert!(matches!(forked, Err(StoreError::ThreadExists { .. })));
            return;
        }
        forked.unwrap();
        let shown = parent.shown.iter().copied().filter(|seq| *seq <= from);
        let model = Thread {
            parent: Some(thread),
            shown: shown.collect(),
            last: from,
            ..Thread::default()
        };
        self.model.insert(fork, model);
    }

    async fn page(&self, thread: u8, at: u8, forwards: bool, limit: u8) {
        let Some(model) = self.model.get(&thread) else {
            return;
        };
        let at = model.last * u64::from(at) / 200;
        let limit_of = usize::from(limit);
        let (window, expected): (_, Vec<u64>) = if forwards {
            let behind = model.shown.iter().copied().filter(|seq| *seq > at);
            (Window::After(at), behind.take(limit_of).collect())
        } else {
            let before = model.shown.iter().rev().copied().filter(|seq| *seq < at);
            let mut before: Vec<_> = before.take(limit_of).collect();
            before.reverse();
            (Window::Before(at), before)
        };
        let page = self
            .store
            .entries(&name(thread), window, limit.into())
            .await;
        let seqs: Vec<_> = page.unwrap().entries.iter().map(|e| e.seq).collect();
        assert_eq!(seqs, expected, "{window:?}");
    }

    async fn events_after(&self, thread: u8, at: u8, limit: u8) {
        let Some(model) = self.model.get(&thread) else {
            return;
        };
        let at = model.events.len() * usize::from(at) / 200;
        let after = at
            .checked_sub(1)
            .and_then(|at| model.events.get(at).copied());
        let skip = if after.is_some() { at } else { 0 };
        let events = self
            .store
            .events_after(&name(thread), after.or(None), limit.into())
            .await
            .unwrap();
        let ids: Vec<_> = events.into_iter().map(|(id, _)| id).collect();
        if at <= model.events.len() {
            let expected = model.events.iter().copied().skip(skip);
            assert_eq!(ids, expected.take(limit.into()).collect::<Vec<_>>());
        }
    }

    /// What was on its way when the process ended is there whole or not at all.
    async fn crash(&mut self, thread: u8, other: u8, entries: u8, statements: u8) {
        if !self.opened(thread).await || !self.opened(other).await {
            return;
        }
        self.store.db().crash.after(statements.into());
        // The model without them, with the first, and with both.
        let mut models = vec![self.model.clone()];
        let mut waiting = Vec::new();
        for thread in [thread, other] {
            let mut with = models[models.len() - 1].clone();
            let model = with.get_mut(&thread).unwrap();
            let records = model.append(entries.into(), 1);
            models.push(with);
            let log = self.open.get_mut(&thread).unwrap();
            waiting.push(log.append(&records, true));
        }
        let mut acknowledged = Vec::new();
        for waits in waiting {
            acknowledged.push(waits.await.is_ok());
        }
        assert_ne!(acknowledged, [false, true], "one behind the other");
        let acknowledged = acknowledged.iter().filter(|is| **is).count();
        self.open.clear();
        self.store.db().crash.after(0);
        self.store = self.bed.open().await;
        // The dead writer's threads can be taken as soon as its thread has ended.
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(error) = self.store.open(&name(thread)).await.map(drop) {
            assert!(matches!(error, StoreError::Busy { .. }), "{error}");
            assert!(Instant::now() < deadline, "{error}");
            tokio::task::yield_now().await;
        }
        for model in &mut models {
            model.get_mut(&thread).unwrap().epoch += 1;
        }
        let shown = (self.shows(thread).await, self.shows(other).await);
        let is_so = |model: &BTreeMap<u8, Thread>| {
            (&model[&thread].shown, &model[&other].shown) == (&shown.0, &shown.1)
        };
        let is = models.iter().skip(acknowledged).find(|model| is_so(model));
        self.model = is
            .expect("what was acknowledged is there, and whole")
            .clone();
        self.compare().await;
    }

    async fn shows(&self, thread: u8) -> Vec<u64> {
        let page = self
            .store
            .entries(&name(thread), Window::After(0), 10_000)
            .await;
        page.unwrap()
            .entries
            .iter()
            .map(|entry| entry.seq)
            .collect()
    }

    async fn compare(&self) {
        let threads = self.store.threads().await.unwrap();
        assert_eq!(threads.len(), self.model.len());
        for (thread, model) in &self.model {
            let mut records = self.store.read(&name(*thread)).await.unwrap();
            records.sort_by_key(|record| matches!(record, Record::Event { .. }));
            let entries = model.shown.iter().map(|seq| entry(*seq));
            let events = model.events.iter().map(|id| event(id.epoch, id.seq));
            assert_eq!(records, entries.chain(events).collect::<Vec<_>>());
        }
    }

    /// The rows that threads show, as (thread that has it, entry).
    async fn stored(&self) -> std::collections::BTreeSet<(String, u64)> {
        let mut rows = std::collections::BTreeSet::new();
        for thread in self.model.keys() {
            let tx = self.store.db().snapshot("test").await.unwrap();
            let shown = crate::lineage::VisibleEntries::read(&tx, &name(*thread)).await;
            for stretch in shown.unwrap().stretches {
                for seq in stretch.after_seq + 1..=stretch.last_seq {
                    rows.insert((stretch.thread.clone(), seq));
                }
            }
        }
        rows
    }
}

fn check(cases: u32, bed: impl Fn() -> Bed) {
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..Config::default()
    };
    TestRunner::new(config)
        .run(&vec(op(), 1..40), |ops| {
            runtime().block_on(World::run(bed(), ops));
            Ok(())
        })
        .unwrap();
}

#[test]
fn any_operations_over_sqlite_come_to_what_the_model_says() {
    let dir = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    check(48, || {
        next.set(next.get() + 1);
        let path = dir.path().join(next.get().to_string()).join("conjure.db");
        Bed {
            place: crate::Location::File(path),
        }
    });
}

#[test]
fn any_operations_over_postgres_come_to_what_the_model_says() {
    let Some(server) = Server::get() else { return };
    check(12, || runtime().block_on(server.bed()));
}
