//! How long the next piece of a streamed reply is waited for: one timer for all pieces.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use tokio::time::{Instant, Sleep, sleep_until};

/// Limits how long pieces of a reply are waited for, of which thousands come long before their limit. One
/// timer stands for all of them: it is set anew when it has passed, and not for each piece.
pub(crate) struct PieceDeadline(Option<Pin<Box<Sleep>>>);

impl PieceDeadline {
    pub(crate) fn new() -> Self {
        Self(None)
    }

    /// What comes of something until a moment; nothing where it is not there by then.
    pub(crate) async fn until<T>(
        &mut self,
        end: Instant,
        piece: impl Future<Output = T>,
    ) -> Option<T> {
        let timer = self.0.get_or_insert_with(|| Box::pin(sleep_until(end)));
        if end < timer.deadline() {
            timer.as_mut().reset(end);
        }
        let mut piece = pin!(piece);
        poll_fn(|cx| {
            if let Poll::Ready(piece) = piece.as_mut().poll(cx) {
                return Poll::Ready(Some(piece));
            }
            while timer.as_mut().poll(cx).is_ready() {
                if end <= timer.deadline() {
                    return Poll::Ready(None);
                }
                timer.as_mut().reset(end);
            }
            Poll::Pending
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;

    const WAIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn each_piece_has_its_own_time() {
        let mut deadline = PieceDeadline::new();
        let begun = Instant::now();
        for _ in 0..5 {
            let piece = sleep(WAIT / 2);
            assert_eq!(deadline.until(Instant::now() + WAIT, piece).await, Some(()));
        }
        assert_eq!(begun.elapsed().as_secs(), 25);
        let begun = Instant::now();
        let never = pending::<()>();
        assert_eq!(deadline.until(Instant::now() + WAIT, never).await, None);
        assert_eq!(begun.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_shorter_time_than_before_holds() {
        let mut deadline = PieceDeadline::new();
        let first = deadline.until(Instant::now() + WAIT * 30, async {});
        assert_eq!(first.await, Some(()));
        let begun = Instant::now();
        let never = pending::<()>();
        assert_eq!(deadline.until(Instant::now() + WAIT, never).await, None);
        assert_eq!(begun.elapsed().as_secs(), 10);
    }
}
