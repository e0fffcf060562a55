//! Recorded provider exchanges against the wires.
//!
//! Looks at every recording of a wire, says how many there were, and fails when there were none.

// Clippy lets tests be blunt only where it sees that they are tests.
#[cfg(test)]
mod anthropic;
#[cfg(test)]
mod chat;
#[cfg(test)]
mod cuts;
#[cfg(test)]
mod estimates;
#[cfg(test)]
mod follow;
#[cfg(test)]
mod gemini;
#[cfg(test)]
mod recordings;
#[cfg(test)]
mod replay;
#[cfg(test)]
mod responses;
#[cfg(test)]
mod said;
#[cfg(test)]
mod switches;
#[cfg(test)]
mod turns;
#[cfg(test)]
mod validators;
