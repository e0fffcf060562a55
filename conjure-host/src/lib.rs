//! Host
