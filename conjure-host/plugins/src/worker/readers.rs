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
use conjure_skill_sdk::frames::{Decoder, FrameError, FrameRequest, FrameServer, PluginRoot};
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::io::Errno;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// Threads that wait for the stream at the same time; those beyond it end.
const MAX_WAITING: usize = 8;
/// How much is read at once.
const BATCH: usize = 64 * 1024;

/// The threads that read a worker's stream and run what comes on it.
pub(super) struct FrameReaders<P> {
    server: Arc<FrameServer<P>>,
    runtime: Handle,
    epoll: OwnedFd,
    stream: Mutex<WorkerInput>,
    /// How many threads wait for the stream.
    waiting: AtomicUsize,
    /// How many of them run a request.
    running: Mutex<usize>,
    idle: Condvar,
}

struct WorkerInput {
    input: OwnedFd,
    decoder: Decoder,
    buffer: Box<[u8]>,
    /// Told once how the stream ended. Nothing is read after that.
    end_sender: Option<oneshot::Sender<StreamEnd>>,
}

/// How a stream ended.
type StreamEnd = Result<(), FrameError>;

impl<P: PluginRoot> FrameReaders<P> {
    /// Reads `input` for a server until it ends, which the receiver is told. To be called on a tokio
    /// runtime.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn start(
        server: Arc<FrameServer<P>>,
        input: OwnedFd,
    ) -> io::Result<(Arc<Self>, oneshot::Receiver<StreamEnd>)> {
        rustix::io::ioctl_fionbio(&input, true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // Of the edge, so that what comes wakes one thread.
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&epoll, &input, EventData::new_u64(0), flags)?;
        let (ended, end) = oneshot::channel();
        let readers = Arc::new(Self {
            server,
            runtime: Handle::current(),
            epoll,
            stream: Mutex::new(WorkerInput {
                input,
                decoder: Decoder::new(),
                buffer: vec![0; BATCH].into(),
                end_sender: Some(ended),
            }),
            waiting: AtomicUsize::new(0),
            running: Mutex::new(0),
            idle: Condvar::new(),
        });
        readers.add_thread(None).map_err(|(error, _)| error)?;
        Ok((readers, end))
    }

    /// Reads no more, and waits until none of the threads runs a request, for so long at the most.
    pub(super) fn stop(&self, limit: Duration) {
        lock(&self.stream).end_sender = None;
        let running = lock(&self.running);
        let waited = self
            .idle
            .wait_timeout_while(running, limit, |count| *count > 0);
        drop(waited);
    }

    /// Adds a thread, which runs `first` before it waits for the stream.
    ///
    /// # Errors
    /// The system's, and `first`.
    fn add_thread(
        self: &Arc<Self>,
        first: Option<AcceptedRequest<P>>,
    ) -> Result<(), (io::Error, Option<AcceptedRequest<P>>)> {
        let readers = Arc::clone(self);
        let first = Arc::new(Mutex::new(first));
        let given = Arc::clone(&first);
        let thread = std::thread::Builder::new().name("calls".to_owned());
        let started = thread.spawn(move || {
            let _entered = readers.runtime.enter();
            let _end = EndOnPanic(&*readers);
            let first = lock(&given).take();
            if let Some(request) = first {
                request.run();
            }
            while readers.serve_next() {}
        });
        match started {
            Ok(_) => Ok(()),
            Err(error) => Err((error, lock(&first).take())),
        }
    }

    /// Counts a request among those that run. Not after the stream can be read by another thread:
    /// who stops the threads waits for it.
    fn accept(self: &Arc<Self>, request: FrameRequest<P>) -> AcceptedRequest<P> {
        *lock(&self.running) += 1;
        AcceptedRequest {
            request,
            running: RunningRequest(Arc::clone(self)),
        }
    }

    /// Waits for the stream, and runs what came. Whether the thread is to go on.
    fn serve_next(self: &Arc<Self>) -> bool {
        // One that is to end is never counted: somebody else could believe that it waits.
        let counted = |waiting| (waiting < MAX_WAITING).then_some(waiting + 1);
        let is_needed = self
            .waiting
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, counted);
        if is_needed.is_err() {
            return false;
        }
        let woken = self.wait();
        let is_last = self.waiting.fetch_sub(1, Ordering::AcqRel) == 1;
        let mut taken = UnassignedRequests {
            last: None,
            refused: Vec::new(),
        };
        let is_open = {
            let mut stream = lock(&self.stream);
            if stream.end_sender.is_none() {
                return false;
            }
            let read = woken.map_err(FrameError::from);
            let read = read.and_then(|is_closed| self.read(&mut stream, is_closed, &mut taken));
            let is_open = matches!(read, Ok(true));
            if !is_open {
                stream.end(read.map(|_| ()));
            }
            is_open
        };
        // What is dropped with a request may be the plugin's, and runs while nobody holds the stream.
        for (error, request) in taken.refused {
            request.refuse(&error);
        }
        let Some(request) = taken.last.filter(|_| is_open) else {
            return is_open;
        };
        // Nobody would hear of what comes while this thread is the plugin's.
        if is_last && let Err((error, _)) = self.add_thread(None) {
            request.refuse(&error);
        } else {
            request.run();
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

    /// Reads all that is there and takes it. Of several requests all but the last go to threads of
    /// their own. Whether the stream goes on.
    fn read(
        self: &Arc<Self>,
        stream: &mut WorkerInput,
        is_closed: bool,
        taken: &mut UnassignedRequests<P>,
    ) -> Result<bool, FrameError> {
        let WorkerInput {
            input,
            decoder,
            buffer,
            ..
        } = stream;
        loop {
            let count = match rustix::io::read(&*input, &mut **buffer) {
                Ok(0) => {
                    decoder.finish()?;
                    return Ok(false);
                }
                Ok(count) => count,
                Err(Errno::AGAIN) => return Ok(true),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(io::Error::from(error).into()),
            };
            decoder.push(buffer.get(..count).unwrap_or_default());
            while let Some(frame) = decoder.next_frame()? {
                if let Some(request) = self.server.take(frame)? {
                    self.dispatch(taken);
                    taken.last = Some(self.accept(request));
                }
            }
            // That was all. Of what comes behind it a thread hears, but not of an end that is there.
            if count < BATCH && !is_closed {
                return Ok(true);
            }
            // What is still to be read may be long.
            self.dispatch(taken);
        }
    }

    /// Gives the request that was taken last to a thread of its own.
    fn dispatch(self: &Arc<Self>, taken: &mut UnassignedRequests<P>) {
        if let Some(request) = taken.last.take()
            && let Err((error, Some(request))) = self.add_thread(Some(request))
        {
            taken.refused.push((error, request));
        }
    }
}

