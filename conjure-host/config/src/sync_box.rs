//! A value whose `Send` and `Sync` the compiler need not look for.

use std::ops::Deref;

/// A box around what many threads share, such as the state of a host.
///
/// Whether a type is `Send`, the compiler finds out by looking into each of its fields and into
/// theirs, down to the last one, and it does so again for each future that is boxed, each task that
/// is spawned and each handler of a request. For what consists of a thousand types that is most of
/// the time that such a crate takes to compile. Here it looks once, where the box is made. What is
/// in the box costs a call through a table whenever it is reached.
pub struct SyncBox<T>(Box<dyn SharedValue<T>>);

trait SharedValue<T>: Send + Sync {
    fn value_ref(&self) -> &T;
}

impl<T: Send + Sync> SharedValue<T> for T {
    fn value_ref(&self) -> &T {
        self
    }
}

impl<T: Send + Sync + 'static> SyncBox<T> {
    /// Puts a value in a box.
    pub fn new(value: T) -> Self {
        Self(Box::new(value))
    }
}

impl<T> Deref for SyncBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        (*self.0).value_ref()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn several_threads_reach_what_is_in_a_box_and_it_is_dropped_with_it() {
        struct Counter {
            count: AtomicUsize,
            dropped: Arc<AtomicUsize>,
        }
        impl Drop for Counter {
            fn drop(&mut self) {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        let dropped = Arc::new(AtomicUsize::new(0));
        let counter = Counter {
            count: AtomicUsize::new(0),
            dropped: Arc::clone(&dropped),
        };
        let shared = Arc::new(SyncBox::new(counter));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let shared = Arc::clone(&shared);
                scope.spawn(move || shared.count.fetch_add(1, Ordering::Relaxed));
            }
        });
        assert_eq!(shared.count.load(Ordering::Relaxed), 2);
        drop(shared);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }
}
