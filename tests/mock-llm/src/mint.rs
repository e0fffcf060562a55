//! Ids and signatures of the mock's own making, each in its wire's grammar and recognised again.
//!
//! A provider knows its own signatures because it holds the key; the mock puts wire, model and a
//! sum of the signed text into each, so that it recognises them without keeping any, in another
//! process too. Nothing here is secret.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use crate::wire::Wire;

/// What came back, compared with what the mock makes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Origin {
    /// Made by a mock for this wire and model, and for what it stands beside.
    Own,
    /// Made by a mock for this wire and model, but for something else.
    Edited,
    /// Anything else.
    Foreign,
}

/// The signature that a mock puts beside a piece of reasoning: Anthropic's `signature`, the
/// `encrypted_content` of Responses, the `data` of Chat's reasoning details, Gemini's
/// `thoughtSignature`.
///
/// `signed` is what it may not be parted from: the thinking (Anthropic), the name of the function on
/// whose call it stands (Gemini; empty on a text). The other wires do not look at it. Those in an
/// answer differ from each other even when they sign the same.
#[must_use]
pub fn signature(wire: Wire, model: &str, signed: &str) -> String {
    encode(wire, &family(model), hash(signed), 0)
}

/// As [`signature`], unlike any other.
pub(crate) fn signature_of(wire: Wire, model: &str, signed: &str, seed: &str) -> String {
    encode(wire, &family(model), hash(signed), hash(seed))
}

fn encode(wire: Wire, family: &str, content: u64, nonce: u64) -> String {
    let payload = format!("conjure-mock|{wire}|{family}|{content:016x}|{nonce:016x}");
    let payload = format!("{payload}|{:016x}", hash(&payload));
    match wire {
        Wire::Anthropic => STANDARD.encode([b"\x12\x80".as_slice(), payload.as_bytes()].concat()),
        Wire::Responses | Wire::Chat => {
            let bytes = [[0x80, 0, 0, 0, 0, 0x68].as_slice(), payload.as_bytes()].concat();
            URL_SAFE.encode(bytes)
        }
        Wire::Gemini => STANDARD.encode([b"\x0a\x80".as_slice(), payload.as_bytes()].concat()),
    }
}

/// Where a signature comes from. `signed`: what it must have been made for, if that matters.
pub(crate) fn origin(wire: Wire, model: &str, signature: &str, signed: Option<&str>) -> Origin {
    match content_of(wire, &family(model), signature) {
        None => Origin::Foreign,
        Some(content) if signed.is_some_and(|signed| hash(signed) != content) => Origin::Edited,
        Some(_) => Origin::Own,
    }
}

/// The sum inside a signature that a mock made for this wire and model.
fn content_of(wire: Wire, family: &str, signature: &str) -> Option<u64> {
    let bytes = match wire {
        Wire::Responses | Wire::Chat => URL_SAFE.decode(signature).ok()?,
        Wire::Anthropic | Wire::Gemini => STANDARD.decode(signature).ok()?,
    };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut fields = text.rsplit('|').skip(1);
    let mut number = || u64::from_str_radix(fields.next()?, 16).ok();
    let (nonce, content) = (number()?, number()?);
    (encode(wire, family, content, nonce) == signature).then_some(content)
}

/// An id for an item of Responses: its prefix, the reasoning item before it, and a check.
pub(crate) fn item_id(prefix: &str, seed: &str, after: Option<&str>) -> String {
    let link = after.map_or(0, |id| hash(id) >> 32);
    let id = format!(
        "{prefix}_{link:08x}{:016x}{:016x}",
        hash(seed),
        hash(prefix)
    );
    format!("{id}{:08x}", hash(&id) >> 32)
}

/// Whether a mock made this id of an item or a response.
pub(crate) fn is_own_id(id: &str) -> bool {
    id.len()
        .checked_sub(8)
        .and_then(|at| id.split_at_checked(at))
        .is_some_and(|(head, sum)| !head.is_empty() && format!("{:08x}", hash(head) >> 32) == sum)
}

/// Whether the item with this id was made directly after reasoning, and whether that reasoning is
/// the item with the other id. `None`: made without reasoning, or not by a mock.
pub(crate) fn follows(id: &str, before: Option<&str>) -> Option<bool> {
    let (_, rest) = id.split_once('_')?;
    let link = rest.get(..8)?;
    if !is_own_id(id) || link == "00000000" {
        return None;
    }
    Some(before.is_some_and(|before| format!("{:08x}", hash(before) >> 32) == link))
}

/// Letters and digits made from a seed.
pub(crate) fn random_word(prefix: &str, seed: &str, length: usize) -> String {
    const LETTERS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut state = hash(seed);
    let mut word = prefix.to_owned();
    for _ in 0..length {
        state = mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15));
        let at = usize::try_from(state % 62).unwrap_or_default();
        word.push(LETTERS.get(at).copied().map_or('0', char::from));
    }
    word
}

/// A model's name without vendor and date: a snapshot and its alias sign alike.
pub(crate) fn family(model: &str) -> String {
    let name = model.rsplit('/').next().unwrap_or(model);
    let name = name.split(['@', ':']).next().unwrap_or(name);
    let name = name.strip_suffix("-latest").unwrap_or(name);
    let is_date_part = |part: &str| {
        matches!(part.len(), 2 | 4 | 8) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    let parts: Vec<&str> = name.split('-').collect();
    let kept = match parts.as_slice() {
        [kept @ .., year, month, day]
            if year.len() == 4
                && [year, month, day]
                    .into_iter()
                    .all(|part| is_date_part(part)) =>
        {
            kept
        }
        [kept @ .., date] if date.len() == 8 && is_date_part(date) => kept,
        all => all,
    };
    kept.join("-").to_ascii_lowercase()
}

/// FNV-1a and a final mix: the same in every build.
pub(crate) fn hash(text: &str) -> u64 {
    mix(text.bytes().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}

fn mix(mut state: u64) -> u64 {
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}
