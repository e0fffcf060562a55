//! The identity of a data directory, which no other has: two machines may have one at the same path, and
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

/// The identity of a data directory: a hash of the id that is saved in it, and of where it is.
///
/// # Errors
/// When the directory cannot be read or written.
pub(crate) fn data_dir_identity(data_dir: &Path) -> io::Result<String> {
    let id = saved_id(data_dir)?;
    let location = location(data_dir)?;
    let bytes = id.as_bytes().iter().chain(location.as_bytes());
    let hash = bytes.fold(FNV_OFFSET, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(FNV_PRIME)
    });
    Ok(format!("{hash:032x}"))
}

/// Where a directory is: what no copy of it has, and what stays when the machine starts again.
fn location(dir: &Path) -> io::Result<String> {
    let metadata = fs::metadata(dir)?;
    let created = metadata.created().ok();
    let created = created.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    let created_or_device = match created {
        Some(time) => format!("born {}", time.as_nanos()),
        // The number of a device may be another one at the next start.
        None => format!("on {}", metadata.dev()),
    };
    // One that is shared over a network is the same one on several machines.
    let machine = fs::read_to_string(MACHINE_FILE).unwrap_or_default();
    Ok(format!(
        "{} {created_or_device} {}",
        metadata.ino(),
        machine.trim()
    ))
}

/// The id that is saved in a data directory, which is made once.
fn saved_id(data_dir: &Path) -> io::Result<uuid::Uuid> {
    let path = data_dir.join(IDENTITY_FILE);
    let read = || -> io::Result<Option<uuid::Uuid>> {
        match fs::read_to_string(&path) {
            Ok(text) => Ok(uuid::Uuid::parse_str(text.trim()).ok()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    };
    if let Some(id) = read()? {
        return Ok(id);
    }
    let new = uuid::Uuid::new_v4().simple().to_string();
    let temporary = data_dir.join(format!("{IDENTITY_FILE}-{new}"));
    fs::write(&temporary, &new)?;
    // The first one stays, whoever else is about to make one.
    let linked = fs::hard_link(&temporary, &path);
    let _ = fs::remove_file(&temporary);
    match (linked, read()?) {
        (_, Some(id)) => Ok(id),
        (Err(error), None) => Err(error),
        (Ok(()), None) => Err(io::ErrorKind::InvalidData.into()),
    }
}
