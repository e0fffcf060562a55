//! Calls on the calling thread.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use conjure_abi::code;
use conjure_host::plugin::{CallOptions, Instance, LoadedPlugin, NoServices, PluginLimits};
use conjure_plugin_tests::{Bench, envelope};
use conjure_skill_sdk::protocol::Empty;
use conjure_skill_sdk::{Error, Skill, ToolOptions};
use serde_json::{Value, json};

const OP: &str = "skill.tool.add";

/// A skill whose tool adds, asks the host, blocks until it is let go, or takes its time.
fn adder() -> (Arc<LoadedPlugin>, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (entered, entries) = mpsc::channel();
    let (release, gate) = mpsc::channel::<()>();
    let gate = Arc::new(Mutex::new(gate));
    let make = move || {
        let (entered, gate) = (entered.clone(), Arc::clone(&gate));
        let options = ToolOptions::new().read_only().stateless().in_place();
        Skill::new("adder", "Adds").raw_tool(
            "add",
            "Adds",
            json!({}),
            options,
            move |cx, v: Value| {
                match v["what"].as_str() {
                    Some("host") => {
                        let error = cx.host::<_, Empty>("kv.get", &Empty {}).unwrap_err();
                        return Ok(json!(error.code()));
                    }
                    Some("block") => {
                        let _ = entered.send(());
                        let _ = gate.lock().map(|gate| gate.recv());
                    }
                    Some("slow") => std::thread::sleep(Duration::from_millis(100)),
                    _ => {}
                }
                Ok::<_, Error>(json!(
                    v["a"].as_i64().unwrap_or(0) + v["b"].as_i64().unwrap_or(0)
                ))
            },
        )
    };
    let limits = PluginLimits {
        // However busy the machine is.
        in_place: Duration::from_secs(60),
        ..PluginLimits::default()
    };
    let plugin = LoadedPlugin::linked(make, "1.0.0", limits).unwrap();
    (Arc::new(plugin), entries, release)
}

async fn earn(plugin: &Arc<LoadedPlugin>) -> Arc<Instance> {
    let instance = plugin
        .create(&Bench::create(), Arc::new(NoServices))
        .await
        .unwrap();
    let json = envelope(&json!({ "a": 1, "b": 2 }));
    assert!(instance.request_in_place(OP, &json).is_none());
    for _ in 0..100 {
        instance
            .request(OP, json.clone(), CallOptions::default())
            .await
            .unwrap();
    }
    assert!(instance.can_run_in_place(OP));
    instance
}

fn result(reply: &[u8]) -> Value {
    serde_json::from_slice::<Value>(reply).unwrap()["structured"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_earned_and_then_serves_one_call_at_a_time() {
    let (plugin, entries, release) = adder();
    let instance = earn(&plugin).await;
    let add = envelope(&json!({ "a": 20, "b": 22 }));
    let reply = instance.request_in_place(OP, &add).unwrap().unwrap();
    assert_eq!(result(&reply), json!(42));
    let blocked = std::thread::spawn({
        let instance = Arc::clone(&instance);
        let json = envelope(&json!({ "what": "block" }));
        move || instance.request_in_place(OP, &json).map(Result::unwrap)
    });
    entries.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(instance.request_in_place(OP, &add).is_none());
    drop(release);
    assert!(blocked.join().unwrap().is_some());
    // Another operation has earned nothing.
    assert!(instance.request_in_place("conjure.ping", &add).is_none());
    // Who asks the host is refused, and does not get that far again.
    let host = envelope(&json!({ "what": "host" }));
    let reply = instance.request_in_place(OP, &host).unwrap().unwrap();
    assert_eq!(result(&reply), json!(code::DENIED));
    assert!(instance.request_in_place(OP, &add).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_call_loses_it_and_the_ordinary_way_stays() {
    let (plugin, _entries, _release) = adder();
    let instance = earn(&plugin).await;
    let slow = envelope(&json!({ "what": "slow" }));
    assert!(instance.request_in_place(OP, &slow).unwrap().is_ok());
    let add = envelope(&json!({ "a": 1, "b": 2 }));
    assert!(instance.request_in_place(OP, &add).is_none());
    let reply = instance
        .request(OP, add, CallOptions::default())
        .await
        .unwrap();
    assert_eq!(result(&reply), json!(3));
}
