//! What a person is told of files that they attached, of which the model reads no more than the name.

use crate::log::{LossReason, LostFile, UnshownFile, UnshownReason};
use crate::numerals::thousands;

/// The most names of files in a notice.
const MAX_NAMES: usize = 20;

/// What is told of files that are lost, a line each; nothing where only a later version knows why one is.
pub(super) fn describe_lost_files(files: &[LostFile]) -> Option<String> {
    let lines: Option<Vec<String>> = files.iter().map(describe_lost_file).collect();
    lines
        .filter(|lines| !lines.is_empty())
        .map(|lines| lines.join("\n"))
}

fn describe_lost_file(LostFile { name, reason }: &LostFile) -> Option<String> {
    let why = match reason {
        LossReason::NoBytes => "this host does not have its bytes",
        LossReason::OtherTurn => "it is attached to another turn",
        LossReason::Failed { error } => error.as_str(),
        LossReason::Other => return None,
    };
    Some(format!(
        "`{name}` was attached, and the model reads only its name: {why}; hand the file over again"
    ))
}

/// What is told of all files that a model is not shown; those with the same reason together. Nothing where
/// only a later version knows why one is not.
pub(super) fn describe_unshown_files(files: &[UnshownFile]) -> Option<String> {
    let mut groups: Vec<(&UnshownReason, Vec<&str>)> = Vec::new();
    for UnshownFile { name, reason } in files {
        match groups.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, names)) => names.push(name.as_str()),
            None => groups.push((reason, vec![name.as_str()])),
        }
    }
    let clauses: Option<Vec<String>> = groups
        .iter()
        .map(|(reason, names)| {
            let why = describe_unshown_reason(reason, names.len() == 1)?;
            Some(format!("of {}: {why}", list_names(names)))
        })
        .collect();
    let (what, them) = match files.len() {
        0 => return None,
        1 => ("name", "it"),
        _ => ("names", "them"),
    };
    Some(format!(
        "the model reads only the {what} {}. Tools open {them}",
        clauses?.join("; and ")
    ))
}

/// The reason, with what to do about it, of one file or of several.
fn describe_unshown_reason(reason: &UnshownReason, is_one: bool) -> Option<String> {
    let (are, have, their) = match is_one {
        true => ("it is", "it has", "its"),
        false => ("they are", "they have", "their"),
    };
    Some(match reason {
        UnshownReason::MediaType { media_type } => format!(
            "{are} {media_type}, and models are shown PNG, JPEG, GIF and WebP images, PDFs and texts"
        ),
        UnshownReason::OtherType => {
            format!("{their} bytes are not of the type that {are} said to be")
        }
        UnshownReason::LargeImage { most } => format!(
            "an image of at most {} is shown; attach a smaller one",
            megabytes(*most)
        ),
        UnshownReason::LargePdf { most } => format!(
            "a PDF of at most {} is shown; attach a part of it",
            megabytes(*most)
        ),
        UnshownReason::LargeText { most } => format!(
            "a text of at most {} bytes is shown; attach a part of it",
            thousands(*most)
        ),
        UnshownReason::Pixels => format!(
            "{have} more than 8,000 pixels on a side, or {their} beginning does not say how many"
        ),
        UnshownReason::Encrypted => {
            format!("{are} encrypted, and providers refuse that; attach what needs no password")
        }
        UnshownReason::Encoding => format!("{their} encoding is not known; save as UTF-8"),
        UnshownReason::ManyImages { most } => {
            format!("a request carries at most {most} images; attach fewer at once")
        }
        UnshownReason::ManyBytes { most } => format!(
            "a request carries at most {} of files; attach fewer or smaller ones at once",
            megabytes(*most)
        ),
        UnshownReason::NoImages { model } => {
            format!("the model `{model}` cannot look at images; choose one that can")
        }
        UnshownReason::NoPdfs { model } => format!(
            "the model `{model}` is not sent PDFs; attach the text, or choose another model"
        ),
        UnshownReason::NoGif => {
            "the Gemini API looks at no GIF; attach PNG, JPEG or WebP".to_owned()
        }
        UnshownReason::Other => return None,
    })
}

/// `3.75 MB`.
fn megabytes(bytes: u64) -> String {
    let (whole, hundredths) = (bytes / 1_000_000, bytes % 1_000_000 / 10_000);
    let number = format!("{whole}.{hundredths:02}");
    let number = number.trim_end_matches('0').trim_end_matches('.');
    format!("{number} MB")
}

/// Names of files in a sentence.
fn list_names(names: &[&str]) -> String {
    let quoted: Vec<String> = names
        .iter()
        .take(MAX_NAMES)
        .map(|name| format!("`{name}`"))
        .collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    match (more, quoted.as_slice()) {
        (1.., _) => format!("{} and {more} more", quoted.join(", ")),
        (0, [before @ .., last]) if !before.is_empty() => {
            format!("{} and {last}", before.join(", "))
        }
        (0, _) => quoted.concat(),
    }
}
