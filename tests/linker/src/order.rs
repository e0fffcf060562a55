//! In which order functions lie.

use std::collections::HashMap;

/// Functions that are to lie side by side, by their names in the source: what a compiler adds to a
/// name to tell two functions apart differs from build to build.
pub struct Order<'a>(HashMap<&'a str, usize>);

impl<'a> Order<'a> {
    /// Reads names, one a line.
    pub fn new(names: &'a str) -> Self {
        let names = names.lines().filter(|line| !line.is_empty());
        Self(names.zip(0..).collect())
    }

    /// Of these symbols those that the order names, one a line, as lld reads them.
    pub fn of(&self, symbols: &[String]) -> String {
        let mut placed: Vec<_> = symbols
            .iter()
            .filter_map(|symbol| Some((self.0.get(name(symbol).as_str())?, symbol)))
            .collect();
        placed.sort();
        placed.dedup();
        placed
            .iter()
            .map(|(_, symbol)| format!("{symbol}\n"))
            .collect()
    }
}

/// What a symbol is called in the source, without what the compiler added.
pub fn name(symbol: &str) -> String {
    let mut name = format!("{:#}", rustc_demangle::demangle(symbol));
    // Functions of one name that optimisation made are numbered.
    if let Some((plain, number)) = name.rsplit_once('.')
        && number.bytes().all(|byte| byte.is_ascii_digit())
    {
        name.truncate(plain.len());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_stand_as_their_names_do() {
        let order = Order::new("core::fmt::write\nalloc::string::String::push\nsqlite3_step\n");
        let symbols = [
            "sqlite3_step",
            "_ZN5alloc6string6String4push17h0123456789abcdefE",
            "_ZN4core3fmt5write17h0123456789abcdefE",
            "_ZN4core3fmt5write17hfedcba9876543210E.1210",
            "sqlite3_open",
        ];
        let placed = order.of(&symbols.map(str::to_owned));
        assert_eq!(
            placed,
            "_ZN4core3fmt5write17h0123456789abcdefE\n\
             _ZN4core3fmt5write17hfedcba9876543210E.1210\n\
             _ZN5alloc6string6String4push17h0123456789abcdefE\n\
             sqlite3_step\n"
        );
    }
}
