//! How a body is stored: JSON, and above a size as one frame of zstd.
//!
//! A frame begins with zstd's magic number, with which no JSON text begins, so that a body says by
//! itself which of the two it is.

use std::cell::RefCell;

use serde::de::DeserializeOwned;
use zstd::bulk::Compressor;

use crate::StoreError;

/// Bodies above this are compressed, in bytes.
pub(crate) const COMPRESS_ABOVE: usize = 4 * 1024;
/// A body that unfolds to more than this is damaged, in bytes.
const MAX_UNFOLDED_BYTES: usize = 1 << 30;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Fast, and still a third or less of JSON.
const COMPRESSION_LEVEL: i32 = 1;

thread_local! {
    /// Kept, since making one costs more than a body of a few kilobytes does.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> =
        RefCell::new(Compressor::new(COMPRESSION_LEVEL).ok());
}

/// The body as it is stored.
pub(crate) fn pack(json: Vec<u8>) -> Vec<u8> {
    if json.len() <= COMPRESS_ABOVE {
        return json;
    }
    let packed = COMPRESSOR.with_borrow_mut(|compressor| match compressor {
        Some(compressor) => compressor.compress(&json).ok(),
        None => None,
    });
    packed
        .filter(|packed| packed.len() < json.len())
        .unwrap_or(json)
}

/// Whether a body is compressed.
pub(crate) fn is_packed(body: &[u8]) -> bool {
    body.starts_with(&ZSTD_MAGIC)
}

/// The JSON of a stored body.
pub(crate) fn unpack(stored: Vec<u8>) -> Result<Vec<u8>, String> {
    if !is_packed(&stored) {
        return Ok(stored);
    }
    let size = zstd::zstd_safe::get_frame_content_size(&stored)
        .ok()
        .flatten()
        .and_then(|size| usize::try_from(size).ok())
        .filter(|size| *size <= MAX_UNFOLDED_BYTES)
        .ok_or("its compressed size is not credible")?;
    zstd::bulk::decompress(&stored, size).map_err(|error| error.to_string())
}

/// Reads a stored body; `whose` says which row it is, for the error.
pub(crate) fn read<T: DeserializeOwned>(
    stored: Vec<u8>,
    whose: impl FnOnce() -> String,
) -> Result<T, StoreError> {
    read_sized(stored, whose).map(|(body, _)| body)
}

/// Reads a body, and the number of bytes of its JSON.
pub(crate) fn read_sized<T: DeserializeOwned>(
    stored: Vec<u8>,
    whose: impl FnOnce() -> String,
) -> Result<(T, usize), StoreError> {
    unpack(stored)
        .and_then(|json| {
            let body = serde_json::from_slice(&json).map_err(|error| error.to_string())?;
            Ok((body, json.len()))
        })
        .map_err(|reason| StoreError::Corrupt {
            what: "read a row",
            reason: format!("{}: {reason}", whose()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_comes_back_and_a_long_one_is_shorter_on_the_disk() {
        for length in [0, 10, COMPRESS_ABOVE, COMPRESS_ABOVE + 1, 300_000] {
            let json = serde_json::to_vec(&"Grüße ".repeat(length / 7)).unwrap();
            let stored = pack(json.clone());
            assert_eq!(stored.len() < json.len(), json.len() > COMPRESS_ABOVE);
            assert_eq!(unpack(stored).unwrap(), json);
        }
    }

    #[test]
    fn a_damaged_frame_is_said_and_not_unfolded() {
        let mut stored = pack(serde_json::to_vec(&"x".repeat(10_000)).unwrap());
        let middle = stored.len() - 1;
        stored.truncate(middle);
        let error = read::<String>(stored, || "entry 3 of t".to_owned()).unwrap_err();
        assert!(error.to_string().contains("entry 3 of t"), "{error}");
    }
}
