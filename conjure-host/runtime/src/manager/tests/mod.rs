//! Saved sessions with a real store, a real provider over loopback, and skills of the program's.

mod abandoned_turns;
mod approvals;
mod basics;
mod changing;
mod elsewhere;
mod ending;
mod full_disk;
mod peers;
mod queue;
mod stage;
mod threads;
mod working_dir;
