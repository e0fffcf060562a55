//! What of a program's confinement a machine does not give.

/// What of a confinement could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gaps {
    /// Other processes can be looked into.
    pub processes: bool,
    /// Other processes can be signalled.
    pub signals: bool,
    /// The files that should be hidden can be reached.
    pub files: bool,
}

impl Gaps {
    /// As one number, for a stream.
    #[must_use]
    pub fn bits(self) -> u8 {
        u8::from(self.processes) | u8::from(self.signals) << 1 | u8::from(self.files) << 2
    }

    /// What such a number says.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Self {
            processes: bits & 1 != 0,
            signals: bits & 2 != 0,
            files: bits & 4 != 0,
        }
    }
}
