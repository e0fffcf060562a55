//! The threads of a worker: whichever takes a request off the stream runs it.
//!
//! ```text
//! stream ─▶ epoll ─▶ one of the threads that wait ─▶ read, take (under a lock) ─▶ run the request
//!                                                        another thread waits meanwhile
//! ```
//!
//! A request that is handed to another thread costs as much as all the rest of a short call.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use conjure_abi::{Fault, code};
use conjure_skill_sdk::frames::{Decoder, FrameError, PluginRoot, ServedRequest, Server};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Threads that wait for the stream at the same time; those beyond it end.
const MOST_WAITING: usize = 8;
/// How much is read at once.
const BATCH: usize = 64 * 1024;

/// The threads that read a worker's stream and run what comes on it.
pub(super) struct FrameReaders<P> {
    server: Arc<Server<P>>,
    runtime: Handle,
    epoll: OwnedFd,
    stream: Mutex<StreamState>,
    /// How many threads wait for the stream.
    waiting: AtomicUsize,
    /// How many of them run a request.
    running: Mutex<usize>,
    idle: Condvar,
}

struct StreamState {
    input: OwnedFd,
    decoder: Decoder,
    buffer: Box<[u8]>,
    /// Told once how the stream ended.
    ended: Option<oneshot::Sender<Result<(), FrameError>>>,
}

impl<P: PluginRoot> FrameReaders<P> {
    /// Reads `input` for a server until it ends, which the receiver is told. To be called on a tokio
    /// runtime.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn start(
        server: Arc<Server<P>>,
        input: OwnedFd,
    ) -> io::Result<(Arc<Self>, oneshot::Receiver<Result<(), FrameError>>)> {
        rustix::io::ioctl_fionbio(&input, true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // Of the edge, so that what comes wakes one thread.
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&epoll, &input, EventData::new_u64(0), flags)?;
        let (ended, end) = oneshot::channel();
        let readers = Arc::new(Self {
            server,
            runtime: Handle::current(),
            epoll,
            stream: Mutex::new(StreamState {
                input,
                decoder: Decoder::new(),
                buffer: vec![0; BATCH].into(),
                ended: Some(ended),
            }),
            waiting: AtomicUsize::new(0),
            running: Mutex::new(0),
            idle: Condvar::new(),
        });
        readers.add_thread()?;
        Ok((readers, end))
    }

    /// Waits until none of the threads runs a request, for so long at the most.
    pub(super) fn wait_idle(&self, limit: Duration) {
        let running = lock(&self.running);
        let waited = self
            .idle
            .wait_timeout_while(running, limit, |count| *count > 0);
        drop(waited);
    }

    fn add_thread(self: &Arc<Self>) -> io::Result<()> {
        let readers = Arc::clone(self);
        let thread = std::thread::Builder::new().name("calls".to_owned());
        thread.spawn(move || while readers.turn() {})?;
        Ok(())
    }

    /// Waits for the stream, and runs what came. Whether the thread is to go on.
    fn turn(self: &Arc<Self>) -> bool {
        if self.waiting.fetch_add(1, Ordering::AcqRel) >= MOST_WAITING {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        let woken = self.wait();
        let is_last = self.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        let mut stream = lock(&self.stream);
        let read = woken.map_err(FrameError::from);
        let read = read.and_then(|is_closed| self.read(&mut stream, is_closed));
        let mut requests = match read {
            Ok(Some(requests)) => requests,
            ended => {
                if let Some(told) = stream.ended.take() {
                    let _ = told.send(ended.map(|_| ()));
                }
                return false;
            }
        };
        drop(stream);
        let Some(request) = requests.pop() else {
            return true;
        };
        for request in requests {
            self.runtime.spawn_blocking(|| request.run());
        }
        // Nobody would hear of what comes while this thread is the plugin's.
        match if is_last { self.add_thread() } else { Ok(()) } {
            Ok(()) => self.run(request),
            Err(error) => request.refuse(Fault::new(
                code::BUSY,
                format!("the system gives the worker no thread more: {error}"),
            )),
        }
        true
    }

    /// Waits until something is there. Whether that is the last.
    fn wait(&self) -> io::Result<bool> {
        let mut events = [MaybeUninit::uninit()];
        let closed = EventFlags::HUP | EventFlags::RDHUP | EventFlags::ERR;
        loop {
            match epoll::wait(&self.epoll, &mut events, None) {
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
                Ok((events, _)) => {
                    let flags = events.first().map(|event| event.flags);
                    return Ok(flags.is_some_and(|flags| flags.intersects(closed)));
                }
            }
        }
    }

    /// Reads all that is there and takes it. The requests among it, or nothing once the stream ended.
    fn read(
        &self,
        stream: &mut StreamState,
        is_closed: bool,
    ) -> Result<Option<Vec<ServedRequest<P>>>, FrameError> {
        let StreamState {
            input,
            decoder,
            buffer,
            ..
        } = stream;
        let mut requests = Vec::new();
        loop {
            let count = match rustix::io::read(&*input, &mut **buffer) {
                Ok(0) => {
                    decoder.finish()?;
                    return Ok(None);
                }
                Ok(count) => count,
                Err(Errno::AGAIN) => return Ok(Some(requests)),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(io::Error::from(error).into()),
            };
            decoder.push(buffer.get(..count).unwrap_or_default());
            while let Some(frame) = decoder.next_frame()? {
                requests.extend(self.server.take(frame)?);
            }
            // That was all. Of what comes behind it a thread hears, but not of an end that is there.
            if count < BATCH && !is_closed {
                return Ok(Some(requests));
            }
        }
    }

    fn run(&self, request: ServedRequest<P>) {
        *lock(&self.running) += 1;
        request.run();
        let mut running = lock(&self.running);
        *running -= 1;
        if *running == 0 {
            self.idle.notify_all();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
