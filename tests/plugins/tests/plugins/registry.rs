//! All plugins of a host: failures that stay where they are, and versions that come and go.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use conjure_host::plugin::{
    CallOptions, FoundLibrary, InstanceGrant, LoadedPlugin, LoaderOptions, PluginError,
    PluginLimits, RegistryEvent, SearchPath, Sha256,
};
use conjure_kit::build_plugin;
use conjure_plugin_tests::{Bench, Plugin, Versions, envelope};
use conjure_skill_sdk::Skill;
use serde_json::json;

use super::sources::{MARKED, marked};

/// The marked skill, in versions with marks of their own.
pub(crate) struct Marks(Versions);

impl Marks {
    pub(crate) fn new() -> Self {
        Self(Versions::of_text(&marked(), "mark:00000000000"))
    }

    pub(crate) fn original(&self) -> &[u8] {
        self.0.original()
    }

    pub(crate) fn number(&self, number: u64) -> (Vec<u8>, String) {
        let mark = format!("mark:{number:011}");
        (self.0.with(mark.as_bytes()), mark)
    }
}

#[test]
fn one_bad_plugin_takes_nothing_else_down() {
    let bench = Bench::new();
    bench.put("liba.so", b"no library");
    bench.put("libmarked.so", &std::fs::read(marked()).unwrap());
    bench.put("libz.so", b"");
    let registry = bench.registry();
    let (found, errors) = SearchPath {
        named: Vec::new(),
        dirs: vec![bench.dir.clone()],
    }
    .find();
    assert!(errors.is_empty());
    assert_eq!(found.len(), 3);
    registry.load_all(&found);
    let snapshot = registry.snapshot();
    let names: Vec<String> = snapshot
        .plugins()
        .iter()
        .map(|p| p.id().to_string())
        .collect();
    assert_eq!(names, ["marked 1.0.0"]);
    let failed: Vec<_> = snapshot
        .failed()
        .iter()
        .map(|f| f.path.file_name().unwrap())
        .collect();
    assert_eq!(failed, ["liba.so", "libz.so"]);
    assert_eq!(snapshot.generation, 3);
    assert_eq!(snapshot.changes_since(1).count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn b25_a_failed_reload_keeps_what_was_loaded() {
    let bench = Bench::new();
    let marks = Marks::new();
    let library = marks.original();
    let path = bench.put("libmarked.so", library);
    let registry = bench.registry();
    let changes = registry.subscribe();
    let old = registry.add(&path, false).unwrap();
    let instance = bench.instance(&old).await;
    bench.put("libmarked.so", &library[..library.len() / 2]);
    let error = registry.reload("marked").unwrap().unwrap_err();
    assert!(matches!(*error, PluginError::Incomplete { .. }), "{error}");
    let snapshot = registry.snapshot();
    assert!(Arc::ptr_eq(snapshot.get("marked").unwrap(), &old));
    assert_eq!(snapshot.failed()[0].still_loaded.as_ref(), Some(old.id()));
    let change = snapshot.changes_since(1).next().unwrap().event.to_string();
    assert!(
        change.starts_with("marked 1.0.0 stays in use: "),
        "{change}"
    );
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    // A good one heals it.
    let (changed, mark) = marks.number(1);
    bench.put("libmarked.so", &changed);
    let new = registry.reload("marked").unwrap().unwrap();
    assert!(registry.snapshot().failed().is_empty());
    let fresh = bench.instance(&new).await;
    assert_eq!(Bench::execute(&fresh, "mark").await.unwrap(), mark);
    assert_eq!(
        Bench::execute(&instance, "mark").await.unwrap(),
        "mark:00000000000"
    );
    assert_eq!(*changes.borrow(), registry.snapshot().generation);
}

#[test]
fn that_a_failure_is_over_is_told_also_where_the_same_bytes_are_there_again() {
    let bench = Bench::new();
    let library = std::fs::read(marked()).unwrap();
    let path = bench.put("libmarked.so", &library);
    let registry = bench.registry();
    let id = registry.add(&path, false).unwrap().id().clone();
    bench.put("libmarked.so", &library[..library.len() / 2]);
    registry.add(&path, false).unwrap_err();
    bench.put("libmarked.so", &library);
    registry.add(&path, false).unwrap();
    let snapshot = registry.snapshot();
    let newest = &snapshot.changes_since(0).last().unwrap().event;
    let RegistryEvent::Reloaded(well) = newest else {
        panic!("{newest}");
    };
    assert_eq!(*well, id);
    assert_eq!(newest.to_string(), "loaded marked 1.0.0 again");
    let told_of = |load: &dyn Fn()| {
        let before = registry.snapshot().generation;
        load();
        let after = registry.snapshot();
        let told = after.changes_since(before);
        told.map(|change| change.event.to_string())
            .collect::<Vec<_>>()
    };
    let again = ["loaded marked 1.0.0 again"];
    let asked = told_of(&|| drop(registry.reload("marked").unwrap().unwrap()));
    assert_eq!(asked, again, "somebody wanted it");
    let same = told_of(&|| drop(registry.add(&path, false).unwrap()));
    assert!(same.is_empty(), "nothing is another one: {same:?}");
    bench.put("libmarked.so", &library);
    let another = told_of(&|| drop(registry.add(&path, false).unwrap()));
    assert_eq!(another, again, "another file with the same bytes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_was_given_up_on_and_is_loaded_again_is_told() {
    let bench = Bench::with(LoaderOptions {
        limits: PluginLimits {
            grace: Duration::from_millis(20),
            abandoned: 1,
            ..PluginLimits::default()
        },
        ..LoaderOptions::default()
    });
    let library = build_plugin("conjure-misbehaving").unwrap();
    let path = bench.put("libmisbehaving.so", &std::fs::read(library).unwrap());
    let registry = bench.registry();
    let plugin = registry.add(&path, false).unwrap();
    let instance = bench.instance(&plugin).await;
    // On a busy machine one may be given up before it began.
    while plugin.health().quarantined.is_none() {
        let hurried = CallOptions {
            deadline: Some(Duration::from_millis(50)),
            ..CallOptions::default()
        };
        let sleep = envelope(&json!({ "command": "sleep 2000" }));
        let failed = instance.request("skill.execute", sleep, hurried).await;
        failed.unwrap_err();
    }
    let generation = registry.snapshot().generation;
    registry.reload("misbehaving").unwrap().unwrap();
    let snapshot = registry.snapshot();
    let told = snapshot.changes_since(generation).next().unwrap();
    assert!(matches!(told.event, RegistryEvent::Reloaded(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_ends_new_instances_except_for_whoever_has_the_plugin() {
    let bench = Bench::new();
    let path = bench.put("libmarked.so", &std::fs::read(marked()).unwrap());
    let registry = bench.registry();
    let plugin = registry.add(&path, false).unwrap();
    let instance = bench.instance(&plugin).await;
    assert!(Arc::ptr_eq(&registry.remove(&path).unwrap(), &plugin));
    assert!(registry.snapshot().plugins().is_empty());
    let refused = plugin
        .create(&Bench::create(), Arc::new(conjure_host::plugin::NoServices))
        .await
        .unwrap_err();
    assert!(matches!(refused, PluginError::Removed { .. }), "{refused}");
    let services = Arc::new(conjure_host::plugin::NoServices);
    let held = plugin
        .create_even_if_removed(&Bench::create(), services, &InstanceGrant::default())
        .await
        .unwrap();
    assert_eq!(Bench::execute(&held, "count").await.unwrap(), "1");
    assert_eq!(Bench::execute(&instance, "count").await.unwrap(), "1");
    assert!(registry.remove(&path).is_none());
}

#[test]
fn the_highest_version_is_first() {
    let bench = Bench::new();
    let registry = bench.registry();
    let newer = Plugin {
        version: "1.10.0",
        ..Plugin::new("marked-newer", MARKED)
    };
    for library in [marked(), newer.build()] {
        let name = library.file_name().unwrap().to_str().unwrap().to_owned();
        let path = bench.put(&name, &std::fs::read(&library).unwrap());
        registry.add(&path, false).unwrap();
    }
    let snapshot = registry.snapshot();
    let versions: Vec<String> = snapshot
        .versions("marked")
        .map(|p| p.id().version.to_string())
        .collect();
    assert_eq!(versions, ["1.10.0", "1.0.0"]);
}

#[test]
fn a_twin_is_refused_until_the_first_one_goes() {
    let bench = Bench::new();
    let registry = bench.registry();
    let marks = Marks::new();
    let first = bench.put("libfirst.so", marks.original());
    let second = bench.put("libsecond.so", &marks.number(2).0);
    registry.add(&first, false).unwrap();
    let error = registry.add(&second, false).unwrap_err();
    assert!(
        matches!(&*error, PluginError::Duplicate { other, .. } if *other == first),
        "{error}"
    );
    assert_eq!(registry.snapshot().plugins().len(), 1);
    registry.remove(&first);
    assert!(registry.snapshot().failed().is_empty());
    registry.add(&second, false).unwrap();
}

#[test]
fn a_plugin_that_is_linked_into_the_host_is_one_of_them() {
    let bench = Bench::new();
    let registry = bench.registry();
    let linked = |name: &'static str, requires: Option<&'static str>| {
        LoadedPlugin::linked(
            move || {
                let skill = Skill::new(name, "Linked");
                match requires {
                    Some(operation) => skill.requires(operation),
                    None => skill,
                }
            },
            "0.1.0",
            PluginLimits::default(),
        )
        .unwrap()
    };
    registry.add_linked(linked("own", None)).unwrap();
    let error = registry.add_linked(linked("own", None)).unwrap_err();
    assert!(matches!(*error, PluginError::Duplicate { .. }), "{error}");
    let error = registry
        .add_linked(linked("needy", Some("teleport/1")))
        .unwrap_err();
    assert!(error.to_string().contains("`teleport/1`"), "{error}");
    assert!(matches!(
        registry.snapshot().changes_since(0).last().unwrap().event,
        RegistryEvent::Added(_)
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_replacements_under_ten_callers_lose_no_call() {
    const REPLACEMENTS: u64 = 200;
    let bench = Bench::new();
    let versions = Marks::new();
    let marks = Arc::new(Mutex::new(HashMap::from([(
        Sha256::of(versions.original()),
        "mark:00000000000".to_owned(),
    )])));
    let path = bench.put("libmarked.so", versions.original());
    let registry = bench.registry();
    registry.load_all(&[FoundLibrary {
        path: path.clone(),
        named: false,
    }]);
    let bench = Arc::new(bench);
    let done = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicU64::new(0));
    let callers: Vec<_> = (0..10)
        .map(|_| {
            let (bench, registry, marks) = (
                Arc::clone(&bench),
                Arc::clone(&registry),
                Arc::clone(&marks),
            );
            let (done, calls) = (Arc::clone(&done), Arc::clone(&calls));
            tokio::spawn(async move {
                let mut seen = 0;
                let mut current = None;
                while !done.load(Ordering::Acquire) {
                    let snapshot = registry.snapshot();
                    let plugin = snapshot.get("marked").unwrap();
                    let instance = match current.take() {
                        Some((id, instance)) if id == *plugin.id() => instance,
                        _ => {
                            seen += 1;
                            bench.instance(plugin).await
                        }
                    };
                    let answer = Bench::execute(&instance, "mark").await.unwrap();
                    let sha256 = plugin.id().sha256.unwrap();
                    assert_eq!(Some(&answer), marks.lock().unwrap().get(&sha256));
                    calls.fetch_add(1, Ordering::Relaxed);
                    current = Some((plugin.id().clone(), instance));
                }
                seen
            })
        })
        .collect();
    let replacing = {
        let (registry, bench, marks) = (
            Arc::clone(&registry),
            Arc::clone(&bench),
            Arc::clone(&marks),
        );
        tokio::task::spawn_blocking(move || {
            for number in 1..=REPLACEMENTS {
                let (changed, mark) = versions.number(number);
                marks.lock().unwrap().insert(Sha256::of(&changed), mark);
                bench.put("libmarked.so", &changed);
                registry.add(&path, false).unwrap();
            }
        })
    };
    replacing.await.unwrap();
    done.store(true, Ordering::Release);
    let mut seen = 0;
    for caller in callers {
        seen += caller.await.unwrap();
    }
    println!(
        "FIGURES {REPLACEMENTS} replacements, {} calls, {seen} instances of versions seen",
        calls.load(Ordering::Relaxed)
    );
    assert!(registry.snapshot().failed().is_empty());
}
