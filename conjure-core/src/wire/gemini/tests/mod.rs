//! What the wire must get right, rule by rule, on small streams and conversations of our own.
