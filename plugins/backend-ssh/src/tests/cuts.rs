//! A network that is cut: no call is lost, no output is lost or comes twice, nothing runs twice.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use conjure_skill_sdk::abi::code;
use conjure_skill_sdk::protocol::BashOutput;
use serde_json::json;

use super::{World, notices, until, world};

/// Says a line every few milliseconds, and once in a file that it began.
const COUNTS: &str = "echo begun >>runs; i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; \
                      sleep 0.01; done";

fn counted() -> String {
    (1..=400).map(|number| format!("line {number}\n")).collect()
}

/// Cuts the network in the middle of a command that goes on for longer than the cut.
fn cut_in_the_middle(world: &World, cut: impl Fn(), lasts: Duration) {
    world.bash("true");
    let running = world.start(COUNTS);
    assert!(running.until(|seen| seen.stdout.len() > 200));
    cut();
    sleep(lasts);
    // It goes on over there meanwhile, and its output waits.
    world.network.restore();
    let outcome = running.wait();
    let ran: BashOutput = outcome.parse().unwrap();
    assert_eq!((ran.exit_code, ran.stderr.as_str()), (Some(0), ""));
    assert!(ran.stdout == counted(), "{}", ran.stdout);
    assert_eq!(String::from_utf8_lossy(&outcome.stdout), counted());
    assert_eq!(fs::read(world.work("runs")).unwrap(), b"begun\n");
    let notices = notices(&outcome);
    let tells = |text: &str| notices.iter().filter(|told| told.contains(text)).count();
    assert_eq!((tells("is lost"), tells("is back")), (1, 1), "{notices:?}");
    assert_eq!(world.bash("echo on").stdout, "on\n");
}

#[test]
fn a_connection_that_is_ended_in_the_middle_of_a_call_loses_nothing() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    cut_in_the_middle(&world, || world.network.refuse(), Duration::from_secs(1));
}

#[test]
fn a_network_that_falls_silent_in_the_middle_of_a_call_loses_nothing() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    let silent = Duration::from_secs(7);
    cut_in_the_middle(&world, || world.network.stall(), silent);
}

#[test]
fn a_cut_of_half_a_minute_loses_no_call_with_the_intervals_that_are_shipped() {
    let Some(world) = world(&json!({ "alive_ms": 5_000, "connect_timeout_ms": 10_000 })) else {
        return;
    };
    world.bash("true");
    // Some end before the cut is over, some after, one begins in it.
    let command = |seconds: u32| {
        format!("echo {seconds} >>begun; sleep {seconds}; echo {seconds} >>ended; seq 1 20000")
    };
    let before: Vec<_> = [2, 10, 40]
        .into_iter()
        .map(|seconds| world.start(&command(seconds)))
        .collect();
    until("they run", || {
        let begun = fs::read_to_string(world.work("begun")).unwrap_or_default();
        begun.lines().count() == 3
    });
    let begun = Instant::now();
    world.network.stall();
    sleep(Duration::from_secs(1));
    let within = world.start("echo within; seq 1 20000");
    sleep(Duration::from_secs(30).saturating_sub(begun.elapsed()));
    world.network.restore();
    let numbers: String = (1..=20_000).map(|number| format!("{number}\n")).collect();
    for running in before {
        let outcome = running.wait();
        assert_eq!(outcome.code(), None, "{}", outcome.text());
        assert!(String::from_utf8_lossy(&outcome.stdout) == numbers);
    }
    let outcome = within.wait();
    assert_eq!(outcome.code(), None, "{}", outcome.text());
    assert!(String::from_utf8_lossy(&outcome.stdout) == format!("within\n{numbers}"));
    assert_eq!(fs::read(world.work("ended")).unwrap(), b"2\n10\n40\n");
}

#[test]
fn ten_calls_and_a_large_file_survive_one_cut_after_another() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    let bytes: Vec<u8> = (0..20_000_000_u32).map(|n| (n % 251) as u8).collect();
    let from = world.path("exchange/in");
    fs::write(&from, &bytes).unwrap();
    let calls = world.plugin.with(|envelope| envelope.deadline_ms = 120_000);
    let put = json!({ "file": { "name": "data.bin", "path": from } });
    let put = calls.start("files.put", put);
    let commands: Vec<_> = (0..10)
        .map(|number| {
            let count =
                format!("i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo {number} $i; done");
            world.start(&format!("echo {number} >>runs; {count}; sleep 1; {count}"))
        })
        .collect();
    for _ in 0..6 {
        sleep(Duration::from_millis(250));
        world.network.refuse();
        sleep(Duration::from_millis(50));
        world.network.restore();
    }
    for (number, running) in commands.into_iter().enumerate() {
        let outcome = running.wait();
        assert_eq!(outcome.code(), None, "{}", outcome.text());
        let once: String = (1..=3_000).map(|i| format!("{number} {i}\n")).collect();
        assert!(String::from_utf8_lossy(&outcome.stdout) == format!("{once}{once}"));
    }
    put.wait().reply.unwrap();
    assert!(fs::read(world.work("data.bin")).unwrap() == bytes);
    let runs = fs::read_to_string(world.work("runs")).unwrap();
    assert_eq!(runs.lines().count(), 10, "{runs}");
}

