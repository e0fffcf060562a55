//! A process that is killed while it writes: what it was told is written is there.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use secrecy::ExposeSecret as _;

use crate::{Location, Log as _, Options, Record, Store};

use super::postgres::Server;
use super::{Bed, entry, event, id, runtime};

const PLACE: &str = "CONJURE_TEST_CHILD_PLACE";
const KILLS: usize = 30;

#[test]
fn what_a_killed_process_was_told_is_written_is_there_over_sqlite() {
    let dir = tempfile::tempdir().unwrap();
    let place = Location::File(dir.path().join("conjure.db"));
    kill(&Bed { place });
}

#[test]
fn what_a_killed_process_was_told_is_written_is_there_over_postgres() {
    let Some(server) = Server::get() else { return };
    kill(&runtime().block_on(server.bed()));
}

fn kill(bed: &Bed) {
    let place = match &bed.place {
        Location::Postgres(url) => url.expose_secret().to_owned(),
        other => other.to_string(),
    };
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    for round in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture"])
            .arg("tests::kills::child_that_appends")
            .env(PLACE, &place)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let acknowledged = usize::try_from(random % 40).unwrap() + 1;
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut told = None;
        for _ in 0..acknowledged {
            let line = lines.find_map(|line| {
                let line = line.unwrap();
                let numbers = line.strip_prefix("written ")?.split(' ');
                Some(numbers.map(|n| n.parse().unwrap()).collect::<Vec<u64>>())
            });
            told = Some(line.expect("the child writes until it is killed"));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        runtime().block_on(compare(bed, &told.unwrap(), round));
    }
}

async fn compare(bed: &Bed, told: &[u64], round: usize) {
    let store = bed.open().await;
    let records = store.read(&id("t")).await.unwrap();
    let [seq, epoch, last_event] = *told else {
        panic!("{told:?}")
    };
    // The epoch shows that the dead process's thread could be taken at once each time: one by the
    // child and one here.
    assert_eq!(epoch, 2 * round as u64 + 1);
    let mut entries = 0;
    let mut events = 0;
    for record in &records {
        match record {
            Record::Entry(_) => {
                entries += 1;
                assert_eq!(*record, entry(entries));
            }
            Record::Event { id, .. } => {
                if id.epoch == epoch {
                    events += 1;
                    assert_eq!(id.seq, events);
                }
                assert_eq!(*record, event(id.epoch, id.seq));
            }
            Record::Opened { .. } => panic!("{record:?}"),
        }
    }
    assert!(
        entries >= seq,
        "entry {seq} was written, {entries} are there"
    );
    assert!(events >= last_event, "event {last_event} was written");
    let log = store.open(&id("t")).await.unwrap();
    assert_eq!((log.epoch(), log.last_seq()), (epoch + 1, entries));
    drop(log);
    if round + 1 == KILLS {
        assert!(store.check().await.unwrap().is_sound());
    }
    store.close().await;
}

#[test]
#[ignore = "runs in a child process"]
fn child_that_appends() {
    let place = Location::parse(&std::env::var(PLACE).unwrap()).unwrap();
    runtime().block_on(async {
        let store = Store::open(&place, &Options::default()).await.unwrap();
        let mut log = store.open(&id("t")).await.unwrap();
        let (epoch, mut seq, mut last_event) = (log.epoch(), log.last_seq(), 0);
        loop {
            // Three at a time, so that groups are killed too.
            let mut waiting = Vec::new();
            for _ in 0..3 {
                seq += 1;
                last_event += 2;
                let records = [
                    entry(seq),
                    event(epoch, last_event - 1),
                    event(epoch, last_event),
                ];
                let waits = log.append(&records, seq.is_multiple_of(2));
                waiting.push((waits, seq, last_event));
            }
            for (waits, seq, last_event) in waiting {
                waits.await.unwrap();
                println!("written {seq} {epoch} {last_event}");
            }
        }
    });
}
