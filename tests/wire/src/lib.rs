//! Recorded provider exchanges against the wires.
