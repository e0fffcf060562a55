//! Benchmarks of the shipped path.
