//! What the attribute makes of source text, and what it says of mistakes. That it compiles and runs is
//! tested with the SDK.

use std::str::FromStr as _;

use super::*;

/// What the attribute makes of source text.
fn expanded(options: &str, block: &str) -> String {
    let tokens = |text: &str| TokenStream::from_str(text).unwrap();
    let made = expand(tokens(options), &tokens(block)).to_string();
    made.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether source text is part of what was made, however blanks are set.
fn has(made: &str, part: &str) -> bool {
    let bare = |text: &str| text.split_whitespace().collect::<String>();
    bare(made).contains(&bare(part))
}

/// The messages of what is wrong.
fn mistakes(options: &str, block: &str) -> Vec<String> {
    let made = expanded(options, block);
    let mut parts = made.split("compile_error ! {");
    parts.next();
    parts
        .map(|part| {
            let end = part.find('}').unwrap();
            part[..end].trim().trim_matches('"').to_owned()
        })
        .collect()
}

const GOOD: &str = "
    /// Keeps notes
    impl Notes {
        const MOST: usize = { 10 };
        helper! { anything }
        /// Adds a note
        #[tool(read_only, timeout_ms = 500, title = \"Add\")]
        #[inline]
        pub(crate) fn add(
            &self,
            cx: &Cx,
            /// What to remember
            #[serde(default)]
            text: Option<Vec<String>>,
            mut count: u32,
        ) -> Result<String> { body(text, count) }
        #[execute(\"clear\")]
        fn run(&self, request: Execute) -> String { helper() }
        fn helper<'a, T: Into<String>>(&self, it: &'a [T]) -> &'a str where T: Copy { it }
    }";

#[test]
fn the_block_stays_as_it_is_without_what_is_the_attributes() {
    let made = expanded("name = \"notes\"", GOOD);
    for part in [
        "const MOST : usize = { 10 } ;",
        "helper ! { anything }",
        "# [inline] pub (crate) fn add (& self , cx : & Cx , text : Option < Vec < String >> , mut count \
         : u32) -> Result < String > { body (text , count) }",
        "fn helper < 'a , T : Into < String >> (& self , it : & 'a [T]) -> & 'a str where T : Copy { it }",
    ] {
        assert!(has(&made, part), "{part}\n{made}");
    }
}

#[test]
fn a_tool_has_the_words_the_options_and_a_type_of_its_arguments() {
    let made = expanded("name = \"notes\", shared", GOOD);
    for part in [
        "Skill :: new (\"notes\" , \"Keeps notes\") . shared ()",
        "struct AddArguments { # [doc = \" What to remember\"] # [serde (default)] text : Option < Vec < \
         String >> , count : u32 }",
        "ToolOptions :: new () . read_only () . timeout_ms (500) . title (\"Add\")",
        "skill . tool_with (\"add\" , \"Adds a note\" , options ,",
        "state . add (cx , arguments . text , arguments . count)",
        "skill . execute (\"clear\" ,",
        "state . run (request)",
    ] {
        assert!(has(&made, part), "{part}\n{made}");
    }
    assert!(!made.contains("compile_error"), "{made}");
}

#[test]
fn a_function_under_a_condition_is_registered_under_it() {
    let made = expanded(
        "",
        "/// A
         impl A {
            /// B
            #[cfg(unix)] #[tool] fn b(&self, #[arguments] all: All) {}
            /// B, elsewhere
            #[cfg(not(unix))] #[tool] fn b(&self) {}
         }",
    );
    assert!(has(&made, "# [cfg (unix)] let skill = {"), "{made}");
    assert!(has(&made, "arguments : All |"), "{made}");
    assert!(
        made.contains("core :: env ! (\"CARGO_PKG_NAME\")"),
        "{made}"
    );
    assert!(!made.contains("compile_error"), "{made}");
}

