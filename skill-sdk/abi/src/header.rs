//! The header that stands in a plugin's file and is read without opening the library.
//!
//! Fixed layout, little-endian numbers, zero-padded UTF-8 text. A host decides from these bytes
//! alone whether it will open the file; opening it runs its constructors.

/// Length of a header of this version, in bytes.
pub const HEADER_LEN: usize = 304;

/// The first eight bytes of a header.
pub const HEADER_MAGIC: [u8; 8] = *b"CONJURE\0";

const NAME_LEN: usize = 64;
const VERSION_LEN: usize = 32;
const SDK_LEN: usize = 32;
const RUSTC_LEN: usize = 64;
const SPARE_LEN: usize = 64 + 28;

/// What a plugin exports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PluginKind {
    /// A native skill.
    Skill = 1,
    /// An executor: a backend that runs commands.
    Executor = 2,
    /// A backend.
    Backend = 3,
}

impl PluginKind {
    /// The word that the manifest uses for this kind.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Skill => "skill",
            Self::Executor => "executor",
            Self::Backend => "backend",
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Skill),
            2 => Some(Self::Executor),
            3 => Some(Self::Backend),
            _ => None,
        }
    }
}

/// The header as it stands in the section `.conjure` (ELF) or `__DATA,__conjure` (Mach-O).
///
/// Every field has alignment 1 and there is no padding: the struct is its bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Header {
    magic: [u8; 8],
    length: [u8; 4],
    abi_major: [u8; 2],
    abi_minor: [u8; 2],
    kind: u8,
    panic_unwind: u8,
    pointer_size: u8,
    reserved: u8,
    name: [u8; NAME_LEN],
    version: [u8; VERSION_LEN],
    sdk: [u8; SDK_LEN],
    rustc: [u8; RUSTC_LEN],
    spare: [u8; SPARE_LEN],
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN && align_of::<Header>() == 1);

impl Header {
    /// Builds a header at compile time, from where the plugin is compiled.
    ///
    /// # Panics
    /// When a text does not fit its field, which is then an error of the plugin's build.
    #[expect(
        clippy::panic,
        reason = "runs in a const: it is a compile error, not a panic"
    )]
    pub const fn new(
        kind: PluginKind,
        panic_unwind: bool,
        name: &str,
        version: &str,
        sdk: &str,
        rustc: &str,
    ) -> Self {
        if name.is_empty() || name.len() > NAME_LEN {
            panic!("a plugin's name has 1 to 64 bytes");
        }
        if version.is_empty() || version.len() > VERSION_LEN {
            panic!("a plugin's version has 1 to 32 bytes");
        }
        Self {
            magic: HEADER_MAGIC,
            length: (HEADER_LEN as u32).to_le_bytes(),
            abi_major: crate::ABI_MAJOR.to_le_bytes(),
            abi_minor: crate::ABI_MINOR.to_le_bytes(),
            kind: kind as u8,
            panic_unwind: panic_unwind as u8,
            pointer_size: size_of::<usize>() as u8,
            reserved: 0,
            name: padded(name),
            version: padded(version),
            sdk: padded(sdk),
            rustc: padded(rustc),
            spare: [0; SPARE_LEN],
        }
    }
}

const fn padded<const N: usize>(text: &str) -> [u8; N] {
    let bytes = text.as_bytes();
    let mut field = [0; N];
    let mut i = 0;
    #[expect(
        clippy::indexing_slicing,
        reason = "bounded by both lengths; iterators are not const"
    )]
    while i < N && i < bytes.len() {
        field[i] = bytes[i];
        i += 1;
    }
    field
}

/// A header that was read from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderFields {
    /// Major version of the ABI that the plugin was built with.
    pub abi_major: u16,
    /// Minor version of the ABI that the plugin was built with.
    pub abi_minor: u16,
    /// What the plugin exports.
    pub kind: PluginKind,
    /// Whether a panic unwinds in it; with `panic = "abort"` it would end the process.
    pub panic_unwind: bool,
    /// Bytes of a pointer on the plugin's target.
    pub pointer_size: u8,
    /// The plugin's name.
    pub name: String,
    /// The plugin's own version.
    pub version: String,
    /// Version of the SDK it was built with. Shown, never compared.
    pub sdk: String,
    /// Version of the compiler it was built by. Shown, never compared.
    pub rustc: String,
}

/// Why some bytes are not a header that this version can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeaderError {
    /// Fewer bytes than a header has.
    Short {
        /// How many there are.
        found: usize,
    },
    /// The magic is not there.
    Magic,
    /// The header gives itself a length that cannot be.
    Length {
        /// The length that it gives.
        found: u32,
    },
    /// The plugin was built for another major version of the ABI; nothing behind the version
    /// was read.
    Major {
        /// Major version that the plugin was built for.
        found: u16,
    },
    /// A field holds what it cannot hold.
    Field {
        /// The field's name.
        field: &'static str,
    },
}

