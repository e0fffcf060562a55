//! The order in which functions lie.

use std::collections::HashMap;

/// Functions that are to lie side by side, by their names in the source with the types that they were
/// made for: what else a compiler adds to a name, to tell two functions apart, differs from build to
/// build.
pub struct Order<'a>(HashMap<&'a str, usize>);

impl<'a> Order<'a> {
    /// Reads names, one a line.
    pub fn new(names: &'a str) -> Self {
        let names = names.lines().filter(|line| !line.is_empty());
        Self(names.zip(0..).collect())
    }

    /// Symbols of the given ones that the order names, one a line, as lld reads them.
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

/// The longest line of an order, in bytes. A generic function's name has those of its types.
const LINE: usize = 160;

/// What a symbol is called in the source, without what the compiler added. A name that is too long for
/// a line is cut, and ends in a number that tells it from others that begin alike.
pub fn name(symbol: &str) -> String {
    let mut name = demangled_name(symbol);
    if name.len() > LINE {
        let number = fnv(name.as_bytes());
        let room = LINE - " #0123456789abcdef".len();
        name.truncate(name.floor_char_boundary(room));
        name.push_str(&format!(" #{number:016x}"));
    }
    name
}

/// FNV-1a hash: the same number for the same bytes with every compiler.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn demangled_name(symbol: &str) -> String {
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
        let order = Order::new(
            "core::fmt::write\nalloc::string::String::push\nsqlite3_step\nfirst::second::<u8>\n",
        );
        let symbols = [
            "sqlite3_step",
            "_ZN5alloc6string6String4push17h0123456789abcdefE",
            "_ZN4core3fmt5write17h0123456789abcdefE",
            "_ZN4core3fmt5write17hfedcba9876543210E.1210",
            "sqlite3_open",
            // `first::second::<u8>` in two builds, and `first::second::<u16>`.
            "_RINvCs1234_5first6secondhE",
            "_RINvCs5678_5first6secondhE",
            "_RINvCs1234_5first6secondtE",
        ];
        let placed = order.of(&symbols.map(str::to_owned));
        assert_eq!(
            placed,
            "_ZN4core3fmt5write17h0123456789abcdefE\n\
             _ZN4core3fmt5write17hfedcba9876543210E.1210\n\
             _ZN5alloc6string6String4push17h0123456789abcdefE\n\
             sqlite3_step\n\
             _RINvCs1234_5first6secondhE\n\
             _RINvCs5678_5first6secondhE\n"
        );
    }

    #[test]
    fn a_long_name_is_cut_and_stays_one_of_its_own() {
        let [one, other] = ["a", "b"].map(|end| "long::".repeat(40) + end);
        assert_eq!(name(&one), name(&one));
        assert_eq!(name(&one).len(), LINE);
        assert!(name(&one).starts_with("long::long::"));
        assert_ne!(name(&one), name(&other));
        assert_eq!(name("short"), "short");
    }
}
