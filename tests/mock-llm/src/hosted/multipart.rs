//! Reads `multipart/form-data`, as far as clients of the provider write it.

use crate::request::Request;

/// A field of a form.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) filename: Option<String>,
    pub(super) media_type: Option<String>,
    pub(super) bytes: Vec<u8>,
}

/// The fields of a request's form; nothing when it is none, or is not whole.
pub(super) fn fields(request: &Request) -> Option<Vec<Field>> {
    let media_type = request.header("content-type")?;
    let (kind, parameters) = media_type.split_once(';')?;
    if kind.trim() != "multipart/form-data" {
        return None;
    }
    let boundary = parameter(parameters, "boundary")?;
    let opening = format!("--{boundary}\r\n").into_bytes();
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    let mut rest = request.raw_body.strip_prefix(opening.as_slice())?;
    let mut fields = Vec::new();
    loop {
        let end = find(rest, &delimiter)?;
        let (part, after) = rest.split_at(end);
        fields.push(field(part)?);
        let after = after.get(delimiter.len()..)?;
        if after.starts_with(b"--") {
            return Some(fields);
        }
        rest = after.strip_prefix(b"\r\n")?;
    }
}

fn field(part: &[u8]) -> Option<Field> {
    let end = find(part, b"\r\n\r\n")?;
    let (head, body) = part.split_at(end);
    let head = String::from_utf8(head.to_vec()).ok()?;
    let value = |wanted: &str| {
        head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted)
                .then(|| value.trim().to_owned())
        })
    };
    let disposition = value("content-disposition")?;
    Some(Field {
        name: parameter(&disposition, "name")?,
        filename: parameter(&disposition, "filename"),
        media_type: value("content-type"),
        bytes: body.get(4..)?.to_vec(),
    })
}

/// A parameter of a header, its quotes and their escapes taken away.
fn parameter(header: &str, wanted: &str) -> Option<String> {
    header.split(';').find_map(|piece| {
        let (name, value) = piece.trim().split_once('=')?;
        let value = value.trim().trim_matches('"');
        (name == wanted).then(|| value.replace("%22", "\"").replace("\\\"", "\""))
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes
        .windows(wanted.len())
        .position(|window| window == wanted)
}
