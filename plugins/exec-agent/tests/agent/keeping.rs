//! Files: viewing, writing, replacing, and carrying them in and out.

use std::fs;
use std::os::unix::fs::symlink;

use conjure_exec_agent::error::{AgentError, AgentErrorKind};
use conjure_exec_agent::files::{RootKind, file_state};
use conjure_exec_agent::frame::AgentFrame;
use conjure_exec_agent::message::{AgentReply, AgentRequest};

use crate::client::Agent;

fn view(agent: &mut Agent, path: &str) -> Result<String, AgentError> {
    match agent.ask(&AgentRequest::View {
        path: path.into(),
        range: None,
    })? {
        AgentReply::View { content, .. } => Ok(content),
        other => panic!("{other:?}"),
    }
}

fn get(agent: &mut Agent, path: &str) -> (Result<AgentReply, AgentError>, Vec<u8>) {
    let call = agent.begin(&AgentRequest::Get { path: path.into() });
    agent.answer(call)
}

#[test]
fn p6_files_are_written_shown_and_changed() {
    let mut agent = Agent::new();
    let made = agent.create("deep/a.txt", b"one\ntwo\n").unwrap();
    let AgentReply::Written {
        path,
        kind,
        size,
        replaced,
        state,
    } = made
    else {
        panic!("{made:?}");
    };
    assert_eq!(path, agent.work("deep/a.txt").to_str().unwrap());
    assert_eq!(Some(state), file_state(path.as_ref()));
    assert_eq!((kind, size, replaced), (RootKind::Working, 8, false));
    assert_eq!(
        view(&mut agent, "deep/a.txt").unwrap(),
        "     1\tone\n     2\ttwo\n"
    );
    assert_eq!(view(&mut agent, ".").unwrap(), "deep/\ndeep/a.txt\n");
    let replace = |old: &str| AgentRequest::Replace {
        path: "deep/a.txt".into(),
        old: old.into(),
        new: "2".into(),
    };
    assert!(agent.ask(&replace("two")).is_ok());
    assert_eq!(fs::read(agent.work("deep/a.txt")).unwrap(), b"one\n2\n");
    assert!(
        agent
            .ask(&replace("three"))
            .unwrap_err()
            .message()
            .contains("0 times")
    );
}

#[test]
fn b9_nothing_outside_is_touched_and_skills_are_only_read() {
    let mut agent = Agent::new();
    symlink(agent.path("elsewhere"), agent.work("out")).unwrap();
    let skill = agent.path("skills/analyzer/SKILL.md").display().to_string();
    assert_eq!(view(&mut agent, &skill).unwrap(), "     1\ta skill\n");
    for path in ["out/secret", "/etc/passwd", "../elsewhere/secret"] {
        assert!(view(&mut agent, path).is_err(), "{path}");
        assert!(agent.create(path, b"x").is_err(), "{path}");
        assert!(get(&mut agent, path).0.is_err(), "{path}");
    }
    assert!(
        agent
            .create(&skill, b"x")
            .unwrap_err()
            .message()
            .contains("read only")
    );
    assert_eq!(fs::read(agent.path("elsewhere/secret")).unwrap(), b"s");
}

#[test]
fn a_large_file_goes_in_and_out() {
    let mut agent = Agent::new();
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n * 7 % 251) as u8).collect();
    agent.create("large", &bytes).unwrap();
    assert!(fs::read(agent.work("large")).unwrap() == bytes);
    let (reply, data) = get(&mut agent, "large");
    assert_eq!(reply, Ok(AgentReply::Sent(3_000_000)));
    assert!(data == bytes);
}

#[test]
fn b23_a_file_that_comes_in_never_takes_anothers_name_or_place() {
    let mut agent = Agent::new();
    let put = |name: &str| AgentRequest::Put { name: name.into() };
    let contents: [(&[u8], &str); 6] = [
        (b"x", "a.txt"),
        (b"y", "a-2.txt"),
        (b"z", "a-3.txt"),
        // What is there already with that very content is not written again.
        (b"x", "a.txt"),
        (b"z", "a-3.txt"),
        (b"xx", "a-4.txt"),
    ];
    for (content, expected) in contents {
        let made = agent.fill(&put("a.txt"), content).unwrap();
        let AgentReply::Written { path, .. } = made else {
            panic!("{made:?}");
        };
        assert_eq!(path, agent.work(expected).to_str().unwrap());
        assert_eq!(fs::read(path).unwrap(), content);
    }
    assert_eq!(fs::read_dir(agent.work("")).unwrap().count(), 4);
    for name in ["../a", "/a", "..", ".", ""] {
        let error = agent.fill(&put(name), b"x").unwrap_err();
        assert_eq!(error.kind(), AgentErrorKind::Invalid, "{name}");
    }
}

#[test]
fn b23_of_two_files_that_come_in_at_once_none_replaces_the_other() {
    let mut agent = Agent::new();
    let put = AgentRequest::Put { name: "a".into() };
    let calls = [agent.begin(&put), agent.begin(&put)];
    for (call, content) in calls.into_iter().zip([b"x", b"y"]) {
        agent.send(call, &AgentFrame::Data(content.to_vec()));
    }
    // The first is not there before the second has its name.
    let mut read = Vec::new();
    for call in calls.into_iter().rev() {
        agent.send(call, &AgentFrame::End);
        let Ok(AgentReply::Written { path, .. }) = agent.answer(call).0 else {
            panic!("it was not written");
        };
        read.push(fs::read_to_string(path).unwrap());
    }
    assert_eq!(read, ["y", "x"]);
    assert_eq!(fs::read_dir(agent.work("")).unwrap().count(), 2);
}

#[test]
fn a_cancelled_file_leaves_nothing() {
    let mut agent = Agent::new();
    let call = agent.begin(&AgentRequest::Create {
        path: "half".into(),
    });
    agent.send(call, &AgentFrame::Data(b"half".to_vec()));
    assert_eq!(agent.frame(call), AgentFrame::Credit(4));
    agent.send(call, &AgentFrame::Cancel);
    assert_eq!(
        agent.answer(call).0.unwrap_err().kind(),
        AgentErrorKind::Cancelled
    );
    assert_eq!(fs::read_dir(agent.work("")).unwrap().count(), 0);
}

#[test]
fn what_is_no_request_is_a_fault_and_the_agent_goes_on() {
    let mut agent = Agent::new();
    agent.send(77, &AgentFrame::Call(b"\xee".to_vec()));
    assert_eq!(
        agent.answer(77).0.unwrap_err().kind(),
        AgentErrorKind::Invalid
    );
    assert_eq!(agent.bash("echo still here").out(), "still here\n");
}
