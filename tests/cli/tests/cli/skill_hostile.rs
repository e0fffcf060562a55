//! `conjure skill check` on folders whose front matter is made to cost time or memory: each is
//! refused with a reason, because reading ends at a limit.

use crate::stage::{conjure, workspace};

#[test]
fn front_matter_that_is_made_to_cost_much_is_refused_with_a_reason() {
    let workspace = workspace(&[]);
    let mut bomb = "a: &a [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for (one, other) in "abcdefgh".chars().zip("bcdefghi".chars()) {
        let repeats = vec![format!("*{one}"); 9].join(", ");
        bomb.push_str(&format!("{other}: &{other} [{repeats}]\n"));
    }
    let blocks: String = (0..300).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    let keys: String = (0..6_000).map(|n| format!("k{n}:\n")).collect();
    for (name, yaml, reason) in [
        ("flow", "[".repeat(50_000), "too deeply nested"),
        (
            "large",
            "a: ".to_owned() + &"[".repeat(200_000),
            "too many bytes",
        ),
        ("blocks", blocks, "too deeply nested"),
        ("aliases", bomb, "too many values"),
        ("keys", keys, "too many values"),
    ] {
        let file = format!("---\nname: {name}\ndescription: d\n{yaml}\n---\nBody.\n");
        workspace.write(format!("{name}/SKILL.md"), file).unwrap();
        let output = conjure(&workspace, &format!("skill check {name}"))
            .run()
            .unwrap();
        let said = format!("{}{}", output.stdout, output.stderr);
        assert_ne!(output.code, Some(0), "{name}");
        assert!(said.contains(reason), "{name}: {said}");
    }
}
