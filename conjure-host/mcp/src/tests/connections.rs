//! How many connections, and how long a request may take to arrive.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{McpOptions, Serving, initialize, rest, status};

fn quick() -> McpOptions {
    McpOptions {
        max_connections: 2,
        request_timeout: Duration::from_millis(300),
        ..McpOptions::default()
    }
}

#[tokio::test]
async fn a_client_that_sends_its_headers_slowly_is_cut_off() {
    let serving = Serving::new(quick(), &[]).await;
    let mut slow = serving.connect().await;
    let begun = Instant::now();
    let (mut reading, mut writing) = slow.split();
    let dripping = async {
        // Each byte in time, all of them not.
        for byte in b"POST /mcp HTTP/1.1\r\nx-slow: "
            .iter()
            .chain([&b'x'; 1_000])
        {
            if writing.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = async {
        let mut answer = Vec::new();
        let _ = reading.read_to_end(&mut answer).await;
    };
    tokio::select! {
        () = dripping => {}
        () = ended => {}
    }
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
    // Another one is served as ever.
    assert_eq!(status(&serving.post("", &initialize()).await), "200");
    serving.end().await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_not_waited_for() {
    let serving = Serving::new(quick(), &[]).await;
    let mut slow = serving.connect().await;
    let head = serving.head("POST", "", 1_000);
    slow.write_all(head.as_bytes()).await.unwrap();
    let answer = rest(&mut slow).await;
    assert_eq!(status(&answer), "408", "{answer}");
    serving.end().await;
}

#[tokio::test]
async fn a_stream_that_is_open_for_long_is_not_cut_off() {
    let serving = Serving::new(quick(), &[]).await;
    let opened = serving.post("", &initialize()).await;
    let session = opened
        .lines()
        .find(|line| line.starts_with("mcp-session-id: "));
    let more = format!("{}\r\n", session.unwrap());
    let mut stream = serving.connect().await;
    let head = serving.head("GET", &more, 0);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // Four times as long as a request may take to arrive.
    let long = Duration::from_millis(1_200);
    let ended = tokio::time::timeout(long, stream.read_to_end(&mut answer)).await;
    assert!(ended.is_err(), "it ended");
    let answer = String::from_utf8(answer).unwrap();
    assert_eq!(status(&answer), "200", "{answer}");
    serving.end().await;
}

#[tokio::test]
async fn a_connection_that_shows_no_token_makes_room_for_the_next() {
    let options = McpOptions {
        request_timeout: Duration::from_secs(5),
        ..quick()
    };
    let serving = Serving::new(options, &[]).await;
    let mut held = [serving.connect().await, serving.connect().await];
    for stream in &mut held {
        stream.write_all(b"POST /mcp HTTP/1.1\r\n").await.unwrap();
    }
    for _ in 0..3 {
        assert_eq!(status(&serving.post("", &initialize()).await), "200");
    }
    // The oldest is gone, without a word.
    let mut left = Vec::new();
    let [first, _second] = &mut held;
    let _reset = first.read_to_end(&mut left).await;
    assert!(left.is_empty(), "{left:?}");
    serving.end().await;
}

#[tokio::test]
async fn the_end_of_the_server_waits_for_no_slow_client() {
    let serving = Serving::new(McpOptions::default(), &[]).await;
    let mut slow = serving.connect().await;
    slow.write_all(b"POST /mcp HTTP/1.1\r\n").await.unwrap();
    assert_eq!(status(&serving.post("", &initialize()).await), "200");
    let begun = Instant::now();
    serving.end().await;
    assert!(
        begun.elapsed() < Duration::from_secs(15),
        "{:?}",
        begun.elapsed()
    );
}