/// Requests that were taken off a stream and have no thread yet.
struct UnassignedRequests<P> {
    last: Option<AcceptedRequest<P>>,
    /// Requests that the system has no thread for, each with its error.
    refused: Vec<(io::Error, AcceptedRequest<P>)>,
}

impl WorkerInput {
    fn end(&mut self, end: StreamEnd) {
        if let Some(ended) = self.end_sender.take() {
            let _ = ended.send(end);
        }
    }
}

/// A request that counts among those that run.
struct AcceptedRequest<P> {
    request: FrameRequest<P>,
    running: RunningRequest<P>,
}

impl<P: PluginRoot> AcceptedRequest<P> {
    fn run(self) {
        // Also where it panics it runs no more.
        let _running = self.running;
        self.request.run();
    }

    fn refuse(self, error: &io::Error) {
        self.request.refuse(Fault::new(
            code::BUSY,
            format!("the system gives the worker no thread more: {error}"),
        ));
    }
}

/// One more request runs, until this is dropped.
struct RunningRequest<P>(Arc<FrameReaders<P>>);

impl<P> Drop for RunningRequest<P> {
    fn drop(&mut self) {
        let mut running = lock(&self.0.running);
        *running -= 1;
        if *running == 0 {
            self.0.idle.notify_all();
        }
    }
}

