//! The queue between what a session records and its log.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use super::*;
use conjure_store::{MemoryLog, ThreadId};

type Answer = oneshot::Sender<Result<(), StoreError>>;

/// A log that has whoever gets its answers give them.
struct Answered {
    thread: ThreadId,
    answers: mpsc::Sender<Answer>,
}

impl ThreadLog for Answered {
    fn thread(&self) -> &ThreadId {
        &self.thread
    }

    fn epoch(&self) -> u64 {
        1
    }

    fn last_seq(&self) -> u64 {
        0
    }

    fn append(&mut self, _: &[Record], _: bool) -> PendingAppend {
        let (answer, answered) = oneshot::channel();
        let _ = self.answers.send(answer);
        PendingAppend::pending(answered)
    }
}

fn queue() -> (Arc<RecordQueue>, mpsc::Receiver<Answer>) {
    let (answers, given) = mpsc::channel();
    let thread = ThreadId::fresh();
    let log = Answered { thread, answers };
    (RecordQueue::new(Box::new(log), 0), given)
}

fn content(text: &str) -> Event {
    Event::Content {
        delta: text.to_owned(),
    }
}

fn failed() -> StoreError {
    StoreError::Closed
}

#[tokio::test]
async fn the_answer_to_a_batch_shows_it_and_hands_over_what_gathered() {
    let (queue, answers) = queue();
    let mut shown = queue
        .hub()
        .subscribe_from_now(Arc::new(MemoryLog::default()), ThreadId::fresh());
    queue.event(content("a"));
    queue.hand_over(true);
    let first = answers.try_recv().unwrap();
    queue.event(content("b"));
    queue.hand_over(true);
    assert!(answers.try_recv().is_err(), "one is on its way");
    assert!(shown.try_next().is_none());
    first.send(Ok(())).unwrap();
    assert_eq!(shown.try_next().unwrap().event, content("a"));
    let second = answers.try_recv().unwrap();
    second.send(Ok(())).unwrap();
    assert_eq!(shown.try_next().unwrap().event, content("b"));
}

#[tokio::test]
async fn the_session_is_told_of_what_it_waits_for_and_of_a_failure() {
    let (queue, answers) = queue();
    queue.event(content("a"));
    queue.hand_over(true);
    answers.try_recv().unwrap().send(Ok(())).unwrap();
    let told = queue.progress().now_or_never();
    assert!(told.is_none(), "it waits for nothing");
    queue.event(content("b"));
    let batch = queue.hand_over(false);
    assert!(queue.progress().now_or_never().is_none());
    assert!(!queue.is_written(batch));
    answers.try_recv().unwrap().send(Ok(())).unwrap();
    queue.progress().await.unwrap();
    assert!(queue.is_written(batch));
    queue.event(content("c"));
    queue.hand_over(true);
    answers.try_recv().unwrap().send(Err(failed())).unwrap();
    queue.progress().await.unwrap_err();
    queue.event(content("d"));
    queue.hand_over(false);
    assert!(answers.try_recv().is_err(), "nothing more is written");
    queue.progress().await.unwrap_err();
}

#[tokio::test]
async fn a_log_that_goes_away_is_a_failure() {
    let (queue, answers) = queue();
    queue.event(content("a"));
    queue.hand_over(false);
    drop(answers.try_recv().unwrap());
    queue.progress().await.unwrap_err();
}

#[tokio::test]
async fn a_task_that_has_used_its_turn_up_hands_over_all_the_same() {
    let (queue, answers) = queue();
    let (busy, mut turn) = tokio::sync::mpsc::unbounded_channel();
    (0..1_000).for_each(|number| busy.send(number).unwrap());
    // Until the task's turn is used up.
    while turn.recv().now_or_never().is_some() {}
    queue.event(content("a"));
    let batch = queue.hand_over(false);
    answers.try_recv().unwrap().send(Ok(())).unwrap();
    assert!(queue.is_written(batch));
}

/// Answers an append when the next one comes.
struct Late(Answered, Option<Answer>, mpsc::Receiver<Answer>);

impl ThreadLog for Late {
    fn thread(&self) -> &ThreadId {
        self.0.thread()
    }

    fn epoch(&self) -> u64 {
        1
    }

    fn last_seq(&self) -> u64 {
        0
    }

