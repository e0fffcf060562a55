//! Whether a PDF is encrypted, as its trailer says: providers refuse the whole conversation for one.
//!
//! Pages are not counted. Their number may stand in a compressed object, and each provider has another
//! limit.

/// The most bytes of a trailer that are looked at.
const MOST_TRAILER: usize = 64 * 1024;

/// Whether bytes are a PDF that says that it is encrypted, also where no password opens it.
#[must_use]
pub fn is_encrypted_pdf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"%PDF-") && newest_trailer(bytes).is_some_and(says_encrypted)
}

/// The newest trailer: a dictionary behind a table of objects, or that of the stream which is the
/// table. Each one of an encrypted file says so.
fn newest_trailer(bytes: &[u8]) -> Option<&[u8]> {
    let end = position(bytes, b"startxref", Side::Last)?;
    let section = section(bytes, end).unwrap_or_default();
    let stream = dictionary(section);
    if position(stream, b"/XRef", Side::First).is_some() {
        return Some(stream);
    }
    let table = section.starts_with(b"xref").then_some(section);
    let own = table.and_then(|table| bytes_after(table, b"trailer", Side::First));
    // Where the table is not where it is said to be, readers look for the trailer too.
    own.or_else(|| bytes_after(bytes, b"trailer", Side::Last))
        .map(dictionary)
}

/// What stands before the stream or the last lines that follow a dictionary.
fn dictionary(bytes: &[u8]) -> &[u8] {
    let bytes = bytes.get(..MOST_TRAILER).unwrap_or(bytes);
    let ends = ["stream", "startxref"].into_iter();
    let end = ends
        .filter_map(|word| position(bytes, word.as_bytes(), Side::First))
        .min();
    end.and_then(|end| bytes.get(..end)).unwrap_or(bytes)
}

/// The bytes from the place that stands behind the `startxref` at this place.
fn section(bytes: &[u8], startxref: usize) -> Option<&[u8]> {
    let told = bytes.get(startxref..)?.strip_prefix(b"startxref")?;
    let told = told.trim_ascii_start();
    let digits = told.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let at: usize = std::str::from_utf8(told.get(..digits)?)
        .ok()?
        .parse()
        .ok()?;
    Some(bytes.get(at..)?.trim_ascii_start())
}

fn says_encrypted(trailer: &[u8]) -> bool {
    const NAME: &[u8] = b"/Encrypt";
    let mut rest = trailer;
    while let Some(at) = position(rest, NAME, Side::First) {
        rest = rest.get(at + NAME.len()..).unwrap_or_default();
        // A longer name is another one.
        if !rest.first().is_some_and(u8::is_ascii_alphanumeric) {
            return true;
        }
    }
    false
}

/// Choice among the places of a word that occurs several times.
#[derive(Clone, Copy)]
enum Side {
    First,
    Last,
}

fn position(bytes: &[u8], word: &[u8], side: Side) -> Option<usize> {
    let mut windows = bytes.windows(word.len());
    match side {
        Side::First => windows.position(|window| window == word),
        Side::Last => windows.rposition(|window| window == word),
    }
}

fn bytes_after<'a>(bytes: &'a [u8], word: &[u8], side: Side) -> Option<&'a [u8]> {
    let at = position(bytes, word, side)?;
    bytes.get(at + word.len()..)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = "%PDF-1.7\n1 0 obj\n(/Encrypt it)\nendobj\n";

    /// A PDF that ends with this, which its last line points to.
    fn pdf(end: &str) -> Vec<u8> {
        format!("{BODY}{end}\nstartxref\n{}\n%%EOF\n", BODY.len()).into_bytes()
    }

    #[test]
    fn an_encrypted_pdf_is_known_by_its_trailer() {
        let table = "xref\n0 1\n0000000000 65535 f \ntrailer\n";
        let encrypted = [
            pdf(&format!("{table}<< /Size 1 /Root 1 0 R /Encrypt 9 0 R >>")),
            pdf(&format!(
                "{table}<</Root 1 0 R/Encrypt<</Filter/Standard>>>>"
            )),
            pdf(
                "8 0 obj\n<< /Type /XRef /Encrypt 9 0 R /Length 3 >>\nstream\nabc\nendstream\nendobj",
            ),
            // The first part of a file for the web, which the last line points to.
            pdf(&format!(
                "{table}<< /Encrypt 9 0 R >>\nstartxref\n0\n%%EOF\n2 0 obj\nendobj"
            )),
        ];
        for bytes in &encrypted {
            let text = String::from_utf8_lossy(bytes);
            assert!(is_encrypted_pdf(bytes), "{text}");
            // Also where the place of the table is wrong.
            if text.contains("trailer") {
                let moved = format!("{text}startxref\n999999\n%%EOF\n");
                assert!(is_encrypted_pdf(moved.as_bytes()), "{moved}");
            }
        }
    }

    #[test]
    fn a_pdf_that_only_speaks_of_it_is_not_encrypted() {
        let table = "xref\n0 1\n0000000000 65535 f \ntrailer\n";
        let plain = [
            pdf(&format!(
                "{table}<< /Size 1 /Root 1 0 R /EncryptMetadata true >>"
            )),
            pdf("8 0 obj\n<< /Type /XRef /Length 3 >>\nstream\n/Encrypt 9 0 R\nendstream\nendobj"),
            b"%PDF-1.7\n/Encrypt 9 0 R".to_vec(),
            b"%PDF-1.7\nstartxref\n99999999999999999999999999\n%%EOF".to_vec(),
            b"no PDF\ntrailer\n<< /Encrypt 9 0 R >>\nstartxref\n0\n%%EOF".to_vec(),
        ];
        for bytes in &plain {
            let text = String::from_utf8_lossy(bytes);
            assert!(!is_encrypted_pdf(bytes), "{text}");
        }
        // However a file is cut, it is read without a fault.
        let whole = pdf("xref\ntrailer\n<< /Encrypt 9 0 R >>");
        for end in 0..whole.len() {
            let _ = is_encrypted_pdf(&whole[..end]);
        }
    }
}
