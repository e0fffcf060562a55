//! Forcing a file to the disk beside the work that writes it.
//!
//! Writing to a file waits while it is being forced, so that begins a little later, or when
//! somebody waits for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::{Settled, StoreError};

/// How long what was written may wait for more of it.
const LATER: Duration = Duration::from_millis(10);

/// Why a file cannot be relied on: the system tells a failure to force it only once.
pub(super) type Failure = Arc<OnceLock<Arc<StoreError>>>;

/// A file that is to be forced to the disk, or is.
pub(super) struct Forcing {
    begun: Arc<AtomicBool>,
    pub(super) settled: Settled,
}

impl Forcing {
    /// Runs `sync` later, or as soon as somebody waits.
    pub(super) fn begin(
        runtime: &Handle,
        sync: impl FnOnce() -> Result<(), StoreError> + Send + 'static,
        failure: &Failure,
    ) -> Self {
        let (begun, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(Notify::new()));
        let (begin, wanted) = (Arc::clone(&begun), Arc::clone(&asked));
        let failed = Arc::clone(failure);
        let forcing = runtime.spawn(async move {
            tokio::select! {
                () = wanted.notified() => {}
                () = tokio::time::sleep(LATER) => {}
            }
            begin.store(true, Ordering::Release);
            if let Ok(Err(error)) = tokio::task::spawn_blocking(sync).await {
                let _ = failed.set(Arc::new(error));
            }
        });
        let failed = Arc::clone(failure);
        let settled = async move {
            asked.notify_one();
            // It is cut short only where the runtime ends, and the process with it.
            let _ = forcing.await;
            failed.get().map_or(Ok(()), |error| Err(Arc::clone(error)))
        };
        Self {
            begun,
            settled: settled.boxed().shared(),
        }
    }

    /// Whether what is written now is still forced by this.
    pub(super) fn is_to_come(&self) -> bool {
        !self.begun.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    fn counting(count: &Arc<AtomicUsize>) -> impl FnOnce() -> Result<(), StoreError> + use<> {
        let count = Arc::clone(count);
        move || {
            count.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_hastens_it() {
        let count = Arc::new(AtomicUsize::new(0));
        let forcing = Forcing::begin(&Handle::current(), counting(&count), &Failure::default());
        tokio::task::yield_now().await;
        assert!(forcing.is_to_come());
        forcing.settled.clone().await.unwrap();
        assert!(!forcing.is_to_come());
        assert_eq!(count.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn it_comes_by_itself() {
        let (done, waiting) = tokio::sync::oneshot::channel();
        let sync = move || {
            let _ = done.send(());
            Ok(())
        };
        let _forcing = Forcing::begin(&Handle::current(), sync, &Failure::default());
        waiting.await.unwrap();
    }

    #[tokio::test]
    async fn a_failure_before_is_not_forgotten() {
        let failing = || {
            Err(StoreError::Io {
                what: "write",
                path: "t".into(),
                source: io::Error::other("no room"),
            })
        };
        let runtime = Handle::current();
        let failure = Failure::default();
        let before = Forcing::begin(&runtime, failing, &failure).settled;
        before.await.unwrap_err();
        let after = Forcing::begin(&runtime, || Ok(()), &failure).settled;
        let error = after.await.unwrap_err();
        assert!(error.to_string().contains("no room"), "{error}");
    }
}
