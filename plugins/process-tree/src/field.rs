//! Values one behind the other: little-endian numbers, and texts with their length before them.

use std::borrow::Cow;
use std::fmt;

/// Bytes that are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(Cow<'static, str>);

impl Malformed {
    /// With this reason.
    pub fn new(why: impl Into<Cow<'static, str>>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Malformed {}

type Result<T> = std::result::Result<T, Malformed>;

/// Writes values.
#[derive(Debug, Default)]
pub struct PayloadWriter(Vec<u8>);

impl PayloadWriter {
    /// A byte.
    #[must_use]
    pub fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    /// A number.
    #[must_use]
    pub fn u32(mut self, value: u32) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A number.
    #[must_use]
    pub fn u64(mut self, value: u64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A number.
    #[must_use]
    pub fn i64(mut self, value: i64) -> Self {
        self.0.extend_from_slice(&value.to_le_bytes());
        self
    }

    /// A number of the system's, such as an exit code. It has the width of a long one.
    #[must_use]
    pub fn int(self, value: i32) -> Self {
        self.i64(value.into())
    }

    /// A text, of at most 4 GiB; a frame holds less.
    #[must_use]
    pub fn text(self, value: &str) -> Self {
        let length = u32::try_from(value.len()).unwrap_or(u32::MAX);
        let mut this = self.u32(length);
        this.0.extend_from_slice(value.as_bytes());
        this
    }

    /// Something that may not be there.
    #[must_use]
    pub fn option<T>(self, value: Option<T>, write: impl FnOnce(Self, T) -> Self) -> Self {
        match value {
            Some(value) => write(self.u8(1), value),
            None => self.u8(0),
        }
    }

    /// Any number of values.
    #[must_use]
    pub fn list<T>(self, values: &[T], write: impl Fn(Self, &T) -> Self) -> Self {
        let length = u32::try_from(values.len()).unwrap_or(u32::MAX);
        values.iter().fold(self.u32(length), write)
    }

    /// All that was written.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Reads values in the order in which they were written.
#[derive(Debug)]
pub struct PayloadReader<'b>(&'b [u8]);

impl<'b> PayloadReader<'b> {
    /// Reads these bytes.
    #[must_use]
    pub fn new(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| truncated())
    }

    /// A byte.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn u8(&mut self) -> Result<u8> {
        Ok(u8::from_le_bytes(self.array()?))
    }

    /// A number.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A number.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// A number.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn i64(&mut self) -> Result<i64> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    /// A number of the system's.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn int(&mut self) -> Result<i32> {
        i32::try_from(self.i64()?).map_err(|_| Malformed::new("a number is too large"))
    }

    /// A text.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn text(&mut self) -> Result<String> {
        let length = self.u32()? as usize;
        let bytes = self.take(length)?.to_vec();
        String::from_utf8(bytes).map_err(|_| Malformed::new("a text is not UTF-8"))
    }

    /// Something that may not be there.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        match self.u8()? {
            0 => Ok(None),
            _ => read(self).map(Some),
        }
    }

    /// Any number of values.
    ///
    /// # Errors
    /// When the bytes are none.
    pub fn list<T>(&mut self, read: impl Fn(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let length = self.u32()?;
        // Nothing is reserved for a length that may be a lie.
        (0..length).map(|_| read(self)).collect()
    }

    /// A value that older writers leave out at the end; its default where nothing more is there.
    ///
    /// # Errors
    /// When the bytes that are there are none.
    pub fn default_at_end<T: Default>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        match self.0.is_empty() {
            true => Ok(T::default()),
            false => read(self),
        }
    }

    /// Nothing more.
    ///
    /// # Errors
    /// When there is more.
    pub fn end(&self) -> Result<()> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Malformed::new("there is more in the message than it says"))
        }
    }
}

fn truncated() -> Malformed {
    Malformed::new("the message ends too early")
}
