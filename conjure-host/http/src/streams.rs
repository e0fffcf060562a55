//! How many streams of events there may be: a stream holds its connection for as long as the client
//! likes, so that there is always room beside them for a request.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::middleware::ClientName;
use super::problem::Problem;

/// The streams that are open. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    /// Most streams of one client: half of the connections that the server may have, and three quarters
    /// of what the others leave of `max_total`, so that another client gets some.
    max_per_client: usize,
    /// Most streams of all clients together: three quarters of the connections.
    max_total: usize,
    open: Arc<Mutex<HashMap<ClientName, usize>>>,
}

/// A client's place among the open streams. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct StreamPermit {
    streams: Streams,
    client: ClientName,
}

impl Streams {
    /// Limits for a server that may have so many connections.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            max_per_client: connections - connections / 2,
            max_total: connections - connections / 4,
            open: Arc::default(),
        }
    }

    /// Begins one.
    ///
    /// # Errors
    /// When the client, or all together, have as many as they may.
    pub(super) fn follow(&self, client: &ClientName) -> Result<StreamPermit, Problem> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let all = open.values().sum::<usize>();
        let its = open.get(client).copied().unwrap_or_default();
        let left = self.max_total.saturating_sub(all - its);
        let of_one = self.max_per_client.min(left - left / 4);
        let whose = match its {
            _ if all >= self.max_total => "the server has",
            its if its >= of_one => "this client has",
            its => {
                open.insert(client.clone(), its + 1);
                return Ok(StreamPermit {
                    streams: self.clone(),
                    client: client.clone(),
                });
            }
        };
        Err(Problem::unavailable(
            "too-many-streams",
            format!(
                "{whose} as many streams of events as it may ({of_one} for this client now, {} in \
                 all; `--max-connections` makes more room); close some, and try again",
                self.max_total
            ),
        ))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let open = &self.streams.open;
        let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(its) = open.get_mut(&self.client) {
            *its -= 1;
            if *its == 0 {
                open.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_has_half_and_all_have_three_quarters() {
        let streams = Streams::new(8);
        let client = |name: &str| ClientName(Some(Arc::from(name)));
        let follow = |name: &str| streams.follow(&client(name));
        let first: Vec<_> = (0..4).map(|_| follow("a").unwrap()).collect();
        assert!(follow("a").unwrap_err().is_kind("too-many-streams"));
        let second: Vec<_> = (0..2).map(|_| follow("b").unwrap()).collect();
        assert!(follow("c").is_err());
        drop(second);
        let _third = follow("c").unwrap();
        drop(first);
        assert!(follow("a").is_ok());
        // However many come, each leaves one to the next.
        let streams = Streams::new(64);
        let mut held = Vec::new();
        let mut shares = Vec::new();
        for name in ["a", "b", "c", "d"] {
            let before = held.len();
            while let Ok(permit) = streams.follow(&client(name)) {
                held.push(permit);
            }
            shares.push(held.len() - before);
        }
        assert_eq!(shares, [32, 12, 3, 1]);
        // With the fewest connections there is one.
        assert!(Streams::new(1).follow(&client("a")).is_ok());
    }
}
