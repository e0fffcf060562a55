//! One table out of one set of catalogs: names, aliases, filters, clashes.

use serde_json::json;

use super::*;

#[test]
fn h2_names_with_underscores_and_hyphens_are_looked_up_whole() {
    let catalogs = [
        skills(
            "native",
            vec![tool("log-fetcher", "execute"), tool("a_b", "c_d-e")],
        ),
        skills("local", vec![tool("log_analyzer", "bash_tool")]),
        skills("mcp", vec![tool("my-server", "list-all_things")]),
    ];
    let table = RoutingTable::build(7, &catalogs, &Naming::default()).unwrap();
    assert_eq!(
        listing(&table),
        [
            "a_b_c_d-e -> native/a_b/c_d-e",
            "log-fetcher_execute -> native/log-fetcher/execute",
            "log_analyzer_bash_tool -> local/log_analyzer/bash_tool",
            "my-server_list-all_things -> mcp/my-server/list-all_things",
        ]
    );
    assert_eq!(table.version(), 7);
    assert_eq!(table.route("a_b"), None);
    assert_eq!(table.route("log-fetcher_Execute"), None);
}

#[test]
fn h2_a_clash_fails_when_the_table_is_built_and_names_both_origins() {
    let catalogs = [
        skills("native", vec![tool("a_b", "c")]),
        skills("local", vec![tool("a", "b_c")]),
    ];
    insta::assert_snapshot!(refused(&catalogs, &Naming::default()), @r#"2 tools would have the public name `a_b_c`: `c` of `a_b` on backend `native` (a_b-plugin 1.0.0 /plugins/liba_b.so) and `b_c` of `a` on backend `local` (a-plugin 1.0.0 /plugins/liba.so). Give one of them another name with the alias `{ backend = "local", skill = "a", tool = "b_c", name = "another_name" }`, or choose between the backends with `prefer = ["native", "local"]`."#);
}

#[test]
fn h2_every_way_out_that_a_clash_names_works() {
    let catalogs = [
        skills("native", vec![tool("a_b", "c")]),
        skills("local", vec![tool("a", "b_c")]),
    ];
    let naming = aliased(vec![alias(
        Some("local"),
        Some("a"),
        Some("b_c"),
        "another_name",
    )]);
    assert_eq!(
        built(&catalogs, &naming),
        ["a_b_c -> native/a_b/c", "another_name -> local/a/b_c"]
    );
    let naming = Naming {
        prefer: vec!["native".into(), "local".into()],
        ..Naming::default()
    };
    let table = RoutingTable::build(1, &catalogs, &naming).unwrap();
    assert_eq!(listing(&table), ["a_b_c -> native/a_b/c"]);
    assert_eq!(
        table.shadowed(),
        [Shadowed {
            name: ToolName::new("a_b_c").unwrap(),
            source: ToolSource::of("local", &tool("a", "b_c")),
            reason: ShadowReason::Preferred {
                backend: "native".into()
            },
        }]
    );
}

#[test]
fn a_clash_within_one_backend_is_not_told_to_prefer_a_backend() {
    let catalogs = [skills("native", vec![tool("a_b", "c"), tool("a", "b_c")])];
    let message = refused(&catalogs, &Naming::default()).to_string();
    assert!(!message.contains("prefer"), "{message}");
    assert!(
        message.contains(r#"{ skill = "a_b", tool = "c", name = "another_name" }"#),
        "{message}"
    );
    let naming = Naming {
        prefer: vec!["native".into()],
        ..Naming::default()
    };
    assert!(matches!(
        refused(&catalogs, &naming),
        RoutingError::Clash { .. }
    ));
}

#[test]
fn one_skill_in_two_files_of_one_version_is_a_clash_that_names_both() {
    let mut other = tool("logs", "execute");
    other.origin.file = Some("/elsewhere/liblogs.so".into());
    let catalogs = [skills("native", vec![tool("logs", "execute"), other])];
    insta::assert_snapshot!(refused(&catalogs, &Naming::default()), @r#"2 tools would have the public name `logs_execute`: `execute` of `logs` on backend `native` (logs-plugin 1.0.0 /elsewhere/liblogs.so) and `execute` of `logs` on backend `native` (logs-plugin 1.0.0 /plugins/liblogs.so). The backend lists one tool twice: remove one of the plugins, or leave the name out with `except = ["logs_execute"]`."#);
}

/// The command tools of a skill folder.
fn folder(skill: &str, path: &str) -> Vec<CatalogTool> {
    let tools = ["view", "bash_tool", "create_file", "str_replace"];
    let made = tools.map(|name| tool(skill, name).in_folder(path));
    made.into()
}

#[test]
fn two_folders_of_one_name_on_one_backend_are_told_in_one_paragraph_with_a_remedy() {
    let tools = [folder("notes", "/a/notes"), folder("notes", "/b/notes")].concat();
    let catalogs = [skills("local", tools)];
    insta::assert_snapshot!(refused(&catalogs, &Naming::default()), @"2 skill folders of the backend `local` are called `notes`: /a/notes and /b/notes. Their tools would have the same public names: `notes_bash_tool`, `notes_create_file`, `notes_str_replace`, `notes_view`. Give one of them another name, such as `notes-2`, as the `name` in its SKILL.md and as the name of its directory, or take one of them, such as /b/notes, out of the session's skills.");
    let odd = [folder("Bad_Name", "/a"), folder("Bad_Name", "/b")].concat();
    let told = refused(&[skills("local", odd)], &Naming::default()).to_string();
    assert!(told.contains("such as `bad-name-2`"), "{told}");
    // What comes later is kept out with the same words for each of its tools.
    let (first, _) = RoutingTable::default().update(
        &[skills("local", folder("notes", "/a/notes"))],
        &Naming::default(),
    );
    let both = [folder("notes", "/a/notes"), folder("notes", "/b/notes")].concat();
    let (second, fresh) = first.update(&[skills("local", both)], &Naming::default());
    assert_eq!(second.routes().len(), 4);
    let told: Vec<String> = fresh.iter().map(|one| one.error.to_string()).collect();
    assert_eq!(told.len(), 4);
    assert!(told.iter().all(|text| *text == told[0]), "{told:?}");
}

#[test]
fn an_alias_that_is_proposed_is_a_legal_prefix() {
    for skill in ["Bad_Name", "日志", "--"] {
        let tools = |backend: &str| skills(backend, vec![tool(skill, "view")]);
        let told = refused(&[tools("local"), tools("docker")], &Naming::default()).to_string();
        let name = told.split("name = \"").nth(1).unwrap();
        let name = name.split('"').next().unwrap();
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        assert!(name.chars().all(legal) && !name.starts_with('-'), "{told}");
    }
}

#[test]
fn h10_one_skill_on_two_backends_is_an_error_without_an_alias_and_two_tools_with_it() {
    let offered = || {
        vec![
            tool("log-analyzer", "bash_tool"),
            tool("log-analyzer", "view"),
        ]
    };
    let catalogs = [skills("local", offered()), skills("docker", offered())];
    insta::assert_snapshot!(refused(&catalogs, &Naming::default()), @r#"Tools of 2 skills would have the same public names, `log-analyzer_bash_tool`, `log-analyzer_view`: `log-analyzer` on backend `local` (log-analyzer-plugin 1.0.0 /plugins/liblog-analyzer.so) and `log-analyzer` on backend `docker` (log-analyzer-plugin 1.0.0 /plugins/liblog-analyzer.so). Give one of them another name with the alias `{ backend = "docker", skill = "log-analyzer", name = "log-analyzer-docker" }`, or choose between the backends with `prefer = ["local", "docker"]`."#);
    let naming = aliased(vec![alias(
        Some("docker"),
        Some("log-analyzer"),
        None,
        "analyzer-docker",
    )]);
    assert_eq!(
        built(&catalogs, &naming),
        [
            "log-analyzer_bash_tool -> local/log-analyzer/bash_tool",
            "log-analyzer_view -> local/log-analyzer/view",
            "analyzer-docker_bash_tool -> docker/log-analyzer/bash_tool",
            "analyzer-docker_view -> docker/log-analyzer/view",
        ]
    );
}

#[test]
fn two_backends_of_one_kind_are_two_instances() {
    let catalogs = [
        catalog("docker", Prefix::Backend, vec![plain("bash_tool")]),
        catalog("docker-gpu", Prefix::Backend, vec![plain("bash_tool")]),
    ];
    let table = RoutingTable::build(1, &catalogs, &Naming::default()).unwrap();
    assert_eq!(
        listing(&table),
        [
            "docker_bash_tool -> docker/-/bash_tool",
            "docker-gpu_bash_tool -> docker-gpu/-/bash_tool",
        ]
    );
    let kinds: Vec<&str> = table.routes().iter().map(|route| &*route.kind).collect();
    assert_eq!(kinds, ["docker", "docker"]);
    let same = [skills("x", vec![]), skills("x", vec![plain("a")])];
    assert_eq!(
        refused(&same, &Naming::default()),
        RoutingError::DuplicateBackend {
            backend: "x".into()
        }
    );
}

#[test]
fn a_tool_of_no_skill_has_its_backends_name_in_front() {
    assert_eq!(
        built(
            &[skills("local", vec![plain("bash_tool")])],
            &Naming::default()
        ),
        ["local_bash_tool -> local/-/bash_tool"]
    );
}

#[test]
fn plain_names_are_kept_where_nothing_clashes() {
    let none = |backend, tools| catalog(backend, Prefix::None, tools);
    let catalogs = [
        none(
            "native",
            vec![tool("logs", "execute"), tool("logs", "read")],
        ),
        none("mcp", vec![tool("files", "read"), tool("files", "list")]),
        skills("local", vec![tool("notes", "view")]),
    ];
    assert_eq!(
        built(&catalogs, &Naming::default()),
        [
            "execute -> native/logs/execute",
            "logs_read -> native/logs/read",
            "list -> mcp/files/list",
            "files_read -> mcp/files/read",
            "notes_view -> local/notes/view",
        ]
    );
}

#[test]
fn the_most_exact_alias_wins_and_idle_ones_are_told() {
    let catalogs = [skills(
        "native",
        vec![tool("logs", "read"), tool("logs", "write")],
    )];
    let naming = aliased(vec![
        alias(None, Some("logs"), None, "l"),
        alias(Some("native"), Some("logs"), None, "ln"),
        alias(None, None, Some("read"), "read_it"),
        alias(None, Some("lgos"), None, "typo"),
        alias(Some("native"), None, None, "only-for-tools-of-no-skill"),
    ]);
    let table = RoutingTable::build(1, &catalogs, &naming).unwrap();
    assert_eq!(
        listing(&table),
        [
            "read_it -> native/logs/read",
            "ln_write -> native/logs/write"
        ]
    );
    let idle: Vec<&str> = table
        .idle_aliases()
        .iter()
        .map(|alias| alias.name.as_str())
        .collect();
    assert_eq!(idle, ["l", "typo", "only-for-tools-of-no-skill"]);
}

#[test]
fn an_alias_renames_a_backends_prefix() {
    let catalogs = [catalog("docker-gpu", Prefix::Backend, vec![plain("view")])];
    let naming = aliased(vec![alias(Some("docker-gpu"), None, None, "gpu")]);
    assert_eq!(built(&catalogs, &naming), ["gpu_view -> docker-gpu/-/view"]);
}

#[test]
fn wishes_that_cannot_be_kept_are_errors() {
    let bad = [
        aliased(vec![alias(None, Some("a"), Some("b"), "not legal")]),
        aliased(vec![alias(None, Some("a"), None, "")]),
        aliased(vec![alias(None, None, None, "all")]),
        Naming {
            only: vec!["a*b".into()],
            ..Naming::default()
        },
        Naming {
            except: vec![String::new()],
            ..Naming::default()
        },
    ];
    let messages: Vec<String> = bad
        .iter()
        .map(|naming| refused(&[], naming).to_string())
        .collect();
    insta::assert_snapshot!(messages.join("\n"), @r##"
    the alias { skill = "a", tool = "b", name = "not legal" } cannot be used: "not legal" cannot be the public name of a tool: use 1 to 64 ASCII letters, digits, `_` and `-`, and begin with a letter or `_`
    the alias { skill = "a", name = "" } cannot be used: its name is empty
    the alias { name = "all" } cannot be used: it selects nothing; give it a `backend`, `skill` or `tool`
    "a*b" in `only` or `except` is neither a public name nor a beginning of one followed by `*`
    "" in `only` or `except` is neither a public name nor a beginning of one followed by `*`
    "##);
}

#[test]
fn only_and_except_choose_by_public_name() {
    let catalogs = [skills(
        "native",
        vec![
            tool("logs", "read"),
            tool("logs", "write"),
            tool("notes", "read"),
        ],
    )];
    let naming = Naming {
        only: vec!["logs_*".into(), "notes_read".into()],
        except: vec!["logs_write".into()],
        ..Naming::default()
    };
    assert_eq!(
        built(&catalogs, &naming),
        [
            "logs_read -> native/logs/read",
            "notes_read -> native/notes/read"
        ]
    );
}

#[test]
fn wishes_are_read_from_a_session_file() {
    let naming: Naming = serde_json::from_value(json!({
        "aliases": [{"backend": "docker", "skill": "logs", "name": "logs-docker"}],
        "prefer": ["native"],
        "versions": {"log-fetcher": "^1.2"},
        "except": ["x_*"]
    }))
    .unwrap();
    assert_eq!(
        naming.aliases,
        [alias(Some("docker"), Some("logs"), None, "logs-docker")]
    );
    assert!(serde_json::from_value::<Naming>(json!({"alias": []})).is_err());
}

#[test]
fn the_remedy_of_several_clashes_cures_all_of_them() {
    let catalogs = [
        skills("native", vec![tool("a_b", "c"), tool("a_b", "d")]),
        skills("local", vec![tool("a", "b_c"), tool("a", "b_d")]),
    ];
    let told = refused(&catalogs, &Naming::default()).to_string();
    assert_eq!(told.lines().count(), 1, "{told}");
    let remedy = r#"the alias `{ backend = "local", skill = "a", name = "a-local" }`, or"#;
    assert!(told.contains(remedy), "{told}");
    let naming = aliased(vec![alias(Some("local"), Some("a"), None, "a-local")]);
    assert_eq!(built(&catalogs, &naming).len(), 4);

    let catalogs = ["native", "local", "docker"]
        .map(|backend| skills(backend, vec![tool("logs", "execute"), tool("logs", "read")]));
    let told = refused(&catalogs, &Naming::default()).to_string();
    assert_eq!(told.lines().count(), 1, "{told}");
    let remedy = r#"the aliases `{ backend = "local", skill = "logs", name = "logs-local" }` and `{ backend = "docker", skill = "logs", name = "logs-docker" }`, or choose between the backends with `prefer = ["native", "local", "docker"]`."#;
    assert!(told.ends_with(remedy), "{told}");
    let naming = aliased(vec![
        alias(Some("local"), Some("logs"), None, "logs-local"),
        alias(Some("docker"), Some("logs"), None, "logs-docker"),
    ]);
    assert_eq!(built(&catalogs, &naming).len(), 6);
}

#[test]
fn the_remedy_of_three_folders_of_one_name_cures_all_of_them() {
    let tools = ["/a/notes", "/b/notes", "/c/notes"].map(|path| folder("notes", path));
    let told = refused(&[skills("local", tools.concat())], &Naming::default()).to_string();
    assert_eq!(told.lines().count(), 1, "{told}");
    for part in [
        "other names, such as `notes-2` and `notes-3`,",
        "all but one of them, such as /b/notes and /c/notes, out",
    ] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn a_suggested_name_is_another_one_and_nobodys() {
    let long = "a".repeat(64);
    let tools = [folder(&long, "/a"), folder(&long, "/b")].concat();
    let told = refused(&[skills("local", tools)], &Naming::default()).to_string();
    let other = format!("such as `{}-2`,", "a".repeat(62));
    assert!(told.contains(&other), "{told}");

    let tools = [
        folder("same", "/a/same"),
        folder("same", "/b/same"),
        folder("same-2", "/a/same-2"),
    ];
    let told = refused(&[skills("local", tools.concat())], &Naming::default()).to_string();
    assert!(told.contains("such as `same-3`,"), "{told}");

    let catalogs = [
        skills("first", folder(&long, "/a")),
        skills("other", folder(&long, "/b")),
    ];
    let told = refused(&catalogs, &Naming::default()).to_string();
    let name = format!("{}-other", "a".repeat(58));
    assert!(told.contains(&format!("name = {name:?}")), "{told}");
    let naming = aliased(vec![alias(Some("other"), Some(&long), None, &name)]);
    assert_eq!(built(&catalogs, &naming).len(), 8);

    let catalogs = [
        skills("first", folder("same", "/a")),
        skills(
            "other",
            [folder("same", "/b"), folder("same-other", "/c")].concat(),
        ),
    ];
    let told = refused(&catalogs, &Naming::default()).to_string();
    assert!(told.contains(r#"name = "same-2-other""#), "{told}");
    let naming = aliased(vec![alias(
        Some("other"),
        Some("same"),
        None,
        "same-2-other",
    )]);
    assert_eq!(built(&catalogs, &naming).len(), 12);
}

#[test]
fn a_folder_that_is_listed_twice_is_told_as_that() {
    let tools = [folder("same", "/a/same"), folder("same", "/a/same")].concat();
    insta::assert_snapshot!(refused(&[skills("local", tools)], &Naming::default()), @"The skill folder /a/same, `same`, is listed 2 times. Take all but one of the entries out of the session's skills.");
}

#[test]
fn what_is_kept_out_for_one_reason_is_told_once() {
    let naming = Naming::default();
    let known = skills("local", folder("notes", "/a/notes"));
    let (first, _) = RoutingTable::default().update(&[known], &naming);
    let all = ["/a/notes", "/b/notes", "/c/notes"].map(|path| folder("notes", path));
    let (_, fresh) = first.update(&[skills("local", all.concat())], &naming);
    assert_eq!(fresh.len(), 8);
    let told = ExcludedTools::of(&fresh);
    let [told] = told.as_slice() else {
        panic!("{told:?}")
    };
    let told = told.to_string();
    let begins = "The tools `notes_bash_tool`, `notes_create_file`, `notes_str_replace`, \
                  `notes_view` are not offered: 3 skill folders";
    assert!(told.starts_with(begins), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
}
