//! `conjure plugin check`: what is to be said of a plugin beside that a host takes it.

use serde_json::Value;

use crate::plugin_test::{built_with, failed, outcomes, tested};
use crate::stage::{conjure, json, workspace};

/// The findings, as `level about: message`.
fn findings(said: &Value) -> Vec<String> {
    let findings = said["judgement"]["findings"].as_array().unwrap();
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    findings
        .iter()
        .map(|it| {
            let (level, about) = (word(&it["level"]), word(&it["about"]));
            format!("{level} {about}: {}", word(&it["message"]))
        })
        .collect()
}

#[test]
fn a_tool_that_a_wire_does_not_take_is_refused_and_names_that_leak_are_warned_of() {
    let workspace = workspace(&[]);
    let library = built_with(
        &workspace,
        "skill",
        "leaking-skill",
        &[
            (
                "        // `conjure plugin test` runs these.\n",
                "        .raw_tool(\"walk\", \"\", json!({ \"type\": \"object\", \"properties\": {\n\
                 \"next\": { \"$ref\": \"#\" } } }), ToolOptions::new(), |_cx, _any| \"done\")\n",
            ),
            (
                "export_skill!(skill);",
                "export_skill!(skill);\n\n#[no_mangle]\npub extern \"C\" fn helper_of_mine() -> u8 { 7 }",
            ),
        ],
    );
    let check = format!("plugin check {}", library.display());
    let output = conjure(&workspace, &format!("{check} --json"))
        .run()
        .unwrap();
    assert_eq!(output.code, Some(1), "{output:?}");
    let said = json(&output);
    assert_eq!(said["ok"], false);
    assert_eq!(said["judgement"]["other_symbols"], 1);
    let findings = findings(&said);
    for (start, part) in [
        (
            "refusal schema: gemini: ",
            "the tool `leaking-skill_walk` is left out",
        ),
        ("warning description: ", "`walk` has no description"),
        ("warning symbols: ", "helper_of_mine"),
    ] {
        let found = findings.iter().find(|it| it.starts_with(start));
        assert!(
            found.is_some_and(|it| it.contains(part)),
            "{start}: {findings:?}"
        );
    }
    let output = conjure(&workspace, &check).run().unwrap();
    assert_eq!(output.code, Some(1), "{output:?}");
    for part in [
        "refused: schema: gemini",
        "warning: symbols: it exports 1 name",
    ] {
        assert!(output.stdout.contains(part), "{part}: {output:?}");
    }
}

#[test]
fn tools_that_a_skill_has_at_run_time_only_are_looked_at_too() {
    let workspace = workspace(&[]);
    let library = built_with(
        &workspace,
        "skill",
        "later-skill",
        &[(
            "        // `conjure plugin test` runs these.\n",
            "        .run_time_tools(\n\
             |_cx| Ok(vec![conjure_skill_sdk::protocol::ToolDecl::new(\"walk\", \"Walks\",\n\
             json!({ \"type\": \"object\", \"required\": [\"to\"], \"properties\": {\n\
             \"to\": { \"type\": \"string\" }, \"next\": { \"$ref\": \"#\" } } }))]),\n\
             |_cx, name, _any| format!(\"{name} is done\"))\n",
        )],
    );
    let check = format!("plugin check {} --json", library.display());
    let output = conjure(&workspace, &check).run().unwrap();
    assert_eq!(output.code, Some(1), "{output:?}");
    let said = json(&output);
    let tools = said["tools"].as_array().unwrap();
    assert!(tools.iter().any(|tool| tool == "walk"), "{said:#}");
    let findings = findings(&said);
    let refused = findings.iter().any(|it| {
        it.starts_with("refusal schema: gemini: ") && it.contains("`later-skill_walk` is left out")
    });
    assert!(refused, "{findings:?}");
    // The contract of a skill has them as well: this one takes whatever it is given.
    let more = "--isolation process --only time";
    let (output, said) = tested(&workspace, library.to_str().unwrap(), more);
    assert_eq!(output.code, Some(1), "{said:#}");
    let listed = "passed its tools at run time can be listed".to_owned();
    assert!(outcomes(&said, 0).contains(&listed), "{said:#}");
    let [(check, got)] = &failed(&said)[..] else {
        panic!("{said:#}");
    };
    assert!(check.contains("at run time refuse arguments"), "{check}");
    assert!(got.contains("walk is done"), "{got}");
}

#[test]
fn the_licence_of_the_crate_is_found_beside_its_target_directory() {
    let workspace = workspace(&[]);
    let library = built_with(&workspace, "backend", "licensed-backend", &[]);
    let dir = workspace.work().join("licensed-backend");
    let file = dir.join("target/debug/liblicensed_backend.so");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::copy(library, &file).unwrap();
    let check = "plugin check licensed-backend/target/debug/liblicensed_backend.so";
    let output = conjure(&workspace, check).run().unwrap();
    // What is only warned of is taken.
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output
            .stdout
            .contains("tools     1, which every wire takes"),
        "{output:?}"
    );
    let warned = "warning: licence: ";
    assert!(output.stdout.contains(warned), "{output:?}");
    let manifest = dir.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let licensed = text.replace("edition = ", "license = \"MIT\"\nedition = ");
    std::fs::write(&manifest, licensed).unwrap();
    let output = conjure(&workspace, check).run().unwrap();
    let named = "licence   MIT (licensed-backend/Cargo.toml)";
    assert!(output.stdout.contains(named), "{output:?}");
    assert!(!output.stdout.contains(warned), "{output:?}");
}

#[test]
fn whoever_asks_needs_no_data_directory() {
    let workspace = workspace(&[]);
    let made = conjure(&workspace, "plugin create skill asked --lang python");
    assert_eq!(made.run().unwrap().code, Some(0));
    // Where nobody makes a directory, root included.
    let nowhere = "/proc/self/nowhere/data";
    let check = "plugin check asked/asked.plugin.toml";
    let check = conjure(&workspace, check).env("CONJURE_DATA_DIR", nowhere);
    let output = check.run().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("a host takes it"), "{output:?}");
    let dev = conjure(&workspace, "plugin dev --serve asked");
    let output = dev.env("CONJURE_DATA_DIR", nowhere).run().unwrap();
    assert_ne!(output.code, Some(0), "{output:?}");
    assert!(output.stderr.contains("--data-dir"), "{output:?}");
}

#[test]
fn a_manifest_without_a_field_is_told_with_its_place() {
    let workspace = workspace(&[]);
    let made = conjure(&workspace, "plugin create skill formless --lang python");
    assert_eq!(made.run().unwrap().code, Some(0));
    let file = workspace.work().join("formless/formless_skill.py");
    let text = std::fs::read_to_string(&file).unwrap();
    let main = "if __name__ == \"__main__\":";
    assert!(text.contains(main), "{text}");
    let spoilt = text.replace(main, &format!("del skill._tools[1][\"name\"]\n\n{main}"));
    std::fs::write(file, spoilt).unwrap();
    let check = "plugin check formless/formless.plugin.toml";
    let output = conjure(&workspace, check).run().unwrap();
    assert_eq!(output.code, Some(1), "{output:?}");
    for part in ["`tools[1]`", "missing field `name`"] {
        assert!(output.stdout.contains(part), "{part}: {output:?}");
    }
}
