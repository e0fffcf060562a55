//! The command line, through the real binary; and the examples in the README and on the pages of the
//! host, which must compile.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

#[cfg(doctest)]
#[doc = include_str!("../../../conjure-host/docs/api.md")]
struct Api;

#[cfg(doctest)]
#[doc = include_str!("../../../conjure-host/docs/auths.md")]
struct Auths;

#[cfg(doctest)]
#[doc = include_str!("../../../conjure-host/docs/embedding.md")]
struct Embedding;
