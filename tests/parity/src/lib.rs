//! The numbered cases of behaviour to match and to beat.
