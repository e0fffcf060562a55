//! A text as a number: a page that is followed for hours keeps no copy of what it was sent, and a
//! message that is sent again is known, also by another version of the host: the number is part of what
//! is stored.

use sha2::{Digest as _, Sha256};

/// Number of a text: equal for equal texts, and hardly ever equal for different ones.
pub(crate) fn fingerprint(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    let first = digest.iter().take(8);
    first.fold(0_u64, |number, byte| (number << 8) | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_the_same_number_in_every_version() {
        assert_eq!(fingerprint(""), 0xe3b0_c442_98fc_1c14);
        assert_eq!(fingerprint("abc"), 0xba78_16bf_8f01_cfea);
    }
}
