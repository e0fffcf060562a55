//! `conjure completions` and `conjure man`.

use crate::stage::{conjure, workspace};

#[test]
fn every_shell_gets_a_script_that_knows_the_verbs() {
    let workspace = workspace(&[]);
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = conjure(&workspace, &format!("completions {shell}"))
            .run()
            .unwrap();
        assert_eq!(
            (output.code, output.stderr.as_str()),
            (Some(0), ""),
            "{shell}"
        );
        for verb in ["run", "chat", "routes", "policy", "untrust"] {
            assert!(output.stdout.contains(verb), "{shell}: {verb}");
        }
    }
    let output = conjure(&workspace, "completions tcsh").run().unwrap();
    assert_eq!(output.code, Some(2), "{output:?}");
}

#[test]
fn the_script_for_bash_completes_a_verb() {
    let workspace = workspace(&[]);
    let script = conjure(&workspace, "completions bash")
        .run()
        .unwrap()
        .stdout;
    workspace.write("conjure.bash", script).unwrap();
    let complete = "source conjure.bash; COMP_WORDS=(conjure ro); COMP_CWORD=1; \
                    _conjure conjure ro conjure; echo \"${COMPREPLY[@]}\"";
    let output = conjure_kit::Cli::program("/bin/bash", ["-c", complete])
        .workspace(&workspace)
        .run()
        .unwrap();
    assert_eq!(output.stdout, "routes\n", "{output:?}");
}

#[test]
fn each_verb_gets_a_man_page() {
    let workspace = workspace(&[]);
    let pages = workspace.root().join("pages/man1");
    let man = |dir: &std::path::Path| {
        let line = format!("man {}", dir.display());
        conjure(&workspace, &line).run().unwrap()
    };
    let output = man(&pages);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let page = |name: &str| std::fs::read_to_string(pages.join(name)).unwrap();
    assert!(page("conjure.1").contains("A host for AI agents"));
    assert!(page("conjure-thread-show.1").contains("SYNOPSIS"));
    let refused = man(&pages.join("conjure.1/under"));
    assert_eq!(refused.code, Some(2), "{refused:?}");
}
