//! A cluster behind a proxy that the kubeconfig names.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use conjure_skill_sdk::protocol::BashOutput;
use conjure_skill_sdk::testkit::Outcome;
use serde_json::{Value, json};

use super::{World, host, world};

/// A proxy of HTTP, and where it was asked to connect to.
struct Proxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let notes = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let notes = Arc::clone(&notes);
                thread::spawn(move || connect(client, &notes));
            }
        });
        Self { address, asked }
    }
}

/// Carries out one `CONNECT`.
fn connect(mut client: TcpStream, asked: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if client.read_exact(&mut byte).is_err() {
            return;
        }
        head.extend(byte);
    }
    let head = String::from_utf8(head).unwrap();
    let words: Vec<&str> = head.split(' ').take(2).collect();
    let [method, target] = words.as_slice() else {
        return;
    };
    asked.lock().unwrap().push(format!("{method} {target}"));
    let Ok(server) = TcpStream::connect(target) else {
        return;
    };
    if client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").is_err() {
        return;
    }
    let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || copy(back.0, back.1));
    copy(client, server);
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
}

/// What a command says of a host of its own, after this change of the kubeconfig.
fn said(world: &World, change: impl Fn(&mut Value)) -> Outcome {
    let path = world.path("kubeconfig");
    let mut kubeconfig: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut kubeconfig);
    fs::write(&path, kubeconfig.to_string()).unwrap();
    let plugin = host(&world.dir, &json!({})).link(crate::plugin).unwrap();
    let init = json!({ "skills": [], "env": {} });
    plugin.call("executor.init", init).reply.unwrap();
    let calls = plugin.with(|envelope| envelope.deadline_ms = 60_000);
    let outcome = calls.call("executor.bash", json!({ "command": "echo on" }));
    plugin.call("executor.cleanup", json!({}));
    outcome
}

#[test]
fn the_proxy_of_a_kubeconfig_carries_all_of_a_session() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let proxy = Proxy::new();
    let url = format!("http://{}", proxy.address);
    let outcome = said(&world, |kubeconfig| {
        kubeconfig["clusters"][0]["cluster"]["proxy-url"] = json!(url);
    });
    let ran: BashOutput = outcome.parse().unwrap();
    assert_eq!(ran.stdout, "on\n");
    let target = format!("CONNECT {}", world.network.address());
    let asked = proxy.asked.lock().unwrap().clone();
    assert!(
        !asked.is_empty() && asked.iter().all(|asked| *asked == target),
        "{asked:?}"
    );
}

#[test]
fn a_proxy_that_is_away_or_of_another_kind_is_named() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    for (url, words) in [
        (
            "http://me:word@127.0.0.1:1",
            ["by the proxy 127.0.0.1:1", "does not answer"],
        ),
        ("ftp://me:word@127.0.0.1:1", ["`proxy-url`", "socks5://"]),
    ] {
        let outcome = said(&world, |kubeconfig| {
            kubeconfig["clusters"][0]["cluster"]["proxy-url"] = json!(url);
        });
        assert!(outcome.code().is_some());
        let text = outcome.text();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert!(!text.contains("word@"), "{text}");
    }
}

#[test]
fn a_login_program_that_is_not_installed_is_named() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let outcome = said(&world, |kubeconfig| {
        kubeconfig["users"][0]["user"] = json!({ "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "conjure-no-such-login",
            "interactiveMode": "Never",
        } });
    });
    let text = outcome.text();
    for word in ["`conjure-no-such-login`", "Install it"] {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}
