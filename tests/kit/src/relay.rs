//! A relay on loopback that gives every request a token: for programs of others that speak HTTP to a
//! server of ours and have no way to be given one.
//!
//! Reads HTTP/1.1 requests with `Content-Length` or without a body, which is what these programs
//! send; answers go back byte for byte. The address that they ask for becomes the server's own, in
//! `Host` and in `Origin`.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// A relay. Its connections end with theirs; the listener ends with the process.
#[derive(Debug)]
pub struct TokenRelay {
    address: SocketAddr,
}

impl TokenRelay {
    /// Relays to a server, with this token.
    ///
    /// # Errors
    /// When no port is free.
    pub fn start(to: SocketAddr, token: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let header = Arc::new(format!("authorization: Bearer {token}\r\n"));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let header = Arc::clone(&header);
                thread::spawn(move || {
                    let ports = [address, to].map(|of| format!(":{}", of.port()));
                    // A connection that breaks is the client's to see.
                    let _ended = relay(client, to, &header, &ports);
                });
            }
        });
        Ok(Self { address })
    }

    /// Address that the relay listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

fn relay(client: TcpStream, to: SocketAddr, header: &str, ports: &[String; 2]) -> io::Result<()> {
    let mut server = TcpStream::connect(to)?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut answers, mut back) = (server.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        let _ended = io::copy(&mut answers, &mut back);
        let _closed = back.shutdown(Shutdown::Both);
    });
    let mut requests = BufReader::new(client);
    while let Some((head, length)) = request(&mut requests, header, ports)? {
        server.write_all(head.as_bytes())?;
        io::copy(&mut (&mut requests).take(length), &mut server)?;
    }
    server.shutdown(Shutdown::Write)
}

/// The head of the next request with the header added, and the length of its body.
fn request(
    from: &mut BufReader<TcpStream>,
    header: &str,
    [own, servers]: &[String; 2],
) -> io::Result<Option<(String, u64)>> {
    let mut head = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim_end().is_empty() {
            head.push_str(header);
            head.push_str("\r\n");
            return Ok(Some((head, length)));
        }
        let name = line.split(':').next().unwrap_or_default();
        if ["host", "origin"].contains(&name.to_ascii_lowercase().as_str()) {
            line = line.replace(own, servers);
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
        head.push_str(&line);
    }
}