impl HeaderFields {
    /// Reads a header. A longer one, of a newer minor version, is read as far as it is known.
    ///
    /// # Errors
    /// A [`HeaderError`] that says what is wrong; the bytes can be anything.
    pub fn read(bytes: &[u8]) -> Result<Self, HeaderError> {
        let mut rest = HeaderReader(bytes);
        let short = || HeaderError::Short { found: bytes.len() };
        if rest.take::<8>().ok_or_else(short)? != HEADER_MAGIC {
            return Err(HeaderError::Magic);
        }
        let length = u32::from_le_bytes(rest.take().ok_or_else(short)?);
        let abi_major = u16::from_le_bytes(rest.take().ok_or_else(short)?);
        let abi_minor = u16::from_le_bytes(rest.take().ok_or_else(short)?);
        if abi_major != crate::ABI_MAJOR {
            return Err(HeaderError::Major { found: abi_major });
        }
        if (length as usize) < HEADER_LEN || length as usize > bytes.len() {
            return Err(HeaderError::Length { found: length });
        }
        let [kind, panic_unwind, pointer_size, _reserved] = rest.take().ok_or_else(short)?;
        Ok(Self {
            abi_major,
            abi_minor,
            kind: PluginKind::from_number(kind).ok_or(HeaderError::Field { field: "kind" })?,
            panic_unwind: match panic_unwind {
                0 => false,
                1 => true,
                _ => {
                    return Err(HeaderError::Field {
                        field: "panic_unwind",
                    });
                }
            },
            pointer_size,
            name: text(rest.take::<NAME_LEN>().ok_or_else(short)?, "name")?,
            version: text(rest.take::<VERSION_LEN>().ok_or_else(short)?, "version")?,
            sdk: text(rest.take::<SDK_LEN>().ok_or_else(short)?, "sdk")?,
            rustc: text(rest.take::<RUSTC_LEN>().ok_or_else(short)?, "rustc")?,
        })
    }
}

struct HeaderReader<'a>(&'a [u8]);

impl HeaderReader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>()?;
        self.0 = tail;
        Some(*head)
    }
}

fn text<const N: usize>(field: [u8; N], name: &'static str) -> Result<String, HeaderError> {
    let end = field.iter().position(|b| *b == 0).unwrap_or(N);
    let (text, padding) = field.split_at(end);
    if padding.iter().any(|b| *b != 0) {
        return Err(HeaderError::Field { field: name });
    }
    String::from_utf8(text.to_vec()).map_err(|_| HeaderError::Field { field: name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        unsafe_code,
        reason = "the test looks at the struct as the linker writes it"
    )]
    fn bytes(header: &Header) -> Vec<u8> {
        // SAFETY: `Header` has alignment 1 and no padding, so every byte is initialised.
        unsafe { std::slice::from_raw_parts((&raw const *header).cast::<u8>(), HEADER_LEN) }
            .to_vec()
    }

    fn sample() -> Vec<u8> {
        bytes(&Header::new(
            PluginKind::Skill,
            true,
            "cache-manager",
            "1.2.3",
            "0.1.0",
            "rustc 1.95",
        ))
    }

    #[test]
    fn a_header_reads_back() {
        let fields = HeaderFields::read(&sample()).unwrap();
        assert_eq!(fields.name, "cache-manager");
        assert_eq!(fields.version, "1.2.3");
        assert_eq!(fields.kind, PluginKind::Skill);
        assert!(fields.panic_unwind);
        assert_eq!(usize::from(fields.pointer_size), size_of::<usize>());
    }

    #[test]
    fn a_longer_header_of_a_newer_minor_is_read() {
        let mut newer = sample();
        newer.extend([7; 32]);
        let length = u32::try_from(newer.len()).unwrap();
        newer[8..12].copy_from_slice(&length.to_le_bytes());
        newer[14] = 200;
        assert_eq!(HeaderFields::read(&newer).unwrap().abi_minor, 200);
    }

    #[test]
    fn every_cut_is_refused() {
        let whole = sample();
        for length in 0..whole.len() {
            assert!(
                HeaderFields::read(&whole[..length]).is_err(),
                "{length} bytes"
            );
        }
    }

    #[test]
    fn another_major_is_named() {
        let mut other = sample();
        other[12] = 9;
        assert_eq!(
            HeaderFields::read(&other),
            Err(HeaderError::Major { found: 9 })
        );
    }
}
