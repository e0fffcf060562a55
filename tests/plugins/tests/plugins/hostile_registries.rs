//! Registries that answer what a registry should not: without end, elsewhere, or another package.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use conjure_kit::{Output, cli};
use conjure_plugin_tests::{Publisher, Team};

/// What is answered to a request.
enum Answer {
    /// A status with what belongs to it, further headers, and a text.
    Text(&'static str, String, String),
    /// Bytes without an end.
    Endless,
}

fn text(status: &'static str, text: &str) -> Answer {
    Answer::Text(status, String::new(), text.to_owned())
}

/// A server on this machine that answers as a test says. It goes with the process.
struct FakeRegistry {
    address: String,
    seen: Arc<Mutex<Vec<String>>>,
}

impl FakeRegistry {
    /// `answer` gets the request, such as `GET /v2/`, and all that it was asked before.
    fn start(answer: impl Fn(&str, &[String]) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (all, answer) = (Arc::clone(&seen), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (all, answer) = (Arc::clone(&all), Arc::clone(&answer));
                std::thread::spawn(move || serve(&stream.unwrap(), &all, &*answer));
            }
        });
        Self { address, seen }
    }

    fn place(&self, tag: &str) -> String {
        format!("oci://{}/plugins/toucher:{tag}", self.address)
    }

    fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(
    mut stream: &TcpStream,
    seen: &Mutex<Vec<String>>,
    answer: &(dyn Fn(&str, &[String]) -> Answer + Send + Sync),
) {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).unwrap();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim().to_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink()).unwrap();
    let request = first.rsplit_once(' ').unwrap_or_default().0.to_owned();
    let answer = {
        let mut seen = seen.lock().unwrap();
        let answer = answer(&request, seen.as_slice());
        seen.push(request);
        answer
    };
    match answer {
        Answer::Text(status, headers, text) => {
            let length = text.len();
            let head = format!(
                "HTTP/1.1 {status}\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all((head + &text).as_bytes());
        }
        Answer::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
            // Until nobody reads any more.
            while stream.write_all(&[b' '; 64 * 1024]).is_ok() {}
        }
    }
}

fn run(team: &Team, args: &[&str], env: &[(&str, &str)]) -> Output {
    let command = cli([&["plugin"][..], args].concat()).workspace(&team.workspace);
    let set = |command: conjure_kit::Cli, (name, value): &(&str, &str)| command.env(*name, *value);
    env.iter().fold(command, set).run().unwrap()
}

#[test]
fn an_answer_without_end_is_not_read_to_its_end() {
    let team = Team::new();
    for part in ["/manifests/", "/tags/list"] {
        let registry = FakeRegistry::start(move |request, _| match request {
            "GET /v2/" => text("200 OK", "{}"),
            request if request.contains(part) => Answer::Endless,
            _ => text("404 Not Found", "{}"),
        });
        let refused = team.run(["install", &registry.place("0.1.0")]);
        assert_eq!(refused.code, Some(2), "{part}: {}", refused.snapshot());
        let why = "it has more than 4194304 bytes";
        assert!(refused.stdout.contains(why), "{part}: {}", refused.stdout);
    }
}

#[test]
fn a_password_is_not_sent_to_where_others_can_read_it() {
    let team = Team::new();
    let registry = FakeRegistry::start(|_, _| {
        let wanted = "WWW-Authenticate: Bearer realm=\"http://auth.example/token\"\r\n";
        Answer::Text("401 Unauthorized", wanted.to_owned(), String::new())
    });
    let docker = team.workspace.home().join(".docker");
    std::fs::create_dir_all(&docker).unwrap();
    // `ada:open sesame`
    let config = serde_json::json!({
        "auths": { (registry.address.as_str()): { "auth": "YWRhOm9wZW4gc2VzYW1l" } },
    });
    std::fs::write(docker.join("config.json"), config.to_string()).unwrap();
    let refused = team.run(["install", &registry.place("0.1.0")]);
    assert_eq!(refused.code, Some(2), "{}", refused.snapshot());
    let why = "\"http://auth.example/token\", where others can read the password";
    assert!(refused.stdout.contains(why), "{}", refused.stdout);
    assert_eq!(registry.seen(), ["GET /v2/"]);
}