    fn append(&mut self, records: &[Record], durable: bool) -> PendingAppend {
        if let Some(before) = self.1.take() {
            let _ = before.send(Ok(()));
        }
        let committed = self.0.append(records, durable);
        self.1 = self.2.try_recv().ok();
        committed
    }
}

#[test]
fn a_log_may_answer_while_it_is_given_more() {
    let (answers, given) = mpsc::channel();
    let thread = ThreadId::fresh();
    let log = Late(Answered { thread, answers }, None, given);
    let queue = RecordQueue::new(Box::new(log), 0);
    let batches = ["a", "b", "c"].map(|text| {
        queue.event(content(text));
        queue.hand_over(false)
    });
    assert_eq!(
        batches.map(|batch| queue.is_written(batch)),
        [true, true, false]
    );
}

#[test]
fn nothing_is_lost_between_who_hands_over_and_who_answers() {
    let (queue, answers) = queue();
    let answering = thread::spawn(move || {
        answers.iter().for_each(|answer| drop(answer.send(Ok(()))));
    });
    let log = Arc::new(MemoryLog::default());
    let mut shown = queue.hub().subscribe_from_now(log, ThreadId::fresh());
    let pieces = thread::spawn({
        let queue = Arc::clone(&queue);
        move || {
            for _ in 0..20_000 {
                if queue.piece(content("p"), &AtomicBool::new(false)) {
                    queue.end_window();
                }
            }
        }
    });
    for number in 0..2_000 {
        queue.event(content("e"));
        queue.hand_over(number % 3 == 0);
    }
    pieces.join().unwrap();
    queue.end_window();
    let last = queue.hand_over(false);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let all = async {
        while !queue.is_written(last) {
            queue.progress().await.unwrap();
        }
    };
    let in_time = async { tokio::time::timeout(Duration::from_secs(60), all).await };
    runtime.block_on(in_time).expect("an answer was lost");
    let mut text = String::new();
    while let Some(event) = shown.try_next() {
        match &event.event {
            Event::Content { delta } => text.push_str(delta),
            event => panic!("{event:?}"),
        }
    }
    assert_eq!(text.matches('p').count(), 20_000);
    assert_eq!(text.matches('e').count(), 2_000);
    queue.close();
    answering.join().unwrap();
}

/// Panics when it is given anything.
struct Panics(ThreadId);

impl ThreadLog for Panics {
    fn thread(&self) -> &ThreadId {
        &self.0
    }

    fn epoch(&self) -> u64 {
        1
    }

    fn last_seq(&self) -> u64 {
        0
    }

    fn append(&mut self, _: &[Record], _: bool) -> PendingAppend {
        panic!("as a test wants it")
    }
}

#[tokio::test]
async fn a_log_that_panics_ends_its_own_session_only() {
    let queue = RecordQueue::new(Box::new(Panics(ThreadId::fresh())), 0);
    assert!(queue.piece(content("a"), &AtomicBool::new(false)));
    queue.end_window();
    queue.progress().await.unwrap_err();
}

#[tokio::test]
async fn much_that_gathered_is_handed_over_by_the_session() {
    let (queue, answers) = queue();
    queue.event(content("a"));
    queue.hand_over(true);
    let first = answers.try_recv().unwrap();
    queue.event(content(&"b".repeat(MAX_LOG_THREAD_BYTES + 1)));
    queue.hand_over(true);
    first.send(Ok(())).unwrap();
    assert!(answers.try_recv().is_err(), "the log's thread does not");
    assert!(queue.progress().now_or_never().is_none());
    answers.try_recv().unwrap();
}

#[tokio::test]
async fn what_the_session_is_in_the_middle_of_is_handed_over_and_shown_by_itself() {
    let (queue, answers) = queue();
    let log = Arc::new(MemoryLog::default());
    let mut shown = queue.hub().subscribe_from_now(log, ThreadId::fresh());
    let notice = Event::Notice {
        text: "n".to_owned(),
    };
    queue.event(notice.clone());
    queue.piece(content("p"), &AtomicBool::new(false));
    queue.end_window();
    assert!(answers.try_recv().is_err(), "more may belong to it");
    queue.hand_over(true);
    answers.try_recv().unwrap().send(Ok(())).unwrap();
    assert!(shown.try_next().is_none(), "the session sees it first");
    let progress = queue.progress().now_or_never();
    assert!(progress.is_none(), "it waits for nothing");
    assert_eq!(shown.try_next().unwrap().event, notice);
    assert_eq!(shown.try_next().unwrap().event, content("p"));
}
