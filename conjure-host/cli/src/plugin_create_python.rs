//! `conjure plugin create KIND NAME --lang python`: a directory that works as it is.

use std::path::Path;

use conjure_sdk_source::SourceFile;
use serde_json::json;

use super::args::{Global, display_path};
use super::error::CliError;
use super::exit::Exit;
use super::output;
use super::plugin_create::{TemplateKind, shell_word, title};

/// The module of a plugin. A name of one word may be one of Python's own words or modules, which the
/// plugin's file would hide.
fn module(name: &str, kind: &str) -> String {
    let module = name.replace('-', "_");
    match module.contains('_') && module != "conjure_plugin" {
        true => module,
        false => format!("{module}_{kind}"),
    }
}

/// Writes the directory.
pub(crate) fn run(
    global: &Global,
    kind: TemplateKind,
    name: &str,
    dir: &Path,
) -> Result<Exit, CliError> {
    let (word, program, test) = match kind {
        TemplateKind::Skill => ("skill", SKILL, SKILL_TEST),
        TemplateKind::Executor => ("executor", EXECUTOR, EXECUTOR_TEST),
        TemplateKind::Backend => ("backend", BACKEND, BACKEND_TEST),
    };
    let module = module(name, word);
    // How the result is tried at once.
    let tried = match kind {
        TemplateKind::Skill => format!("call {name}_greet --args '{{\"name\": \"Ada\"}}'"),
        TemplateKind::Executor => {
            format!("call {name}_bash_tool --executor {name} --args '{{\"command\": \"ls\"}}'")
        }
        TemplateKind::Backend => {
            format!("call {name}_echo --executor {name} --args '{{\"text\": \"hi\"}}'")
        }
    };
    let fill = |text: &str| {
        text.replace("{{name}}", name)
            .replace("{{module}}", &module)
            .replace("{{title}}", &title(name))
            .replace("{{kind}}", word)
            .replace("{{tried}}", &tried)
    };
    let description = format!("{name}.plugin.toml");
    let files = [
        (description.clone(), fill(DESCRIPTION)),
        (format!("{module}.py"), fill(program)),
        (format!("test_{module}.py"), fill(test)),
        ("README.md".to_owned(), fill(README)),
    ];
    let sdk = conjure_sdk_source::files().map_err(CliError::host_from)?;
    let is_sdk = |file: &SourceFile| file.path == conjure_sdk_source::PYTHON;
    let sdk = sdk.into_iter().find(is_sdk).ok_or_else(|| {
        CliError::host(
            "the SDK that this program carries lacks the file for Python; install it again",
        )
    })?;
    conjure_config::fs::create_dir_all(dir).map_err(CliError::host_from)?;
    let files = files
        .into_iter()
        .map(|(name, text)| (name, text.into_bytes()));
    for (name, bytes) in files.chain([("conjure_plugin.py".to_owned(), sdk.bytes)]) {
        conjure_config::fs::write(dir.join(name), bytes).map_err(CliError::host_from)?;
    }
    if global.json {
        output::json(&json!({
            "path": dir, "name": name, "plugin": dir.join(&description),
        }));
        return Ok(Exit::Success);
    }
    output::line(format_args!("Made {}.", display_path(dir)));
    let word = shell_word(dir);
    output::line(format_args!("\n  cd {word} && python3 -m unittest"));
    output::line(format_args!("  conjure plugin check {description}"));
    output::line(format_args!("  conjure {tried} --plugin {description}"));
    Ok(Exit::Success)
}

const DESCRIPTION: &str = r#"# What a host reads before it runs anything of this plugin.
plugin = 1
protocol = 1
kind = "{{kind}}"
name = "{{name}}"
version = "0.1.0"
command = ["python3", "{{module}}.py"]
# Every file that it needs when it runs; `lib/` would be all files below that directory.
files = ["{{module}}.py", "conjure_plugin.py"]
"#;

const SKILL: &str = r#""""{{title}}: a skill for Conjure."""

from __future__ import annotations

from typing import Annotated, Any

from conjure_plugin import Call, Failure, Setup, Skill

skill = Skill("{{name}}", "Greets people and remembers whom")


@skill.on_create
def create(setup: Setup) -> list[str]:
    """Runs once a session: what it returns is that session's state, `call.state`."""
    return []


@skill.tool(read_only=True)
def greet(call: Call, name: Annotated[str, "Whom to greet"]) -> str:
    """Greets somebody."""
    call.state.append(name)
    return f"Hello, {name}!"


@skill.execute("forget")
def execute(call: Call, command: str) -> str:
    if command.strip() != "forget":
        # The model reads this and goes on.
        raise Failure(f"`{command}` is not a command; there is: forget")
    call.state.clear()
    return "Forgot everybody."


@skill.read("greeted: who was greeted so far")
def read(call: Call, path: str) -> str:
    return "\n".join(call.state)


@skill.state_export
def export_state(call: Call) -> Any:
    """Hands over to the next version, while a session goes on."""
    return call.state


@skill.state_import
def import_state(call: Call, state: Any, version: str) -> None:
    call.state[:] = state


# `conjure plugin test` runs these.
skill.example("greet", {"name": "Ada"}, "Hello, Ada!")
skill.example("execute", {"command": "sing"}, "there is: forget", is_error=True)

if __name__ == "__main__":
    skill.run()
"#;

const EXECUTOR: &str = include_str!("../templates/executor.py.in");
const EXECUTOR_TEST: &str = include_str!("../templates/test_executor.py.in");
const BACKEND: &str = include_str!("../templates/backend.py.in");
const BACKEND_TEST: &str = include_str!("../templates/test_backend.py.in");

const SKILL_TEST: &str = r#"import unittest

from conjure_plugin import TestHost
from {{module}} import skill


class Greeting(unittest.TestCase):
    def test_who_was_greeted_is_remembered_until_it_is_forgotten(self) -> None:
        with TestHost(skill) as host:
            self.assertEqual(host.tool("greet", {"name": "Ada"}).text, "Hello, Ada!")
            self.assertEqual(host.tool("read", {"path": "greeted"}).text, "Ada")
            host.tool("execute", {"command": "forget"})
            self.assertEqual(host.tool("read", {"path": "greeted"}).text, "")

    def test_what_does_not_fit_is_an_answer_for_the_model(self) -> None:
        with TestHost(skill) as host:
            missing = host.tool("greet")
            self.assertTrue(missing.is_error)
            self.assertIn("`name` is missing", missing.text)


if __name__ == "__main__":
    unittest.main()
"#;

const README: &str = r#"# {{title}}

A plugin for Conjure ({{kind}}), in Python 3.9 or newer and nothing else.

| file | what |
|---|---|
| `{{name}}.plugin.toml` | the description: a host reads it before anything runs |
| `{{module}}.py` | the {{kind}} |
| `conjure_plugin.py` | the SDK, one file: copy a newer one over it when there is one |
| `test_{{module}}.py` | tests, without a host |

```sh
python3 -m unittest
conjure plugin check {{name}}.plugin.toml
conjure plugin test .
conjure {{tried}} --plugin {{name}}.plugin.toml
conjure chat --plugin {{name}}.plugin.toml
```

`conjure plugin add {{name}}.plugin.toml` installs it; with `--plugin-dir .` a running host takes over
every change of these files. To hand it on as one file, pack the description and its files into another
folder, since here it would be a second plugin of this name:
`mkdir dist && zip dist/{{name}}.plugin {{name}}.plugin.toml {{module}}.py conjure_plugin.py`.
"#;