#[test]
fn a_registry_and_an_index_on_this_machine_are_asked_by_no_proxy() {
    let team = Team::new();
    let proxy = FakeRegistry::start(|_, _| text("502 Bad Gateway", ""));
    let registry = FakeRegistry::start(|request, _| match request {
        "GET /v2/" => text("200 OK", "{}"),
        _ => text("404 Not Found", "{}"),
    });
    let by = format!("http://{}", proxy.address);
    let env = [
        ("http_proxy", by.as_str()),
        ("no_proxy", ""),
        ("NO_PROXY", ""),
    ];
    let missing = run(&team, &["install", &registry.place("0.1.0")], &env);
    let why = "has nothing of this name";
    assert!(missing.stdout.contains(why), "{}", missing.snapshot());
    let index = format!("http://{}", registry.address);
    run(&team, &["search", "--index", &index], &env);
    assert!(registry.seen().contains(&"GET /index.jsonl".to_owned()));
    assert_eq!(proxy.seen(), [""; 0]);
}

#[test]
fn whoever_publishes_is_told_that_another_package_came_at_the_same_time() {
    let team = Team::new();
    let publisher = Publisher::new();
    let package = publisher.package("0.1.0").display().to_string();
    let other = manifest_of(&"0".repeat(64));
    let registry = publishing(None, move |verb, before| {
        match (verb, before.iter().any(|it| is_put(it))) {
            ("PUT", _) => text("201 Created", ""),
            (_, true) => text("200 OK", &other),
            (_, false) => text("404 Not Found", "{}"),
        }
    });
    let told = team.run(["publish", &package, &registry.place("0.1.0")]);
    assert_eq!(told.code, Some(2), "{}", told.snapshot());
    assert!(told.stderr.contains("another package"), "{}", told.stderr);
}

/// A registry that publishes; `manifest` is what it answers about a manifest, which it is asked for or
/// gets, with the requests before that. With `login` it wants a token.
fn publishing(
    login: Option<&FakeRegistry>,
    manifest: impl Fn(&str, &[String]) -> Answer + Send + Sync + 'static,
) -> FakeRegistry {
    let wanted = login.map(|login| {
        let realm = format!("http://{}/token", login.address);
        format!("WWW-Authenticate: Bearer realm=\"{realm}\"\r\n")
    });
    FakeRegistry::start(move |request, before| match request.split_once(' ') {
        Some(("GET", "/v2/")) => match &wanted {
            Some(wanted) => Answer::Text("401 Unauthorized", wanted.clone(), String::new()),
            None => text("200 OK", "{}"),
        },
        Some((verb, path)) if path.contains("/manifests/") => manifest(verb, before),
        Some(("POST", _)) => {
            let place = "Location: /v2/plugins/toucher/blobs/uploads/1\r\n".to_owned();
            Answer::Text("202 Accepted", place, String::new())
        }
        Some(("PUT", _)) => text("201 Created", ""),
        _ => text("404 Not Found", "{}"),
    })
}

fn is_put(request: &str) -> bool {
    request.starts_with("PUT ") && request.contains("/manifests/")
}

/// A manifest of a package with this digest.
fn manifest_of(digest: &str) -> String {
    let layer = serde_json::json!({
        "mediaType": "application/vnd.conjure.plugin.v1+zip",
        "digest": format!("sha256:{digest}"),
        "size": 1,
    });
    serde_json::json!({ "schemaVersion": 2, "layers": [layer] }).to_string()
}

