//! One direction of a stream: the bytes that were sent and not confirmed, and how far a connection
//! has them.

use std::collections::VecDeque;

/// Bytes on their way out.
#[derive(Debug, Default)]
pub struct SentStream {
    /// The bytes from `confirmed` on.
    unconfirmed: VecDeque<u8>,
    /// Number of confirmed bytes.
    confirmed: u64,
    /// Position up to which the current connection was sent the stream.
    sent: u64,
}

impl SentStream {
    /// Adds bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unconfirmed.extend(bytes);
    }

    /// Number of bytes that wait to be confirmed.
    #[must_use]
    pub fn len(&self) -> usize {
        self.unconfirmed.len()
    }

    /// Whether all bytes were confirmed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// Forgets what has come over there.
    pub fn confirm(&mut self, count: u64) {
        let confirmed = count.saturating_sub(self.confirmed);
        let confirmed = usize::try_from(confirmed).unwrap_or(usize::MAX);
        drop(
            self.unconfirmed
                .drain(..confirmed.min(self.unconfirmed.len())),
        );
        self.confirmed = self.confirmed.max(count);
        self.sent = self.sent.max(self.confirmed);
    }

    /// Number of bytes in all.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.confirmed + self.unconfirmed.len() as u64
    }

    /// Position up to which the current connection was sent the stream.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Number of confirmed bytes.
    #[must_use]
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// Whether the stream can go on from there.
    #[must_use]
    pub fn has(&self, received: u64) -> bool {
        (self.confirmed..=self.end()).contains(&received)
    }

    /// Goes on from where the other side is; false when that is nowhere in what is kept.
    #[must_use]
    pub fn resume(&mut self, received: u64) -> bool {
        if !self.has(received) {
            return false;
        }
        self.confirm(received);
        self.sent = received;
        true
    }

    /// The next bytes for the current connection, at most so many.
    pub fn next(&mut self, most: usize) -> Option<Vec<u8>> {
        let from = usize::try_from(self.sent.checked_sub(self.confirmed)?).ok()?;
        let to = self.unconfirmed.len().min(from.checked_add(most)?);
        let piece: Vec<u8> = self.unconfirmed.range(from..to).copied().collect();
        self.sent += piece.len() as u64;
        (!piece.is_empty()).then_some(piece)
    }

    /// Whether the current connection was given all there is.
    #[must_use]
    pub fn is_all_sent(&self) -> bool {
        self.sent == self.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_given_once_to_whoever_says_how_far_he_is() {
        let mut stream = SentStream::default();
        stream.push(b"abcdef");
        assert_eq!(stream.next(4).as_deref(), Some(&b"abcd"[..]));
        // The connection is lost; three bytes have come.
        assert!(stream.resume(3));
        assert_eq!((stream.len(), stream.is_all_sent()), (3, false));
        stream.push(b"g");
        assert_eq!(stream.next(9).as_deref(), Some(&b"defg"[..]));
        assert_eq!(stream.next(9), None);
        assert!(stream.is_all_sent());
        stream.confirm(7);
        assert!(stream.is_empty());
        assert!(stream.resume(7));
    }

    #[test]
    fn nobody_goes_on_from_what_is_not_there() {
        let mut stream = SentStream::default();
        stream.push(b"abc");
        stream.confirm(2);
        assert!(!stream.resume(1), "that is forgotten");
        assert!(!stream.resume(4), "that was never there");
        assert!(stream.resume(2));
    }
}
