//! Runs under any operations of two processes, held against a model of them.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::postgres::Server;
use super::runs::{run, with_thread};
use super::{Bed, runtime};
use crate::{Location, RunFilter, RunState};

/// What is done to runs by one of two processes.
#[derive(Debug, Clone)]
enum Op {
    Begin { process: usize, run: u8 },
    Update { process: usize, run: u8, runs: bool },
    End { process: usize, run: u8 },
    Beat { process: usize, run: u8 },
    Restart { process: usize },
    TakeOver { process: usize },
}

fn op() -> impl Strategy<Value = Op> {
    let (process, run) = (|| 0..2_usize, || 0..4_u8);
    prop_oneof![
        4 => (process(), run()).prop_map(|(process, run)| Op::Begin { process, run }),
        3 => (process(), run(), any::<bool>())
            .prop_map(|(process, run, runs)| Op::Update { process, run, runs }),
        3 => (process(), run()).prop_map(|(process, run)| Op::End { process, run }),
        2 => (process(), run()).prop_map(|(process, run)| Op::Beat { process, run }),
        1 => process().prop_map(|process| Op::Restart { process }),
        2 => process().prop_map(|process| Op::TakeOver { process }),
    ]
}

/// The state of each run, and the process that owns it while that lives.
async fn like_the_model(bed: Bed, ops: Vec<Op>) {
    let mut stores = [with_thread(&bed).await, bed.open().await];
    let mut model: BTreeMap<u8, (RunState, Option<usize>)> = BTreeMap::new();
    for op in ops {
        match op {
            Op::Begin { process, run: name } => {
                let begun = stores[process].begin_run(run(&name.to_string())).await;
                assert_eq!(begun.is_ok(), !model.contains_key(&name), "{begun:?}");
                model
                    .entry(name)
                    .or_insert((RunState::Queued, Some(process)));
            }
            Op::Update { process, run, runs } => {
                let state = if runs {
                    RunState::Running
                } else {
                    RunState::Queued
                };
                let id = run.to_string();
                let done = stores[process].update_run(&id, state, None);
                let known = model.get_mut(&run).filter(|(state, _)| !state.is_over());
                assert_eq!(done.await.unwrap(), known.is_some());
                if let Some(known) = known {
                    known.0 = state;
                }
            }
            Op::End { process, run } => {
                let id = run.to_string();
                let done = stores[process].end_run(&id, RunState::Limit, None, None);
                let known = model.get_mut(&run).filter(|(state, _)| !state.is_over());
                assert_eq!(done.await.unwrap(), known.is_some());
                if let Some(known) = known {
                    known.0 = RunState::Limit;
                }
            }
            Op::Beat { process, run } => {
                let beaten = stores[process].beat_runs(&[&run.to_string()]).await;
                let is_open = model.get(&run).is_some_and(|(state, _)| !state.is_over());
                assert_eq!(beaten.unwrap(), u64::from(is_open));
            }
            Op::Restart { process } => {
                stores[process].close().await;
                stores[process] = bed.open().await;
                for (_, owner) in model.values_mut() {
                    *owner = owner.filter(|owner| *owner != process);
                }
            }
            Op::TakeOver { process } => {
                let taken = stores[process].take_over_runs().await.unwrap();
                let taken: Vec<_> = taken.into_iter().map(|run| run.id).collect();
                let mut expected = Vec::new();
                for (name, (state, owner)) in &mut model {
                    if owner.is_none() && !state.is_over() {
                        *state = RunState::Interrupted;
                        expected.push(name.to_string());
                    }
                }
                assert_eq!(taken, expected);
            }
        }
        let mut all = stores[0].runs(RunFilter::All, None, 99).await.unwrap();
        all.sort_by(|a, b| a.id.cmp(&b.id));
        for run in &all {
            assert_eq!(run.ended_at_ms.is_some(), run.state.is_over(), "{run:?}");
        }
        let all: Vec<_> = all.into_iter().map(|run| (run.id, run.state)).collect();
        let expected = model
            .iter()
            .map(|(name, (state, _))| (name.to_string(), *state));
        assert_eq!(all, expected.collect::<Vec<_>>());
    }
    for store in stores {
        store.close().await;
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
        .run(&vec(op(), 1..30), |ops| {
            runtime().block_on(like_the_model(bed(), ops));
            Ok(())
        })
        .unwrap();
}

#[test]
fn any_operations_on_runs_over_sqlite_come_to_what_the_model_says() {
    let dir = tempfile::tempdir().unwrap();
    let next = std::cell::Cell::new(0);
    check(32, || {
        next.set(next.get() + 1);
        let path = dir.path().join(next.get().to_string()).join("conjure.db");
        Bed {
            place: Location::File(path),
        }
    });
}

#[test]
fn any_operations_on_runs_over_postgres_come_to_what_the_model_says() {
    let Some(server) = Server::get() else { return };
    check(8, || runtime().block_on(server.bed()));
}
