//! The command line, through the real binary; and the example in the README, which must compile.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
