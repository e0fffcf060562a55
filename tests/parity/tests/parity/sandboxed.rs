//! Commands of a session with `sandbox`: what they may still do, and a row for each thing that they may
//! not. Where it can be shown, the same command works without the sandbox.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use conjure_core::chat::Event;
use conjure_host::session::{BackendSpec, SandboxMode, SandboxSpec, Session, SessionSpec};
use conjure_kit::Model;
use conjure_mock_llm::Message;
use conjure_skill_sdk::protocol::{
    Bash, BashOutput, CreateFile, StrReplace, View, Viewed, Written,
};
use conjure_skill_sdk::{Blocking, BlockingExecutor, Cx, Error, Result};
use serde_json::{Value, json};

use crate::stage::{LOCAL, Stage, bash, conjure, in_time, local, result, system, workspace};

/// What nobody is to find.
const SECRET: &str = "the-words-that-nobody-sees";

pub(crate) fn sandbox() -> SandboxSpec {
    SandboxSpec::of(SandboxMode::WorkingDir)
}

pub(crate) async fn session(stage: &Stage, sandbox: SandboxSpec) -> Session {
    let spec = SessionSpec {
        sandbox,
        ..stage.spec([local()])
    };
    stage.open(spec).await
}

/// A directory beside the session's, with a file.
fn elsewhere(stage: &Stage) -> PathBuf {
    let dir = stage.workspace.root().join("elsewhere");
    fs::create_dir_all(dir.join("empty")).unwrap();
    fs::write(dir.join("file"), "as it was").unwrap();
    dir.canonicalize().unwrap()
}

pub(crate) async fn refused(stage: &Stage, session: &Session, command: &str) -> String {
    let seen = stage.bash(session, command).await;
    assert!(seen.is_error, "{command}: {seen:?}");
    seen.text
}

pub(crate) async fn works(stage: &Stage, session: &Session, command: &str) -> String {
    let seen = stage.bash(session, command).await;
    assert!(!seen.is_error, "{command}: {seen:?}");
    seen.text
}

#[tokio::test]
async fn a_command_in_a_sandbox_works_in_its_directory_and_reads_elsewhere() {
    let stage = Stage::new(&[LOCAL]).await;
    let dir = elsewhere(&stage);
    let session = session(&stage, sandbox()).await;
    let read = format!("cat {}/file", dir.display());
    for (command, word) in [
        ("echo made >new && cat new", "made"),
        ("mkdir -p a/b && mv new a/b/moved && cat a/b/moved", "made"),
        (
            "cp a/b/moved copy && ln copy hard && ln -s copy soft && cat soft",
            "made",
        ),
        (
            "chmod +x copy && touch -d 2001-01-01 copy && ls -l copy",
            "rwx",
        ),
        ("echo x >/dev/null; cat /dev/zero | head -c 1 | wc -c", "1"),
        ("f=$(mktemp) && echo tmp >\"$f\" && cat \"$f\"", "tmp"),
        ("cat <<'END'\nheredoc\nEND", "heredoc"),
        ("(sleep 5 & kill $! && echo killed)", "killed"),
        (
            "cat /etc/hostname /etc/passwd | head -1 >/dev/null && echo read",
            "read",
        ),
        ("ls /usr/bin | head -1 >/dev/null && echo listed", "listed"),
        ("rm -r a copy hard soft && ls | wc -l", "0"),
        (read.as_str(), "as it was"),
    ] {
        let said = works(&stage, &session, command).await;
        assert!(said.contains(word), "{command}: {said}");
    }
    session.close().await;
}

