//! The HTTP API, through a real server: see the tests.
