//! A plugin that misbehaves on purpose, as its input asks.
