//! The messages between client and server: the description of a table, PUT and its answer.

use nichrome_hca::RemoteRegion;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::slots::SLOT;

/// The name of this protocol.
const PROTOCOL: &str = "near_and_far 1";

/// The largest table, in slots.
const MAX_SLOTS: usize = 1 << 20;

/// A server's table, as private data of the connection.
#[derive(Serialize, Deserialize)]
pub(crate) struct Introduction {
    protocol: String,
    slots: usize,
    table: RemoteRegion,
}

impl Introduction {
    pub(crate) fn bytes(table: RemoteRegion) -> Result<Vec<u8>> {
        let slots = table.len / SLOT;
        Ok(serde_json::to_vec(&Self { protocol: PROTOCOL.to_owned(), slots, table })?)
    }

    /// Parses the number of slots and the region of a peer's table. RoCE pads private data with zeros.
    pub(crate) fn parse(bytes: &[u8]) -> Result<(usize, RemoteRegion)> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let introduced: Self =
            serde_json::from_slice(&bytes[..end]).map_err(|_| "the peer is not a server of this store")?;
        let Self { protocol, slots, table } = introduced;
        if protocol != PROTOCOL {
            return Err(format!("the peer speaks '{protocol}', and not '{PROTOCOL}'").into());
        }
        if !(1..=MAX_SLOTS).contains(&slots) || slots * SLOT != table.len {
            return Err(
                format!("the peer says that its table has {slots} slots in {} bytes", table.len).into()
            );
        }
        Ok((slots, table))
    }
}

/// Length of an answer in bytes: 8 for the key, 1 for the outcome.
pub(crate) const ANSWER: usize = 9;

/// The outcome of a PUT.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Stored,
    Full,
}

/// Builds the answer to a PUT of this key.
pub(crate) fn answer(key: u64, outcome: Outcome) -> [u8; ANSWER] {
    let mut answer = [0; ANSWER];
    answer[..8].copy_from_slice(&key.to_be_bytes());
    answer[8] = outcome as u8;
    answer
}

/// Parses a peer's answer to a PUT of `key`.
pub(crate) fn outcome(bytes: &[u8], key: u64) -> Result<Outcome> {
    [Outcome::Stored, Outcome::Full]
        .into_iter()
        .find(|outcome| bytes == answer(key, *outcome))
        .ok_or_else(|| format!("{} bytes that are no answer to it", bytes.len()).into())
}