/// Ends the stream where a thread panics: a worker that hears nothing is worse than none.
struct EndOnPanic<'a, P>(&'a FrameReaders<P>);

impl<P> Drop for EndOnPanic<'_, P> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let error = io::Error::other("a thread of the worker panicked");
            lock(&self.0.stream).end(Err(error.into()));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::mpsc;
    use std::task::{Context, Poll};

    use conjure_abi::{CallContext, PluginObject};
    use conjure_skill_sdk::frames::{Cancel, Message, Verb};
    use rustix::pipe::pipe;
    use tokio::io::{AsyncReadExt as _, AsyncWrite, DuplexStream};

    use super::*;

    /// Longer than anything here takes.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A root that gives its manifest when the test lets it.
    struct HeldRoot {
        begun: mpsc::SyncSender<()>,
        let_go: Mutex<mpsc::Receiver<()>>,
    }

    impl HeldRoot {
        /// One, where it says that it was asked, and how it is let go.
        fn new() -> (Self, mpsc::Receiver<()>, mpsc::Sender<()>) {
            let (begins, begun) = mpsc::sync_channel(1000);
            let (let_go, let_goes) = mpsc::channel();
            let root = Self {
                begun: begins,
                let_go: Mutex::new(let_goes),
            };
            (root, begun, let_go)
        }
    }

    impl PluginRoot for HeldRoot {
        fn manifest(&self) -> Result<Vec<u8>, Fault> {
            self.begun.send(()).unwrap();
            let _ = lock(&self.let_go).recv_timeout(PATIENCE);
            Ok(b"{}".to_vec())
        }

        fn create(&self, _: &[u8], _: CallContext) -> Result<PluginObject, Fault> {
            Err(Fault::new(code::FAILED, "there are no instances here"))
        }
    }

    fn encode_request(call_id: u64, out: &mut Vec<u8>) {
        let message = Message::Request {
            verb: Verb::Manifest,
            instance: 0,
            credit: 1,
            op: Vec::new(),
            json: Vec::new(),
        };
        message.into_frame(call_id).encode(out).unwrap();
    }

    fn write(input: &OwnedFd, bytes: &[u8]) {
        assert_eq!(rustix::io::write(input, bytes).unwrap(), bytes.len());
    }

    struct Stage {
        readers: Arc<FrameReaders<HeldRoot>>,
        end: oneshot::Receiver<StreamEnd>,
        input: OwnedFd,
        replies: DuplexStream,
        decoder: Decoder,
        begun: mpsc::Receiver<()>,
        let_go: mpsc::Sender<()>,
        last: u64,
    }

    impl Stage {
        fn new() -> Self {
            let (output, replies) = tokio::io::duplex(1 << 20);
            let mut stage = Self::with_output(output);
            stage.replies = replies;
            stage
        }

        fn with_output(output: impl AsyncWrite + Send + 'static) -> Self {
            let (root, begun, let_go) = HeldRoot::new();
            let (reads, input) = pipe().unwrap();
            let (readers, end) =
                FrameReaders::start(FrameServer::new(root, output), reads).unwrap();
            Self {
                readers,
                end,
                input,
                replies: tokio::io::duplex(1).0,
                decoder: Decoder::new(),
                begun,
                let_go,
                last: 0,
            }
        }

        fn request(&mut self, out: &mut Vec<u8>) -> u64 {
            self.last += 1;
            encode_request(self.last, out);
            self.last
        }

        fn write(&self, bytes: &[u8]) {
            write(&self.input, bytes);
        }

        /// Runs so many requests at the same time, sent in one write or each in its own.
        async fn run_together(&mut self, count: usize, at_once: bool) {
            let mut bytes = Vec::new();
            for _ in 0..count {
                self.request(&mut bytes);
                if !at_once {
                    self.write(&bytes);
                    bytes.clear();
                }
            }
            self.write(&bytes);
            for _ in 0..count {
                self.begun.recv_timeout(PATIENCE).expect("it was not begun");
            }
            for _ in 0..count {
                self.let_go.send(()).unwrap();
            }
            for _ in 0..count {
                self.reply().await;
            }
        }

        /// Each of them holds on to what they share.
        async fn threads_end(&self) {
            let end = async {
                while Arc::strong_count(&self.readers) > 1 {
                    tokio::task::yield_now().await;
                }
            };
            let end = tokio::time::timeout(PATIENCE, end);
            end.await.expect("a thread goes on");
        }

        async fn reply(&mut self) -> u64 {
            let read = async {
                loop {
                    if let Some(frame) = self.decoder.next_frame().unwrap() {
                        return frame.call_id;
                    }
                    let mut piece = [0; 4096];
                    let count = self.replies.read(&mut piece).await.unwrap();
                    self.decoder.push(&piece[..count]);
                }
            };
            let read = tokio::time::timeout(PATIENCE, read);
            read.await.expect("no reply comes")
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn requests_run_at_the_same_time_and_the_stream_is_read_meanwhile() {
        let mut stage = Stage::new();
        for round in 0..20 {
            stage.run_together(3 * MAX_WAITING, round % 2 == 0).await;
        }
        let waiting = stage.readers.waiting.load(Ordering::Acquire);
        assert!((1..=MAX_WAITING).contains(&waiting), "{waiting}");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_that_was_released_before_it_ran_is_not_run() {
        let mut stage = Stage::new();
        let mut bytes = Vec::new();
        let released = stage.request(&mut bytes);
        let release = Message::Cancel(Cancel::Release).into_frame(released);
        release.encode(&mut bytes).unwrap();
        stage.write(&bytes);
        stage.run_together(1, true).await;
        assert!(stage.begun.try_recv().is_err(), "it ran all the same");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_end_that_is_there_with_the_last_request_is_seen() {
        let (root, begun, let_go) = HeldRoot::new();
        let mut bytes = Vec::new();
        encode_request(1, &mut bytes);
        let (reads, input) = pipe().unwrap();
        write(&input, &bytes);
        drop(input);
        let server = FrameServer::new(root, tokio::io::sink());
        let (readers, end) = FrameReaders::start(server, reads).unwrap();
        let end = tokio::time::timeout(PATIENCE, end).await;
        assert!(end.expect("no end comes").unwrap().is_ok());
        begun.recv_timeout(PATIENCE).expect("it was not begun");
        let_go.send(()).unwrap();
        readers.stop(PATIENCE);
        assert_eq!(*lock(&readers.running), 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nothing_is_run_behind_what_is_not_the_protocol() {
        let mut stage = Stage::new();
        let mut bytes = Vec::new();
        let pinned = stage.request(&mut bytes);
        stage.write(&bytes);
        stage.begun.recv_timeout(PATIENCE).unwrap();
        // A number that is taken.
        stage.write(&bytes);
        let end = tokio::time::timeout(PATIENCE, &mut stage.end).await;
        let end = end.expect("no end comes").unwrap();
        assert!(matches!(end, Err(FrameError::Twice { call_id }) if call_id == pinned));
        bytes.clear();
        stage.request(&mut bytes);
        stage.write(&bytes);
        stage.let_go.send(()).unwrap();
        assert_eq!(stage.reply().await, pinned);
        stage.threads_end().await;
        assert!(stage.begun.try_recv().is_err(), "it ran all the same");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_thread_that_panics_ends_the_stream() {
        let mut stage = Stage::with_output(PanickingOutput);
        let mut bytes = Vec::new();
        stage.request(&mut bytes);
        stage.let_go.send(()).unwrap();
        stage.write(&bytes);
        let end = tokio::time::timeout(PATIENCE, &mut stage.end).await;
        let error = end.expect("no end comes").unwrap().unwrap_err();
        assert!(error.to_string().contains("panicked"), "{error}");
        stage.readers.stop(PATIENCE);
        assert_eq!(*lock(&stage.readers.running), 0);
    }

    /// Panics on the thread that replies.
    struct PanickingOutput;

    impl AsyncWrite for PanickingOutput {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            panic!("this output panics")
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
