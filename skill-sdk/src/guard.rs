//! Catches what author code panics, and knows where it did.
//!
//! The hook only records, on the panicking thread, and only for code that runs under a guard;
//! a plugin has no terminal of its own to print on. Where nothing unwinds (`panic = "abort"`) it
//! prints: whoever runs the plugin's process finds its last words there.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;
#[cfg(feature = "async")]
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use conjure_abi::code;

use crate::error::{Error, Result};

thread_local! {
    static PANIC_LOCATION: RefCell<String> = const { RefCell::new(String::new()) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Runs author code; a panic becomes an error with its message and place.
pub(crate) fn guard<T>(code: impl FnOnce() -> Result<T>) -> Result<T> {
    let _scope = GuardScope::enter();
    match catch_unwind(AssertUnwindSafe(code)) {
        Ok(result) => result,
        Err(payload) => Err(panic_error(payload)),
    }
}

/// Owner of the standard library that this code runs with, and so of the panic hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Library {
    /// A plugin: every panic in its library is the plugin's.
    Plugin,
    /// A program which the plugin is linked into: its other panics are its own.
    Program,
}

/// Installs the hook that remembers where a panic happened. Once a standard library.
pub(crate) fn install_panic_hook(library: Library) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = match library {
            Library::Plugin => None,
            Library::Program => Some(std::panic::take_hook()),
        };
        std::panic::set_hook(Box::new(move |info| {
            // Thread-locals may be gone while a thread ends, and a panic in a hook aborts.
            let guarded = DEPTH.try_with(|depth| depth.get() > 0).unwrap_or(false);
            match &previous {
                Some(hook) if !guarded => hook(info),
                _ if cfg!(panic = "abort") => report_fatal(info),
                _ => {
                    let mut place = String::new();
                    if let Some(location) = info.location() {
                        let _ = write!(place, " at {}:{}", location.file(), location.line());
                    }
                    let _ = PANIC_LOCATION.try_with(|slot| slot.replace(place));
                }
            }
        }));
    });
}

/// Says what ends the process, on its standard error.
fn report_fatal(info: &std::panic::PanicHookInfo<'_>) {
    let place = info.location();
    let place = place.map(|at| format!(" at {}:{}", at.file(), at.line()));
    let (place, message) = (place.unwrap_or_default(), message(info.payload()));
    let line = format!("the plugin panicked{place}: {message}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}

fn message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "(a panic without a message)".to_owned())
}

/// The error for a panic. Call it on the thread that panicked.
fn panic_error(payload: Box<dyn Any + Send>) -> Error {
    let message = message(&*payload);
    let place = PANIC_LOCATION
        .try_with(|slot| std::mem::take(&mut *slot.borrow_mut()))
        .unwrap_or_default();
    // The payload can be a type of the author's whose destructor panics too.
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    Error::with_code(
        code::PANIC,
        format!("the plugin panicked{place}: {message}"),
    )
}

struct GuardScope;

impl GuardScope {
    fn enter() -> Self {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get() + 1));
        Self
    }
}

impl Drop for GuardScope {
    fn drop(&mut self) {
        let _ = DEPTH.try_with(|depth| depth.set(depth.get().saturating_sub(1)));
    }
}

/// A future of author code; a panic in it, or in its destructor, becomes an error.
#[cfg(feature = "async")]
pub(crate) struct CatchPanic<T> {
    future: Option<Pin<Box<dyn Future<Output = Result<T>> + Send>>>,
}

#[cfg(feature = "async")]
impl<T> CatchPanic<T> {
    pub(crate) fn new(future: Pin<Box<dyn Future<Output = Result<T>> + Send>>) -> Self {
        Self {
            future: Some(future),
        }
    }

    fn end(&mut self) -> Result<()> {
        guard(|| {
            drop(self.future.take());
            Ok(())
        })
    }
}

#[cfg(feature = "async")]
impl<T> Future for CatchPanic<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.future else {
            return Poll::Ready(Err(Error::with_code(code::GONE, "the call is over")));
        };
        match guard(|| Ok(future.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(result)) => Poll::Ready(self.end().and(result)),
            Err(panic) => {
                let _ = self.end();
                Poll::Ready(Err(panic))
            }
        }
    }
}

#[cfg(feature = "async")]
impl<T> Drop for CatchPanic<T> {
    fn drop(&mut self) {
        let _ = self.end();
    }
}
