//! What a session file sets of how requests travel: the fields alone, because a client needs the
//! whole host.

use std::time::Duration;

/// How requests travel.
pub struct HttpOptions {
    pub connect_timeout: Duration,
    pub first_byte_timeout: Duration,
    pub idle_timeout: Duration,
    pub reply_timeout: Duration,
    pub max_reply_bytes: usize,
    pub retry: Retry,
}

/// What is tried again.
pub struct Retry {
    pub attempts: u32,
    pub longest_wait: Duration,
}
