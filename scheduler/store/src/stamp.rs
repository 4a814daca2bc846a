//! Versionstamps: the order in which transactions committed, as bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Ten bytes that the store assigns to a commit: unique, and greater than those of every commit before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Versionstamp(pub [u8; Versionstamp::BYTES]);

impl Versionstamp {
    /// The length of a versionstamp.
    pub const BYTES: usize = 10;

    /// The stamp of the commit with this version and this place in the version's batch.
    pub fn new(version: u64, batch: u16) -> Self {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&version.to_be_bytes());
        bytes[8..].copy_from_slice(&batch.to_be_bytes());
        Self(bytes)
    }

    /// The stamp of one row of this commit. Rows of one commit share the versionstamp, so the index tells them apart.
    pub fn with_index(self, index: u16) -> Stamp {
        let mut bytes = [0; Stamp::BYTES];
        bytes[..Self::BYTES].copy_from_slice(&self.0);
        bytes[Self::BYTES..].copy_from_slice(&index.to_be_bytes());
        Stamp(bytes)
    }
}

impl fmt::Debug for Versionstamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A versionstamp and a 2-byte index within its commit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Stamp(pub [u8; Stamp::BYTES]);

impl Stamp {
    /// The length of a stamp.
    pub const BYTES: usize = 12;

    /// A place-holder whose first ten bytes the store replaces at the commit.
    pub fn unset(index: u16) -> Self {
        Versionstamp([0xff; Versionstamp::BYTES]).with_index(index)
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
