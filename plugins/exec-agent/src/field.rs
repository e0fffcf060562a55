//! Values one behind the other: little-endian numbers, and texts with their length before them.

use crate::error::{Error, Result};

/// Writes values.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    pub(crate) fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    pub(crate) fn i64(mut self, value: i64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// At most 4 GiB; a frame holds less.
    pub(crate) fn text(self, value: &str) -> Self {
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let mut this = self.u32(length);
        this.0.extend_from_slice(value.as_bytes());
        this
    }

    pub(crate) fn option<T>(self, value: Option<T>, write: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => write(self.u8(1), value),
            None => self.u8(0),
        }
    }

    pub(crate) fn list<T>(self, values: &[T], write: impl Fn(Self, &T) -> Self) -> Self {
        let length = u32::try_from(values.len()).unwrap_or(u32::MAX);
        values.iter().fold(self.u32(length), write)
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads values in the order in which they were written.
#[derive(Debug)]
pub(crate) struct Reader<'b>(&'b [u8]);

impl<'b> Reader<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| cut())
    }

    pub(crate) fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        let length = self.u32()? as usize;
        let bytes = self.take(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| Error::invalid("a text is not UTF-8"))
    }

    pub(crate) fn option<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        match self.u8()? {
            0 => Ok(None),
            _ => read(self).map(Some),
        }
    }

    pub(crate) fn list<T>(&mut self, read: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let length = self.u32()?;
        // Nothing is reserved for a length that may be a lie.
        (0..length).map(|_| read(self)).collect()
    }

    pub(crate) fn end(&self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Error::invalid("there is more in the message than it says"))
        }
    }
}

fn cut() -> Error {
    Error::invalid("the message ends too early")
}
