//! Where the browser ends after a login: a port of this machine, or an address that is pasted.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::Url;

use crate::secrets::beginning;

/// The path at which it ends.
const PATH: &str = "/callback";
/// The most bytes of a request, and how long it may take.
const MAX_REQUEST_BYTES: usize = 16 * 1024;
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The most requests that are read at the same time.
const MAX_REQUESTS: usize = 16;
/// Page that the browser shows.
const PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>Conjure</title>\
                    <p>Conjure has what it needs. You can close this page.</p></html>";

/// What an authorization server answered.
pub(super) struct Callback {
    pub(super) code: String,
    pub(super) state: String,
    pub(super) issuer: Option<String>,
}

/// A port of this machine that waits for the browser.
pub(super) struct Loopback {
    listener: TcpListener,
    port: u16,
}

impl Loopback {
    /// On this port or, for 0, a free one.
    pub(super) async fn bind(port: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    /// The address that a login comes back to.
    pub(super) fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}{PATH}", self.port)
    }

    /// Waits for an answer to the login of this state. Other requests are not for us.
    ///
    /// # Errors
    /// What the authorization server said instead.
    pub(super) async fn answer(&self, state: &str) -> Result<Callback, String> {
        let mut reading: JoinSet<Option<Result<Callback, String>>> = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if reading.len() < MAX_REQUESTS => {
                    if let Ok((stream, _)) = accepted {
                        let state = state.to_owned();
                        reading.spawn(async move {
                            tokio::time::timeout(READ_TIMEOUT, answer_request(stream, &state)).await.ok()?
                        });
                    }
                }
                Some(read) = reading.join_next() => {
                    if let Ok(Some(answer)) = read {
                        return answer;
                    }
                }
            }
        }
    }
}

/// The port of a redirect address that was used before.
pub(super) fn port_of(redirect_uri: &str) -> Option<u16> {
    Url::parse(redirect_uri).ok()?.port()
}

/// Answers one request of a browser.
async fn answer_request(mut stream: TcpStream, state: &str) -> Option<Result<Callback, String>> {
    let mut head = Vec::new();
    let mut piece = [0; 2 * 1024];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") && head.len() < MAX_REQUEST_BYTES {
        match stream.read(&mut piece).await {
            Ok(read @ 1..) => head.extend_from_slice(piece.get(..read)?),
            _ => return None,
        }
    }
    let head = String::from_utf8_lossy(&head);
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    let address = format!("http://127.0.0.1{target}");
    let answer = read(&address, state);
    let (status, body) = match &answer {
        Some(_) => ("200 OK", PAGE),
        None => ("404 Not Found", ""),
    };
    let response = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
    answer
}

/// What an address at which a browser ended says; nothing when it is not of this login.
pub(super) fn read(address: &str, state: &str) -> Option<Result<Callback, String>> {
    let address = Url::parse(address.trim()).ok()?;
    if address.path() != PATH {
        return None;
    }
    let text = |name: &str| {
        let found = address.query_pairs().find(|(key, _)| key == name);
        found.map(|(_, value)| value.into_owned())
    };
    let said = text("state").filter(|said| said == state)?;
    if let Some(error) = text("error") {
        let about = text("error_description").map(|about| format!(": {about}"));
        let text = format!("{error}{}", about.unwrap_or_default());
        return Some(Err(beginning(text, 300)));
    }
    Some(Ok(Callback {
        code: text("code")?,
        state: said,
        issuer: text("iss"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_answer_to_this_login_counts() {
        let loopback = Loopback::bind(0).await.unwrap();
        let address = loopback.redirect_uri();
        let asked = tokio::spawn(async move {
            let get = |query: &'static str| {
                let address = format!("{address}?{query}");
                async move { reqwest::get(address).await.unwrap().status().as_u16() }
            };
            let forged = get("code=evil&state=other").await;
            let empty = get("").await;
            let ours = get("code=c%2Fd&state=ours&iss=https%3A%2F%2Fa.example").await;
            (forged, empty, ours)
        });
        let Ok(callback) = loopback.answer("ours").await else {
            panic!("refused")
        };
        assert_eq!(callback.code, "c/d");
        assert_eq!(callback.issuer.as_deref(), Some("https://a.example"));
        assert_eq!(asked.await.unwrap(), (404, 404, 200));
    }

    #[test]
    fn a_refusal_is_told_in_the_servers_words() {
        let address =
            "http://127.0.0.1:1/callback?state=s&error=access_denied&error_description=no";
        let Some(Err(why)) = read(address, "s") else {
            panic!("no refusal")
        };
        assert_eq!(why, "access_denied: no");
        assert!(read(address, "t").is_none());
    }
}
