//! Counts and digests of tables, independent of the order in which rows are met.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Record;
use crate::keys::Table;

/// How many rows a table has, and the sum (modulo 2^256) of their SHA-256 digests.
///
/// A sum does not depend on order, and its state is small. It guards against loss and damage; it is no signature.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableTally {
    /// How many rows.
    pub rows: u64,
    /// The sum of their digests, the least significant byte first.
    pub digest: [u8; 32],
}

/// The tallies of a store, or of a file, by table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally(BTreeMap<u8, TableTally>);

impl Tally {
    pub(super) fn add(&mut self, record: &Record) {
        let tally = self.0.entry(record.key.first().copied().unwrap_or_default()).or_default();
        tally.rows += 1;
        let mut hasher = Sha256::new();
        hasher.update((record.key.len() as u64).to_be_bytes());
        hasher.update(&record.key);
        hasher.update(&record.value);
        let mut carry = 0;
        for (sum, byte) in tally.digest.iter_mut().zip(hasher.finalize()) {
            let total = u16::from(*sum) + u16::from(byte) + carry;
            *sum = total as u8;
            carry = total >> 8;
        }
    }

    /// The tables that are carried, in the order of their keys, those without rows too.
    pub fn tables(&self) -> impl Iterator<Item = (Table, TableTally)> {
        Table::ALL.iter().filter(|table| table.is_carried()).map(|table| (*table, self.of(*table)))
    }

    /// The tally of one table.
    pub fn of(&self, table: Table) -> TableTally {
        self.0.get(&(table as u8)).copied().unwrap_or_default()
    }

    /// All rows.
    pub fn rows(&self) -> u64 {
        self.0.values().map(|tally| tally.rows).sum()
    }

    /// The first table that this build does not know, or does not carry.
    pub(super) fn foreign_table(&self) -> Option<u8> {
        self.0.keys().copied().find(|prefix| !Table::of(&[*prefix]).is_some_and(Table::is_carried))
    }

    /// The first table in which `other` differs.
    pub(super) fn difference(&self, other: &Self) -> Option<Table> {
        self.tables().zip(other.tables()).find(|(mine, theirs)| mine != theirs).map(|((table, _), _)| table)
    }
}

impl TableTally {
    /// The digest in hexadecimal.
    pub fn digest_text(&self) -> String {
        self.digest.iter().rev().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn record(key: &'static [u8], value: &'static [u8]) -> Record {
        Record { key: Bytes::from_static(key), value: Bytes::from_static(value) }
    }

    #[test]
    fn a_tally_knows_every_byte_and_no_order() {
        let rows = [record(&[2, 1], b"a"), record(&[2, 2], b"b"), record(&[8, 1], b"")];
        let tally = |rows: &[Record]| {
            let mut tally = Tally::default();
            rows.iter().for_each(|row| tally.add(row));
            tally
        };
        let whole = tally(&rows);
        assert_eq!((whole.rows(), whole.of(Table::Task).rows, whole.of(Table::Job).rows), (3, 2, 1));
        assert_eq!(whole, tally(&[rows[2].clone(), rows[1].clone(), rows[0].clone()]));
        for other in [
            vec![rows[0].clone(), rows[1].clone()],
            vec![rows[0].clone(), rows[0].clone(), rows[2].clone()],
            vec![record(&[2, 1], b"b"), record(&[2, 2], b"a"), rows[2].clone()],
            vec![record(&[2, 1, b'a'], b""), rows[1].clone(), rows[2].clone()],
        ] {
            assert!(whole.difference(&tally(&other)).is_some(), "{other:?}");
        }
        assert_eq!(tally(&[record(&[0x06, 1], b"")]).foreign_table(), Some(0x06));
        assert_eq!(tally(&[record(&[Table::Bell as u8], b"")]).foreign_table(), Some(Table::Bell as u8));
        assert_eq!(whole.foreign_table(), None);
    }
}
