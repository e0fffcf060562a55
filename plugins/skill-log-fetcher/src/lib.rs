//! A native skill that fetches log entries from a file or a URL.