#[tokio::test]
async fn a_command_in_a_sandbox_changes_nothing_elsewhere() {
    let stage = Stage::new(&[LOCAL]).await;
    let rows = [
        "echo x >{d}/new",
        "echo x >>{d}/file",
        ": >{d}/file",
        "truncate -s 0 {d}/file",
        "rm {d}/file",
        "mkdir {d}/made",
        "rmdir {d}/empty",
        "mv {d}/file .",
        "mv {d}/file {d}/moved",
        "ln {d}/file {d}/linked",
        "ln -s file {d}/soft",
        "mkfifo {d}/pipe",
        "chmod 777 {d}/file",
        "chmod 700 {d}",
        "touch -d 2001-01-01 {d}/file",
        "ln -s {d}/file link && echo x >link",
        "ln -s {d} dir && echo x >dir/new",
        "cd {d} && echo x >file",
        "echo x >/proc/self/root{d}/file",
        "sh -c 'setsid sh -c \"echo x >{d}/file\"'",
        "sed -i s/as/AS/ {d}/file",
        "cp /etc/hostname {d}/file",
        "dd if=/dev/zero of={d}/file count=1",
        "find {d} -name file -delete",
        "python3 -c \"open('{d}/file','w')\"",
    ];
    for row in rows {
        let dir = elsewhere(&stage);
        fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o644)).unwrap();
        let before = state(&dir);
        let session = session(&stage, sandbox()).await;
        let command = row.replace("{d}", dir.to_str().unwrap());
        refused(&stage, &session, &command).await;
        session.close().await;
        assert_eq!(state(&dir), before, "{row}");
        for left in fs::read_dir(stage.workspace.work()).unwrap().flatten() {
            fs::remove_file(left.path()).unwrap();
        }
        let open = self::session(&stage, SandboxSpec::of(SandboxMode::None)).await;
        works(&stage, &open, &command).await;
        open.close().await;
        assert_ne!(
            state(&dir),
            before,
            "`{row}` shows nothing: it changes nothing without a sandbox"
        );
        fs::remove_dir_all(&dir).unwrap();
        fs::remove_dir_all(stage.workspace.work()).unwrap();
        fs::create_dir(stage.workspace.work()).unwrap();
    }
    let session = session(&stage, sandbox()).await;
    for place in ["/tmp", "/var/tmp", "/etc", "/usr", "/", "/dev", "~"] {
        refused(
            &stage,
            &session,
            &format!("echo x >{place}/conjure-sandbox-test"),
        )
        .await;
    }
    session.close().await;
}

/// What a directory and what is in it is like: names, kinds, modes, times and bytes.
fn state(dir: &Path) -> String {
    let mut found: Vec<_> = fs::read_dir(dir).unwrap().flatten().collect();
    found.sort_by_key(std::fs::DirEntry::file_name);
    let paths = found.iter().map(fs::DirEntry::path);
    let described = paths.chain([dir.to_owned()]).map(|path| {
        let known = path.symlink_metadata().unwrap();
        let bytes = known.is_file().then(|| fs::read(&path).unwrap());
        let mode = known.permissions().mode();
        format!(
            "{path:?} {mode:o} {:?} {bytes:?}\n",
            known.modified().unwrap()
        )
    });
    described.collect()
}

#[tokio::test]
async fn a_command_in_a_sandbox_has_no_network_and_no_sockets_of_this_machine() {
    let stage = Stage::new(&[LOCAL]).await;
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let path = stage.workspace.root().join("engine.sock");
    let _engine = UnixListener::bind(&path).unwrap();
    let python = |code: String| format!("python3 -c \"import socket as s; {code}\"");
    let connect = python(format!("s.create_connection(('127.0.0.1', {port}))"));
    let rows = [
        connect.clone(),
        format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}'"),
        python("s.socket(s.AF_INET, s.SOCK_DGRAM).bind(('127.0.0.1', 0))".to_owned()),
        python("s.socket(s.AF_INET6, s.SOCK_STREAM).bind(('::', 0))".to_owned()),
        python(format!("s.socket(s.AF_UNIX).connect('{}')", path.display())),
    ];
    let closed = session(&stage, sandbox()).await;
    let free = session(&stage, SandboxSpec::of(SandboxMode::None)).await;
    for row in &rows {
        let said = refused(&stage, &closed, row).await;
        assert!(said.contains("have no network"), "{row}: {said}");
        if !row.contains("INET6") {
            works(&stage, &free, row).await;
        }
    }
    let networked = session(
        &stage,
        SandboxSpec {
            network: true,
            ..sandbox()
        },
    )
    .await;
    works(&stage, &networked, &connect).await;
    refused(&stage, &networked, &rows[4]).await;
    for session in [closed, free, networked] {
        session.close().await;
    }
}