#[test]
fn whoever_publishes_looks_again_when_somebody_else_may_have() {
    let team = Team::new();
    let publisher = Publisher::new();
    let package = publisher.package("0.1.0");
    let own = conjure_packages::Package::open(&package).unwrap();
    let own = manifest_of(&own.sha256().to_string());
    let other = manifest_of(&"0".repeat(64));
    let registry = publishing(None, move |verb, before| {
        let put = before.iter().position(|it| is_put(it));
        let since = put.map(|put| before.len() - put - 1);
        match (verb, since) {
            ("PUT", _) => text("201 Created", ""),
            (_, None) => text("404 Not Found", "{}"),
            // Theirs comes behind the first look.
            (_, Some(0)) => text("200 OK", &own),
            (_, Some(_)) => text("200 OK", &other),
        }
    });
    let package = package.display().to_string();
    let told = team.run(["publish", &package, &registry.place("0.1.0")]);
    assert_eq!(told.code, Some(2), "{}", told.snapshot());
    assert!(told.stderr.contains("another package"), "{}", told.stderr);
}

#[test]
fn a_registry_that_takes_only_what_is_new_says_that_another_one_was_first() {
    let team = Team::new();
    let publisher = Publisher::new();
    let package = publisher.package("0.1.0").display().to_string();
    let other = manifest_of(&"0".repeat(64));
    let registry = publishing(None, move |verb, before| {
        match (verb, before.iter().any(|it| is_put(it))) {
            ("PUT", _) => text("412 Precondition Failed", "{}"),
            (_, false) => text("404 Not Found", "{}"),
            (_, true) => text("200 OK", &other),
        }
    });
    let told = team.run(["publish", &package, &registry.place("0.1.0")]);
    assert_eq!(told.code, Some(2), "{}", told.snapshot());
    assert!(told.stderr.contains("another package"), "{}", told.stderr);
}

#[test]
fn a_token_whose_time_is_over_is_asked_for_again() {
    let team = Team::new();
    let login = FakeRegistry::start(|_, _| text("200 OK", "{\"token\": \"t\"}"));
    let registry = publishing(Some(&login), |_, before| {
        match before.iter().any(|it| it.contains("/manifests/")) {
            false => text("401 Unauthorized", "{}"),
            true => text("404 Not Found", "{}"),
        }
    });
    let missing = team.run(["install", &registry.place("0.1.0")]);
    let why = "has nothing of this name";
    assert!(missing.stdout.contains(why), "{}", missing.snapshot());
}

#[test]
fn a_login_that_is_not_taken_does_not_say_that_nothing_is_there() {
    let team = Team::new();
    let publisher = Publisher::new();
    let package = publisher.package("0.1.0").display().to_string();
    let login = FakeRegistry::start(|_, _| text("200 OK", "{\"token\": \"t\"}"));
    let registry = publishing(Some(&login), |verb, _| match verb {
        "PUT" => text("201 Created", ""),
        _ => text("401 Unauthorized", "{}"),
    });
    let told = team.run(["publish", &package, &registry.place("0.1.0")]);
    assert_eq!(told.code, Some(2), "{}", told.snapshot());
    assert!(told.stderr.contains("401"), "{}", told.stderr);
    assert!(!registry.seen().iter().any(|it| is_put(it)));
}

#[test]
fn whom_a_registry_on_this_machine_leads_elsewhere_goes_by_the_proxy() {
    let team = Team::new();
    let proxy = FakeRegistry::start(|_, _| text("502 Bad Gateway", ""));
    let registry = FakeRegistry::start(|_, _| {
        let wanted = "WWW-Authenticate: Bearer realm=\"https://auth.example/token\"\r\n";
        Answer::Text("401 Unauthorized", wanted.to_owned(), String::new())
    });
    let by = format!("http://{}", proxy.address);
    let env = [
        ("http_proxy", by.as_str()),
        ("https_proxy", by.as_str()),
        ("no_proxy", ""),
        ("NO_PROXY", ""),
    ];
    let refused = run(&team, &["install", &registry.place("0.1.0")], &env);
    assert_eq!(refused.code, Some(2), "{}", refused.snapshot());
    assert_eq!(registry.seen(), ["GET /v2/"]);
    assert_eq!(proxy.seen(), ["CONNECT auth.example:443"]);
}
