//! What the model reads in place of something that cannot be sent to it.
//!
//! The repair and the wires decide what is replaced; the words are made here. Each note is in
//! brackets, so that a model does not take it for something that was said.

use serde_json::Value;

use crate::chat::ArtifactRef;
use crate::numerals::count;

/// The most characters of a foreign item that a note repeats.
const ITEM_CHARS: usize = 2_000;

/// Stands for a file whose bytes are not sent.
#[must_use]
pub fn file(artifact: &ArtifactRef) -> String {
    let size = artifact
        .size
        .map(|size| format!(", {}", count(size, "byte")))
        .unwrap_or_default();
    let name = one_line(&artifact.name);
    let media_type = one_line(&artifact.media_type);
    format!("[file: {name}, {media_type}{size}, id {}]", artifact.id)
}

/// Stands for an image or a file that this model cannot look at.
#[must_use]
pub fn unviewable_file(artifact: &ArtifactRef) -> String {
    format!("{} [this model cannot look at it]", file(artifact))
}

/// Stands for a file that a person attached and of which a request carries only this.
#[must_use]
pub fn name_only_file(artifact: &ArtifactRef) -> String {
    format!(
        "{} [what is in it is not shown here; tools can open it]",
        file(artifact)
    )
}

/// Stands for a file that was attached and is not there any more.
#[must_use]
pub fn missing_file(artifact: &ArtifactRef) -> String {
    format!(
        "{} [it was attached, and its bytes are not here]",
        file(artifact)
    )
}

/// Stands for an item of a provider's own tools that cannot go back to it.
#[must_use]
pub fn server_item(provider: &str, item: &Value) -> String {
    let mut shown = item.clone();
    drop_secrets(&mut shown);
    let mut text = shown.to_string();
    if let Some((cut, _)) = text.char_indices().nth(ITEM_CHARS) {
        text.truncate(cut);
        text.push('…');
    }
    format!("[{provider} ran a tool of its own: {text}]")
}

/// The result of a call that has none.
pub const NO_RESULT: &str = "[No result of this call is known: it may have taken effect or not. \
                             Check before you call it again.]";

/// The result of a call that failed without a word.
pub const FAILED_SILENTLY: &str = "[The call failed and gave no reason.]";

/// Stands in front of a failed call's result where the wire has no field that says so.
pub const CALL_FAILED: &str = "[The call failed.]";

/// A failed call's result where the wire has no field that says so.
#[must_use]
pub fn failed_call(text: &str) -> String {
    format!("{CALL_FAILED}\n{text}")
}

/// Asks for an answer of a form, where a provider takes no schema for it.
#[must_use]
pub fn answer_form(schema: &Value) -> String {
    format!("Answer with one JSON object that fits this JSON Schema, and nothing else: {schema}")
}

/// Asks again for an answer that did not have its form.
#[must_use]
pub fn answer_does_not_fit(wrong: &str) -> String {
    host_note(&format!(
        "Your answer does not fit the JSON Schema that was asked for: {wrong}. Answer again, with one \
         JSON value that fits it and nothing else."
    ))
}

/// Opens a conversation whose beginning is not there.
pub const BEGINNING_MISSING: &str = "[The conversation before this is not shown.]";

/// Lets a model go on whose own words came last.
pub const CONTINUE: &str = "Continue.";

/// What the host says inside a conversation.
#[must_use]
pub fn host_note(text: &str) -> String {
    format!("[note of the host] {text}")
}

/// What stands for the entries that a compaction hides.
#[must_use]
pub fn summary(text: &str) -> String {
    format!("[summary of the conversation so far]\n{text}")
}

/// Says where tools work that work elsewhere than the others.
#[must_use]
pub fn other_working_dir(tools: &[&str], dir: &str) -> String {
    format!("For {} the working directory is {dir}.\n", tools.join(", "))
}

/// Says what the commands of a session may do in their sandbox. `places` are where they write.
#[must_use]
pub fn sandbox_limits(places: &[String], network: bool) -> String {
    let (last, before) = places
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    let places = match before.is_empty() {
        true => last.to_owned(),
        false => format!("{} and {last}", before.join(", ")),
    };
    let network = if network { "" } else { " and have no network" };
    format!("they write only in {places}{network}")
}