#[tokio::test]
async fn what_a_session_grants_by_name_is_granted_and_no_more() {
    let stage = Stage::new(&[LOCAL]).await;
    let dir = elsewhere(&stage);
    let granted = dir.join("granted");
    fs::create_dir(&granted).unwrap();
    let spec = SandboxSpec {
        write: vec![granted.clone()],
        ..sandbox()
    };
    let session = session(&stage, spec).await;
    let file = granted.join("new").display().to_string();
    works(
        &stage,
        &session,
        &format!("echo x >{file} && chmod 600 {file}"),
    )
    .await;
    let said = refused(&stage, &session, &format!("echo x >{}/new", dir.display())).await;
    // The model reads where it may write, and that no other way helps.
    for part in [
        granted.to_str().unwrap(),
        "$TMPDIR",
        "another way will not work",
        "`sandbox` in the session's settings",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // What fails for another reason is not put down to it.
    let said = refused(&stage, &session, "cat nowhere").await;
    assert!(!said.contains("sandbox"), "{said}");
    session.close().await;
    let spec = SessionSpec {
        sandbox: SandboxSpec {
            write: vec![dir.join("missing")],
            ..sandbox()
        },
        ..stage.spec([local()])
    };
    let error = stage.host.session(spec).await.err().expect("it is refused");
    let said = error.to_string();
    assert!(
        said.contains("missing") && said.contains("make it, or leave it out"),
        "{said}"
    );
}

#[tokio::test]
async fn the_hosts_data_are_not_there_in_a_sandbox() {
    let stage = Stage::new(&[LOCAL]).await;
    let key = stage.workspace.root().join("data/vault.key");
    fs::write(&key, SECRET).unwrap();
    let session = session(&stage, sandbox()).await;
    refused(&stage, &session, &format!("cat {}", key.display())).await;
    let other = stage.open(SessionSpec {
        working_dir: None,
        ..stage.spec([local()])
    });
    let other = other.await;
    let path = works(&stage, &other, &format!("echo {SECRET} >own && pwd -P")).await;
    let path = path.trim();
    let seen = stage.bash(&session, &format!("cat {path}/own")).await;
    assert!(seen.is_error && !seen.text.contains(SECRET), "{seen:?}");
    other.close().await;
    session.close().await;
}

#[test]
fn keys_of_the_user_are_not_there_in_a_sandbox() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    let keys = [
        ".ssh/id_ed25519",
        ".gnupg/private-keys-v1.d/key",
        ".aws/credentials",
        ".kube/config",
        ".config/gh/hosts.yml",
        ".netrc",
        ".bash_history",
    ];
    for name in keys.iter().chain(&["plain"]) {
        let path = workspace.home().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{SECRET} of {name}")).unwrap();
    }
    let command = format!("cd && cat plain; cat {}", keys.join(" "));
    for (sandbox, seen) in [
        ("\"working-dir\"", vec!["plain"]),
        ("{ read = [\"~/.aws\"] }", vec!["plain", ".aws/credentials"]),
        ("\"none\"", ["plain"].into_iter().chain(keys).collect()),
    ] {
        let file = format!(
            "provider = \"anthropic\"\nmodel = \"m\"\nsandbox = {sandbox}\n\n[[backend]]\n\
             kind = \"local\"\nskills = []\n\n[policy]\nallow = [\"*\"]\n"
        );
        workspace.write("session.toml", file).unwrap();
        model.calls("toolu_1", "local_bash_tool", bash(&command));
        model.says(Message::new().text("Done."));
        let output = conjure(&workspace, ["run", "--config", "session.toml", "Look."])
            .model(&model)
            .run()
            .unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        let said = result(&model.last_request(), "toolu_1").text;
        for name in ["plain"].iter().chain(&keys) {
            let is_seen = said.contains(&format!("{SECRET} of {name}"));
            assert_eq!(is_seen, seen.contains(name), "{sandbox}: {name}: {said}");
        }
    }
}

#[test]
fn file_tools_keep_to_the_sandbox_in_a_home_directory() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    let [keys, plain] = [".ssh/id_ed25519", "plain"].map(|name| workspace.home().join(name));
    fs::create_dir_all(keys.parent().unwrap()).unwrap();
    for file in [&keys, &plain] {
        fs::write(file, SECRET).unwrap();
    }
    let home = workspace.home().display().to_string();
    let usual = [
        "run",
        "--provider",
        "anthropic",
        "--model",
        "m",
        "--allow",
        "*",
        "--working-dir",
        &home,
    ];
    let run = |more: &[&str], tool: &str, arguments: Value| {
        model.calls("toolu_1", tool, arguments);
        model.says(Message::new().text("Done."));
        let output = conjure_kit::cli([&usual, more, &["Look."]].concat())
            .workspace(&workspace)
            .model(&model)
            .run()
            .unwrap();
        assert_eq!(output.code, Some(0), "{output:?}");
        result(&model.last_request(), "toolu_1")
    };
    let view = |path: &str| json!({ "path": path });
    let write = || json!({ "path": ".ssh/authorized_keys", "file_text": "x" });
    assert!(run(&[], "local_view", view("plain")).text.contains(SECRET));
    let refused = run(&[], "local_view", view(".ssh/id_ed25519"));
    assert!(
        refused.is_error && !refused.text.contains(SECRET),
        "{refused:?}"
    );
    let refused = run(&[], "local_create_file", write());
    assert!(refused.is_error, "{refused:?}");
    assert!(!workspace.home().join(".ssh/authorized_keys").exists());
    for more in [["--allow-read", "~/.ssh"], ["--sandbox", "none"]] {
        let seen = run(&more, "local_view", view(".ssh/id_ed25519"));
        assert!(seen.text.contains(SECRET), "{more:?}: {seen:?}");
    }
}

