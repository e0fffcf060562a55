//! Lines as a shell reads them, without variables and what else it puts into words.

/// The words of a line, as a shell makes them.
pub(crate) fn split(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some(end) if end == c => break,
                        Some('\\') if c == '"' => word.extend(chars.next()),
                        Some(inside) => word.push(inside),
                        None => {
                            let begin: Vec<&str> = line.split_whitespace().take(3).collect();
                            let begin = begin.join(" ");
                            return Err(format!("a {c} is not closed in `{begin} …`"));
                        }
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(chars.next()),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}