/// Says so of these tools.
#[must_use]
pub fn sandboxed_tools(tools: &[&str], sandboxed: &str) -> String {
    format!(
        "Commands of {} run in a sandbox: {sandboxed}. What it refuses stays refused, in whatever way it is \
         tried; ask the person to allow it.\n",
        tools.join(", ")
    )
}

/// Says that an executor keeps its commands to no sandbox, though the session has one.
#[must_use]
pub fn sandbox_unsupported(executor: &str) -> String {
    format!(
        "{executor}: its commands are not in the sandbox of this session, since the executor does not announce \
         `executor.sandbox/1`; what confines them is the executor's own. Use one that does, such as `local`"
    )
}

/// Stands behind the output of a command that something was refused to, where that may have been its
/// sandbox.
#[must_use]
pub fn sandbox_hint(sandboxed: &str) -> String {
    format!(
        "[This session's commands run in a sandbox: {sandboxed}. If that is what refused it, another way \
         will not work either. The person can allow more with `sandbox` in the session's settings (`write` \
         and `read` with paths, `network = true`, or `\"none\"`), or on the command line with \
         `--allow-write`, `--allow-read`, `--allow-network` or `--sandbox none`.]"
    )
}

/// Whether the output of a command says that something was refused to it, as a sandbox does.
#[must_use]
pub fn is_permission_error(output: &str) -> bool {
    const PHRASES: [&str; 15] = [
        "permission denied",
        "operation not permitted",
        "read-only file system",
        "could not resolve",
        "couldn't connect",
        "failed to connect",
        "failed to lookup address",
        "name resolution",
        "no such host",
        "network is unreachable",
        "eacces",
        "eai_again",
        "enetunreach",
        "eperm",
        "erofs",
    ];
    let output = output.to_ascii_lowercase();
    PHRASES.iter().any(|words| output.contains(words))
}

/// Stands for the middle of a text that was shortened.
#[must_use]
pub fn omitted_characters(characters: usize) -> String {
    let verb = if characters == 1 { "is" } else { "are" };
    let characters = count(characters as u64, "character");
    format!("\n[… {characters} {verb} left out …]\n")
}

/// Takes out what is encrypted: it says nothing to another model and may be very long.
fn drop_secrets(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                !name.starts_with("encrypted")
                    && !matches!(name.as_str(), "signature" | "thoughtSignature")
            });
            fields.values_mut().for_each(drop_secrets);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_secrets),
        _ => {}
    }
}

fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() || c == ']' { ' ' } else { c })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_something_is_not_several() {
        let mut artifact = ArtifactRef {
            id: "file-1".into(),
            name: "a.txt".to_owned(),
            media_type: "text/plain".to_owned(),
            size: Some(1),
        };
        assert_eq!(
            file(&artifact),
            "[file: a.txt, text/plain, 1 byte, id file-1]"
        );
        artifact.size = Some(2);
        assert_eq!(
            file(&artifact),
            "[file: a.txt, text/plain, 2 bytes, id file-1]"
        );
        assert_eq!(omitted_characters(1), "\n[… 1 character is left out …]\n");
        assert_eq!(omitted_characters(2), "\n[… 2 characters are left out …]\n");
    }

    #[test]
    fn what_was_refused_is_known_however_it_is_written() {
        for said in [
            "sh: 1: cannot create /x: Permission denied",
            "error: read-only file system (os error 30)",
            "EROFS: read-only",
            "getaddrinfo EAI_AGAIN example.com",
            "connect ENETUNREACH 1.1.1.1:443",
            "failed to lookup address information: Temporary failure",
            "dial tcp: lookup example.com: no such host",
        ] {
            assert!(is_permission_error(said), "{said}");
        }
        for said in [
            "",
            "cat: nowhere: No such file or directory",
            "tests failed",
        ] {
            assert!(!is_permission_error(said), "{said}");
        }
    }
}