#[test]
fn a_directory_with_keys_in_it_is_not_moved_to_where_they_are_seen() {
    let workspace = workspace(&[LOCAL]);
    let model = Model::start().unwrap();
    let home = workspace.home();
    fs::create_dir_all(home.join(".config/gh")).unwrap();
    fs::write(home.join(".config/gh/hosts.yml"), SECRET).unwrap();
    fs::write(home.join(".config/plain"), "plain").unwrap();
    let file = format!(
        "provider = \"anthropic\"\nmodel = \"m\"\nworking_dir = {home:?}\nsandbox = \"working-dir\"\n\n\
         [[backend]]\nkind = \"local\"\nskills = []\n\n[policy]\nallow = [\"*\"]\n"
    );
    workspace.write("session.toml", file).unwrap();
    let commands = [
        "mv .config c; mv .local d",
        "cat c/gh/hosts.yml d/share/conjure/vault.key; mv .config/plain moved && cat moved",
    ];
    for (number, command) in commands.into_iter().enumerate() {
        model.calls(&format!("toolu_{number}"), "local_bash_tool", bash(command));
    }
    model.says(Message::new().text("Done."));
    let output = conjure(&workspace, ["run", "--config", "session.toml", "Look."])
        .model(&model)
        .run()
        .unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    let said = [0, 1].map(|number| result(&model.last_request(), &format!("toolu_{number}")).text);
    assert_eq!(said[0].matches("cannot move").count(), 2, "{said:?}");
    assert_eq!(said[1].matches("No such file").count(), 2, "{said:?}");
    // What is not hidden is moved as ever.
    assert!(said[1].contains("plain"), "{said:?}");
}

#[tokio::test]
async fn a_command_in_a_sandbox_has_memory_to_share_and_terminals_of_its_own() {
    let stage = Stage::new(&[LOCAL]).await;
    let session = session(&stage, sandbox()).await;
    let name = format!("conjure-{}", std::process::id());
    let shared = format!("echo x >/dev/shm/{name} && ls /dev/shm | wc -l");
    assert_eq!(works(&stage, &session, &shared).await.trim(), "1");
    // It is gone with its command, and was never where others have theirs.
    refused(&stage, &session, &format!("cat /dev/shm/{name}")).await;
    assert!(!Path::new("/dev/shm").join(&name).exists());
    let pool = "python3 -c \"import multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))\"";
    assert!(works(&stage, &session, pool).await.contains("[1, 2]"));
    let terminal = "python3 -c \"import pty; pty.spawn(['sh', '-c', 'tty; echo seen >/dev/tty'])\"";
    let said = works(&stage, &session, terminal).await;
    assert!(
        said.contains("/dev/pts/0") && said.contains("seen"),
        "{said}"
    );
    let of_others = works(&stage, &session, "ls /dev/pts").await;
    assert_eq!(of_others.trim(), "ptmx");
    session.close().await;
}