#[test]
fn a_call_that_is_cancelled_while_the_network_is_cut_ends_at_once_and_its_command_when_it_is_back()
{
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("true");
    until("there is an agent", || {
        world.agents("serve-relayed").len() == 1
    });
    let agent = world.agents("serve-relayed");
    let running = world.start("echo $$ >pid; echo begun; exec sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    world.network.refuse();
    let begun = Instant::now();
    running.cancel();
    let outcome = running.wait();
    // The host waits for two seconds.
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    let text = outcome.text();
    assert_eq!(outcome.code(), Some(code::CANCELLED), "{text}");
    assert!(text.contains("begun"), "what it had said is lost: {text}");
    let pid = fs::read_to_string(world.work("pid")).unwrap();
    let runs = || fs::exists(format!("/proc/{}", pid.trim())).unwrap();
    assert!(runs(), "somebody ended it without having been told");
    world.network.restore();
    until("the command is gone", || !runs());
    assert_eq!(world.bash("echo on").stdout, "on\n");
    // One that starts a shell is there twice for a moment.
    until("there is one agent", || {
        world.agents("serve-relayed") == agent
    });
}

#[test]
fn a_call_whose_time_is_over_while_the_network_is_cut_says_so_and_the_session_goes_on() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("echo 1 >kept");
    world.network.refuse();
    let outcome = world.bash_within("cat kept", 1_000);
    assert!(outcome.code().is_some());
    let text = outcome.text();
    assert!(
        text.contains("was lost") && text.contains("127.0.0.1"),
        "{text}"
    );
    world.network.restore();
    assert_eq!(world.bash("cat kept").stdout, "1\n");
}

#[test]
fn after_the_limit_calls_fail_with_words_and_nothing_is_left_over_there() {
    let Some(world) = world(&json!({ "reconnect_ms": 2_000 })) else {
        return;
    };
    world.bash("true");
    let running = world.start("echo $$ >pid; echo begun; exec sleep 1000");
    assert!(running.until(|seen| seen.stdout == b"begun\n"));
    let pid = fs::read_to_string(world.work("pid")).unwrap();
    world.network.refuse();
    let outcome = running.wait();
    let text = outcome.text();
    assert!(outcome.code().is_some());
    assert!(
        text.contains("reconnect_ms") && text.contains("begun"),
        "{text}"
    );
    until("the command is gone", || {
        !fs::exists(format!("/proc/{}", pid.trim())).unwrap()
    });
    until("the directory is gone", || world.sessions().is_empty());
    world.network.restore();
    assert_eq!(world.bash("echo anew").stdout, "anew\n");
}

#[test]
fn a_call_without_an_answer_in_a_silent_cut_ends_no_other_call_of_its_session() {
    // It takes longer to find out that the connection is lost than the call has time.
    let Some(world) = world(&json!({ "alive_ms": 5_000, "connect_timeout_ms": 10_000 })) else {
        return;
    };
    world.bash("true");
    until("there is an agent", || {
        world.agents("serve-relayed").len() == 1
    });
    let agent = world.agents("serve-relayed");
    let long = world.start("echo begun; sleep 16; echo ended >>ended; echo ended");
    assert!(long.until(|seen| seen.stdout == b"begun\n"));
    world.network.stall();
    let begun = Instant::now();
    let outcome = world.bash_within("echo never >>late; sleep 2", 1_000);
    assert!(outcome.code().is_some());
    assert!(begun.elapsed() < Duration::from_secs(10), "it was not late");
    let text = outcome.text();
    assert!(
        text.contains("did not answer in time") && text.contains("Call again"),
        "{text}"
    );
    world.network.restore();
    // Before, this would have begun with a new agent, and ended the one before.
    assert_eq!(world.bash("echo on").stdout, "on\n");
    let ran: BashOutput = long.wait().parse().unwrap();
    assert_eq!(
        (ran.stdout.as_str(), ran.exit_code),
        ("begun\nended\n", Some(0))
    );
    assert_eq!(fs::read(world.work("ended")).unwrap(), b"ended\n");
    // One that starts a shell is there twice for a moment.
    until("there is one agent", || {
        world.agents("serve-relayed") == agent
    });
}

#[test]
fn a_call_without_an_answer_over_a_slow_network_ends_no_other_call_of_its_session() {
    let Some(world) = world(&json!({})) else {
        return;
    };
    world.bash("head -c 3000000 /dev/urandom >data");
    let data = fs::read(world.work("data")).unwrap();
    let agent = world.agents("serve-relayed");
    let calls = world.plugin.with(|envelope| envelope.deadline_ms = 120_000);
    world.network.slow_down();
    let to = world.path("exchange/data");
    let get = json!({ "id": world.work("data"), "to": to });
    let get = calls.start("files.get", get);
    until("some of it has come", || {
        fs::metadata(&to).is_ok_and(|found| found.len() > 0)
    });
    // Its answer waits behind what is under way.
    let outcome = world.bash_within("seq 1 200000", 500);
    let text = outcome.text();
    assert!(
        outcome.code().is_some() && text.contains("a slow connection is waited for"),
        "{text}"
    );
    // It is looked at meanwhile, and this call waits for that.
    assert_eq!(world.bash("echo on").stdout, "on\n");
    world.network.restore();
    get.wait().reply.unwrap();
    assert!(fs::read(to).unwrap() == data);
    assert_eq!(world.agents("serve-relayed"), agent);
}
