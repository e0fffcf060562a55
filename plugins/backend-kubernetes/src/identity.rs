//! The name of a data directory, which no other has: two machines may have one at the same path, and
//! a copy of one has all its files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

const IDENTITY_FILE: &str = "identity";
/// Says which machine this is, on most systems.
const MACHINE_FILE: &str = "/etc/machine-id";

/// Offset and prime of the hash FNV-1a of 128 bits, which is the same in all versions of the host.
const FNV_OFFSET: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
const FNV_PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;

/// The name of a data directory: of a number that is made once, and of where it is.
///
/// # Errors
/// When the directory cannot be read or written.
pub(crate) fn identity(data_dir: &Path) -> io::Result<String> {
    let number = number(data_dir)?;
    let place = place(data_dir)?;
    let bytes = number.as_bytes().iter().chain(place.as_bytes());
    let hash = bytes.fold(FNV_OFFSET, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(FNV_PRIME)
    });
    Ok(format!("{hash:032x}"))
}

/// Where a directory is: what no copy of it has, and what stays when the machine starts again.
fn place(dir: &Path) -> io::Result<String> {
    let metadata = fs::metadata(dir)?;
    let created = metadata.created().ok();
    let created = created.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let born = match created {
        Some(time) => format!("born {}", time.as_nanos()),
        // The number of a device may be another one at the next start.
        None => format!("on {}", metadata.dev()),
    };
    // One that is shared over a network is the same one on several machines.
    let machine = fs::read_to_string(MACHINE_FILE).unwrap_or_default();
    Ok(format!("{} {born} {}", metadata.ino(), machine.trim()))
}

/// The number of a data directory, which is made once.
fn number(data_dir: &Path) -> io::Result<uuid::Uuid> {
    let path = data_dir.join(IDENTITY_FILE);
    let read = || -> io::Result<Option<uuid::Uuid>> {
        match fs::read_to_string(&path) {
            Ok(text) => Ok(uuid::Uuid::parse_str(text.trim()).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    };
    if let Some(number) = read()? {
        return Ok(number);
    }
    let new = uuid::Uuid::new_v4().simple().to_string();
    let whole = data_dir.join(format!("{IDENTITY_FILE}-{new}"));
    fs::write(&whole, &new)?;
    // The first one stays, whoever else is about to make one.
    let linked = fs::hard_link(&whole, &path);
    let _ = fs::remove_file(&whole);
    match (linked, read()?) {
        (_, Some(number)) => Ok(number),
        (Err(error), None) => Err(error),
        (Ok(()), None) => Err(io::ErrorKind::InvalidData.into()),
    }
}