#[tokio::test]
async fn a_link_in_the_place_of_what_is_granted_gets_nothing() {
    let stage = Stage::new(&[LOCAL]).await;
    let dir = elsewhere(&stage);
    let build = stage.workspace.work().join("build");
    fs::create_dir(&build).unwrap();
    let inner = dir.join("granted/inner");
    fs::create_dir_all(&inner).unwrap();
    let spec = SandboxSpec {
        write: vec![build, dir.join("granted"), inner],
        ..sandbox()
    };
    let session = session(&stage, spec).await;
    fs::create_dir(dir.join("target")).unwrap();
    fs::write(dir.join("target/file"), "as it was").unwrap();
    let target = dir.join("target");
    let before = state(&target);
    let target_name = target.display();
    let granted = dir.join("granted").display().to_string();
    for (place, link) in [
        (".", "build".to_owned()),
        (granted.as_str(), format!("{granted}/inner")),
    ] {
        let name = Path::new(&link).file_name().unwrap().to_str().unwrap();
        let replace = format!("cd {place} && mv {name} before && ln -s {target_name} {name}");
        works(&stage, &session, &replace).await;
        for row in [
            "echo x >{l}/new",
            "echo x >>{l}/file",
            "rm {l}/file",
            "chmod 777 {l}/file",
            "touch -d 2001-01-01 {l}/file",
        ] {
            refused(&stage, &session, &row.replace("{l}", &link)).await;
            assert_eq!(state(&target), before, "{row}");
        }
        let same = format!("cd {place} && rm {name} && mv before {name} && echo x >{name}/new");
        works(&stage, &session, &same).await;
    }
    session.close().await;
}

#[tokio::test]
async fn a_command_in_a_sandbox_sets_no_limits_of_other_processes() {
    let stage = Stage::new(&[LOCAL]).await;
    let limit = |process: &str| {
        format!(
            "sleep 5 & python3 -c \"import resource as r; r.prlimit({process}, r.RLIMIT_CORE, (0, 0))\""
        )
    };
    let closed = session(&stage, sandbox()).await;
    let free = session(&stage, SandboxSpec::of(SandboxMode::None)).await;
    refused(&stage, &closed, &limit("$!")).await;
    works(&stage, &free, &limit("$!")).await;
    works(&stage, &closed, &limit("0")).await;
    works(&stage, &closed, "ulimit -c 0").await;
    for session in [closed, free] {
        session.close().await;
    }
}

/// An executor that knows of no sandbox.
struct Careless;

impl BlockingExecutor for Careless {
    fn bash(&self, _cx: &Cx, _request: Bash) -> Result<BashOutput> {
        Ok(BashOutput {
            exit_code: Some(0),
            ..BashOutput::default()
        })
    }

    fn view(&self, _cx: &Cx, _request: View) -> Result<Viewed> {
        Err(Error::new("there are no files"))
    }

    fn create_file(&self, _cx: &Cx, _request: CreateFile) -> Result<Written> {
        Err(Error::new("there are no files"))
    }

    fn str_replace(&self, _cx: &Cx, _request: StrReplace) -> Result<Written> {
        Err(Error::new("there are no files"))
    }
}

#[tokio::test]
async fn an_executor_that_keeps_to_no_sandbox_is_told_of() {
    let stage = Stage::with(&[LOCAL], |builder| {
        builder.executor("careless", |_setup| Ok(Blocking::new(Careless)))
    })
    .await;
    for (setting, told) in [(sandbox(), 1), (SandboxSpec::of(SandboxMode::None), 0)] {
        let careless = BackendSpec::executor("careless", [] as [&str; 0]);
        let spec = SessionSpec {
            sandbox: setting,
            ..stage.spec([local(), careless])
        };
        let session = stage.open(spec).await;
        for _ in 0..2 {
            let seen = stage.call(&session, "careless_bash_tool", bash("true"));
            assert!(!seen.await.is_error);
        }
        let mut events = session.events_since_opened();
        let mut turns = 0;
        let mut notices = Vec::new();
        while turns < 2 {
            match &in_time(events.next()).await.event {
                Event::Notice { text } if text.contains("sandbox") => notices.push(text.clone()),
                Event::Done { .. } => turns += 1,
                _ => {}
            }
        }
        let expected = "careless: its commands are not in the sandbox of this session";
        let as_expected = notices.iter().filter(|text| text.starts_with(expected));
        assert_eq!(
            (as_expected.count(), notices.len()),
            (told, told),
            "{notices:?}"
        );
        session.close().await;
    }
}

#[tokio::test]
async fn the_model_is_told_of_the_sandbox_before_it_runs_into_it() {
    let stage = Stage::new(&[LOCAL]).await;
    let work = stage.workspace.work().canonicalize().unwrap();
    for (setting, told) in [
        (sandbox(), true),
        (SandboxSpec::of(SandboxMode::None), false),
    ] {
        let session = session(&stage, setting).await;
        works(&stage, &session, "true").await;
        let system = system(&stage.model.last_request());
        let note = format!(
            "Commands of local_bash_tool run in a sandbox: they write only in {} and $TMPDIR and have no network.",
            work.display()
        );
        assert_eq!(system.contains(&note), told, "{system}");
        session.close().await;
    }
}
