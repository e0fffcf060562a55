//! The folders of skills on their way to a remote machine.

use std::fs;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use conjure_skill_sdk::protocol::SkillMount;
use tokio::sync::mpsc;

use super::route::{RelayCarrier, Relayed};
use crate::relay::{RELAY_PIECE, RelayFrame};

/// The most bytes that are sent.
const MAX_BYTES: u64 = 512 * 1024 * 1024;
/// Maximum number of frames that wait to be sent.
const MAX_WAITING_FRAMES: usize = 16;

/// Sends all of them: folders, files and links as links; anything else is no part of a skill.
///
/// # Errors
/// When one cannot be read, or nobody takes it.
pub(super) async fn send<C: RelayCarrier>(
    skills: &[SkillMount],
    to: &mut Relayed<C>,
) -> io::Result<()> {
    let (sender, mut frames) = mpsc::channel(MAX_WAITING_FRAMES);
    let skills = skills.to_vec();
    let reading = tokio::task::spawn_blocking(move || {
        let mut room = MAX_BYTES;
        skills.iter().try_for_each(|skill| {
            let read = read(Path::new(&skill.dir), &skill.name, &mut room, &sender);
            read.map_err(|error| io::Error::other(format!("{}: {error}", skill.dir)))
        })
    });
    while let Some(frame) = frames.recv().await {
        to.send(&frame).await?;
    }
    reading
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn read(from: &Path, name: &str, room: &mut u64, sender: &mpsc::Sender<Vec<u8>>) -> io::Result<()> {
    let give = |frame: RelayFrame| {
        let given = sender.blocking_send(frame.encode());
        given.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    };
    let path = name.to_owned();
    let found = fs::symlink_metadata(from)?;
    if found.is_symlink() {
        let target = fs::read_link(from)?.to_string_lossy().into_owned();
        return give(RelayFrame::Link { path, target });
    }
    if found.is_dir() {
        give(RelayFrame::Folder(path))?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let name = format!("{name}/{}", entry.file_name().to_string_lossy());
            read(&entry.path(), &name, room, sender)?;
        }
    } else if found.is_file() {
        *room = room.checked_sub(found.len()).ok_or_else(|| {
            io::Error::other(format!(
                "the skills have more than {} MiB",
                MAX_BYTES / 1024 / 1024
            ))
        })?;
        let executable = found.permissions().mode() & 0o111 != 0;
        give(RelayFrame::File { path, executable })?;
        let mut file = fs::File::open(from)?.take(found.len());
        loop {
            let mut piece = vec![0; RELAY_PIECE];
            let length = file.read(&mut piece)?;
            if length == 0 {
                break;
            }
            piece.truncate(length);
            give(RelayFrame::Content(piece))?;
        }
    }
    Ok(())
}