#[test]
fn what_is_no_block_of_a_type_is_told_and_left_there() {
    for (block, said) in [
        ("fn a() {}", "above an `impl` block of a type"),
        ("impl<T> A<T> {}", "an `impl` with parameters"),
        (
            "impl Clone for A { fn clone(&self) -> A { A } }",
            "not of a trait",
        ),
    ] {
        let found = mistakes("", block);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(said), "{found:?}");
    }
    assert!(expanded("", "fn a() {}").starts_with("fn a () { }"));
}

#[test]
fn each_mistake_is_told_and_all_at_once() {
    let found = mistakes("named = \"a\"", "impl A { fn a(&self) {} }");
    let said = [
        "a skill has `name = \\\"…\\\"` and `shared`",
        "say what the skill is for",
        "no function of it is marked",
    ];
    assert_eq!(found.len(), said.len(), "{found:?}");
    for (found, said) in found.iter().zip(said) {
        assert!(found.contains(said), "{said}: {found}");
    }
    for (function, said) in [
        ("#[tool] fn a(&self) {}", "say what it does"),
        ("/// A\n #[tool] fn a() {}", "take `&self` first"),
        (
            "/// A\n #[tool] fn a(&mut self) {}",
            "belongs into a `Mutex`",
        ),
        (
            "/// A\n #[tool] fn a(self: Arc<Self>) {}",
            "belongs into a `Mutex`",
        ),
        ("/// A\n #[tool] async fn a(&self) {}", "leave `async` out"),
        (
            "/// A\n #[tool] fn a<T>(&self) {}",
            "leave its type parameters out",
        ),
        (
            "/// A\n #[tool] fn a(&self, it: &str) {}",
            "an argument is owned",
        ),
        (
            "/// A\n #[tool] fn a(&self, (b, c): (u8, u8)) {}",
            "an argument has a name",
        ),
        (
            "/// A\n #[tool] fn a(&self, #[serde(default)] #[cfg(unix)] b: u8) {}",
            "an argument has doc comments",
        ),
        (
            "/// A\n #[tool] fn a(&self, b: u8, #[arguments] c: C) {}",
            "for the only parameter",
        ),
        ("/// A\n #[tool(quick)] fn a(&self) {}", "a tool has `name"),
        (
            "/// A\n #[tool(name = \"a b\")] fn a(&self) {}",
            "ASCII letters",
        ),
        (
            "/// A\n #[tool] #[read] fn a(&self) {}",
            "a function is one thing",
        ),
        (
            "#[execute] fn a(&self, it: Execute) {}",
            "say what it takes",
        ),
        (
            "#[execute(\"a\")] fn a(&self) {}",
            "takes its request: `request: Execute`",
        ),
        (
            "#[execute(a)] fn a(&self, it: Execute) {}",
            "words for the model",
        ),
        (
            "/// A\n #[tool] fn a(&self) {} /// A\n #[tool(name = \"a\")] fn b(&self) {}",
            "there is a `a` already",
        ),
        ("#[create] fn a(&self) -> A { A }", "has none yet"),
        ("#[create(x)] fn a() -> A { A }", "takes no more words"),
        (
            "#[create] fn a(a: &Setup, b: u8) -> A { A }",
            "takes nothing, or a `&Setup`",
        ),
        (
            "#[create] fn a() -> A { A } #[create] fn b() -> A { A }",
            "a `#[create]` already",
        ),
    ] {
        let block = format!("/// A\nimpl A {{ /// Z\n #[tool] fn z(&self) {{}} {function} }}");
        let found = mistakes("", &block);
        assert_eq!(found.len(), 1, "{function}: {found:?}");
        assert!(found[0].contains(said), "{function}: {found:?}");
        // What compiles without the attribute is there, without its marks.
        let made = expanded("", &block);
        let block = made.split("compile_error").next().unwrap();
        assert!(!has(block, "#[tool"), "{made}");
        assert!(made.starts_with("# [doc = \" A\"] impl A {"), "{made}");
    }
}
