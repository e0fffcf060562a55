//! What of a program's confinement a machine does not give.

/// What of a confinement could not be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Gaps {
    /// Other processes can be looked into.
    pub processes: bool,
    /// Other processes can be signalled.
    pub signals: bool,
    /// The files that should be hidden can be reached, or are not hidden again once they are replaced;
    /// of a sandbox, the devices of the machine as well.
    pub files: bool,
    /// Files outside the sandbox can be changed.
    pub writes: bool,
    /// Modes, owners and times of files outside the sandbox can be changed.
    pub modes: bool,
    /// The network can be reached from the sandbox.
    pub network: bool,
}

impl Gaps {
    /// As one number, for a stream.
    #[must_use]
    pub fn bits(self) -> u8 {
        let flags = [
            self.processes,
            self.signals,
            self.files,
            self.writes,
            self.modes,
            self.network,
        ];
        let bits = flags.into_iter().enumerate();
        bits.fold(0, |bits, (place, flag)| bits | u8::from(flag) << place)
    }

    /// What such a number says.
    #[must_use]
    pub fn from_bits(bits: u8) -> Self {
        Self {
            processes: bits & 1 != 0,
            signals: bits & 2 != 0,
            files: bits & 4 != 0,
            writes: bits & 8 != 0,
            modes: bits & 16 != 0,
            network: bits & 32 != 0,
        }
    }
}
