//! Catalogs and wishes in, tables and errors out.

use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn tool(skill: &str, tool: &str) -> CatalogTool {
    CatalogTool {
        origin: Origin {
            plugin: Some(format!("{skill}-plugin")),
            version: Some("1.0.0".into()),
            file: Some(format!("/plugins/lib{skill}.so")),
        },
        ..CatalogTool::new(tool, "skill.execute", Effects::Write).of_skill(skill, None)
    }
}

fn versioned(skill: &str, name: &str, version: &str) -> CatalogTool {
    CatalogTool {
        skill_version: Some(version.parse().unwrap()),
        ..tool(skill, name)
    }
}

fn plain(name: &str) -> CatalogTool {
    CatalogTool::new(name, "executor.bash", Effects::Destructive)
}

fn catalog(backend: &str, naming: Prefix, tools: Vec<CatalogTool>) -> Catalog {
    Catalog {
        backend: backend.into(),
        kind: backend.split('-').next().unwrap().into(),
        naming,
        tools: tools.into_iter().map(Arc::new).collect(),
    }
}

fn skills(backend: &str, tools: Vec<CatalogTool>) -> Catalog {
    catalog(backend, Prefix::Skill, tools)
}

fn alias(backend: Option<&str>, skill: Option<&str>, tool: Option<&str>, name: &str) -> Alias {
    Alias {
        backend: backend.map(Into::into),
        skill: skill.map(Into::into),
        tool: tool.map(Into::into),
        name: name.into(),
    }
}

fn aliased(aliases: Vec<Alias>) -> Naming {
    Naming {
        aliases,
        ..Naming::default()
    }
}

/// `name -> backend/skill/tool`, one a route, in order.
fn listing(table: &RoutingTable) -> Vec<String> {
    table
        .routes()
        .iter()
        .map(|route| {
            assert_eq!(table.route(route.name.as_str()), Some(route));
            let skill = route.skill().unwrap_or("-");
            format!(
                "{} -> {}/{skill}/{}",
                route.name,
                route.backend,
                route.tool()
            )
        })
        .collect()
}

fn built(catalogs: &[Catalog], naming: &Naming) -> Vec<String> {
    listing(&RoutingTable::build(1, catalogs, naming).unwrap())
}

fn refused(catalogs: &[Catalog], naming: &Naming) -> RoutingError {
    RoutingTable::build(1, catalogs, naming).unwrap_err()
}

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
            source: Source::of("local", &tool("a", "b_c")),
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

#[test]
fn h10_one_skill_on_two_backends_is_an_error_without_an_alias_and_two_tools_with_it() {
    let offered = || {
        vec![
            tool("log-analyzer", "bash_tool"),
            tool("log-analyzer", "view"),
        ]
    };
    let catalogs = [skills("local", offered()), skills("docker", offered())];
    insta::assert_snapshot!(refused(&catalogs, &Naming::default()), @r##"
    2 tools would have the public name `log-analyzer_bash_tool`: `bash_tool` of `log-analyzer` on backend `local` (log-analyzer-plugin 1.0.0 /plugins/liblog-analyzer.so) and `bash_tool` of `log-analyzer` on backend `docker` (log-analyzer-plugin 1.0.0 /plugins/liblog-analyzer.so). Give one of them another name with the alias `{ backend = "docker", skill = "log-analyzer", name = "log-analyzer-docker" }`, or choose between the backends with `prefer = ["local", "docker"]`.
    2 tools would have the public name `log-analyzer_view`: `view` of `log-analyzer` on backend `local` (log-analyzer-plugin 1.0.0 /plugins/liblog-analyzer.so) and `view` of `log-analyzer` on backend `docker` (log-analyzer-plugin 1.0.0 /plugins/liblog-analyzer.so). Give one of them another name with the alias `{ backend = "docker", skill = "log-analyzer", name = "log-analyzer-docker" }`, or choose between the backends with `prefer = ["local", "docker"]`.
    "##);
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

fn routed_version(
    catalogs: &[Catalog],
    range: Option<&str>,
) -> Result<(String, Vec<ShadowReason>), RoutingError> {
    let naming = Naming {
        versions: range
            .map(|range| ("logs".to_owned(), range.parse().unwrap()))
            .into_iter()
            .collect(),
        ..Naming::default()
    };
    let table = RoutingTable::build(1, catalogs, &naming)?;
    let routed = table.routes()[0].definition.skill_version.clone();
    let reasons = table
        .shadowed()
        .iter()
        .map(|one| one.reason.clone())
        .collect();
    Ok((routed.unwrap().to_string(), reasons))
}

#[test]
fn the_highest_version_in_range_is_routed_and_the_others_are_shadowed() {
    let catalogs = [skills(
        "native",
        ["1.2.0", "1.10.0", "2.0.0", "3.0.0-rc.1"]
            .map(|version| versioned("logs", "execute", version))
            .into(),
    )];
    let other = |version: &str| ShadowReason::OtherVersion {
        routed: Some(version.parse().unwrap()),
    };
    assert_eq!(
        routed_version(&catalogs, Some("^1.2")),
        Ok(("1.10.0".into(), vec![other("1.10.0"); 3]))
    );
    assert_eq!(
        routed_version(&catalogs, None),
        Ok(("2.0.0".into(), vec![other("2.0.0"); 3]))
    );
    assert_eq!(
        routed_version(&catalogs, Some("^3.0.0-rc")).unwrap().0,
        "3.0.0-rc.1"
    );
    insta::assert_snapshot!(routed_version(&catalogs, Some("^4")).unwrap_err(), @r#"no version of skill `logs` fits `^4`, found: 1.2.0 on `native`, 1.10.0 on `native`, 2.0.0 on `native`, 3.0.0-rc.1 on `native`. Change the range or add such a version."#);
}

#[test]
fn a_version_out_of_range_on_one_backend_leaves_the_name_to_another() {
    let catalogs = [
        skills("native", vec![versioned("logs", "execute", "1.0.0")]),
        skills("local", vec![versioned("logs", "execute", "2.0.0")]),
    ];
    assert!(matches!(
        routed_version(&catalogs, None),
        Err(RoutingError::Clash { .. })
    ));
    assert_eq!(
        routed_version(&catalogs, Some("2")),
        Ok((
            "2.0.0".into(),
            vec![ShadowReason::OutOfRange {
                wanted: "^2".into()
            }]
        ))
    );
}

#[test]
fn a_version_without_a_tool_does_not_lend_it_from_an_older_one() {
    let catalogs = [skills(
        "native",
        vec![
            versioned("logs", "execute", "1.0.0"),
            versioned("logs", "read", "1.0.0"),
            versioned("logs", "execute", "2.0.0"),
        ],
    )];
    assert_eq!(
        built(&catalogs, &Naming::default()),
        ["logs_execute -> native/logs/execute"]
    );
}

#[test]
fn h16_order_does_not_depend_on_how_a_backend_lists_its_tools() {
    let tools = || vec![tool("b", "x"), tool("a", "y"), tool("a", "x"), plain("z")];
    let mut reversed = tools();
    reversed.reverse();
    let native = |tools| [skills("native", tools), skills("mcp", vec![tool("0", "x")])];
    let expected = [
        "native_z -> native/-/z",
        "a_x -> native/a/x",
        "a_y -> native/a/y",
        "b_x -> native/b/x",
        "t0_x-0cc249e7 -> mcp/0/x",
    ];
    assert_eq!(built(&native(tools()), &Naming::default()), expected);
    assert_eq!(built(&native(reversed), &Naming::default()), expected);
}

#[test]
fn h16_the_version_grows_only_when_routes_or_definitions_change() {
    let naming = Naming::default();
    let catalogs = |tools| [skills("native", tools)];
    let first = RoutingTable::build(3, &catalogs(vec![tool("a", "x")]), &naming).unwrap();

    let (same, fresh) = first.update(&catalogs(vec![tool("a", "x")]), &naming);
    assert_eq!((same.version(), fresh), (3, vec![]));
    assert_eq!(first.diff(&same), TableDiff::default());

    // What is only shadowed changes nothing that the model sees.
    let named = Naming {
        prefer: vec!["native".into()],
        ..Naming::default()
    };
    let two = [
        skills("native", vec![tool("a", "x")]),
        skills("local", vec![tool("a", "x")]),
    ];
    let (shadowing, _) = first.update(&two, &named);
    assert_eq!((shadowing.version(), shadowing.shadowed().len()), (3, 1));

    let mut described = tool("a", "x");
    described.description = "other".into();
    let (changed, _) = first.update(&catalogs(vec![described]), &naming);
    assert_eq!(changed.version(), 4);

    let (grown, _) = changed.update(&catalogs(vec![tool("a", "x"), tool("b", "x")]), &naming);
    assert_eq!(grown.version(), 5);
    let name = |name| ToolName::new(name).unwrap();
    assert_eq!(
        changed.diff(&grown),
        TableDiff {
            added: vec![name("b_x")],
            removed: vec![],
            changed: vec![name("a_x")],
        }
    );
    assert_eq!(grown.diff(&changed).removed, [name("b_x")]);
    // The table that a running step holds is what it was.
    assert_eq!(listing(&first), ["a_x -> native/a/x"]);
}

#[test]
fn at_run_time_a_newcomer_that_clashes_is_quarantined_and_the_table_stays() {
    let naming = Naming::default();
    let native = || skills("native", vec![tool("logs", "execute")]);
    let first = RoutingTable::build(1, &[native()], &naming).unwrap();
    // The newcomer comes first in the session's order and still does not win.
    let catalogs = [
        skills("local", vec![tool("logs", "execute"), tool("logs", "view")]),
        native(),
    ];
    let (second, fresh) = first.update(&catalogs, &naming);
    assert_eq!(
        listing(&second),
        [
            "logs_view -> local/logs/view",
            "logs_execute -> native/logs/execute"
        ]
    );
    assert_eq!(fresh, second.quarantined());
    let [quarantined] = fresh.as_slice() else {
        panic!("{fresh:?}");
    };
    assert_eq!(
        quarantined.source,
        Source::of("local", &tool("logs", "execute"))
    );
    insta::assert_snapshot!(quarantined.error, @r#"2 tools would have the public name `logs_execute`: `execute` of `logs` on backend `native` (logs-plugin 1.0.0 /plugins/liblogs.so) and `execute` of `logs` on backend `local` (logs-plugin 1.0.0 /plugins/liblogs.so). Give one of them another name with the alias `{ backend = "local", skill = "logs", name = "logs-local" }`, or choose between the backends with `prefer = ["native", "local"]`."#);

    // Told once, kept out for as long as it clashes, let in when the name is free.
    let (third, fresh) = second.update(&catalogs, &naming);
    assert_eq!(
        (third.version(), fresh, third.quarantined().len()),
        (2, vec![], 1)
    );
    let (fourth, _) = third.update(&catalogs[..1], &naming);
    assert_eq!(
        listing(&fourth),
        [
            "logs_execute -> local/logs/execute",
            "logs_view -> local/logs/view"
        ]
    );
    assert_eq!(fourth.quarantined(), []);
}

#[test]
fn newcomers_that_clash_with_each_other_are_all_quarantined() {
    let naming = Naming::default();
    let first = RoutingTable::build(1, &[], &naming).unwrap();
    let catalogs = [
        skills("native", vec![tool("a", "x")]),
        skills("local", vec![tool("a", "x")]),
    ];
    let (second, fresh) = first.update(&catalogs, &naming);
    assert_eq!(
        (second.version(), second.routes().len(), fresh.len()),
        (1, 0, 2)
    );
}

#[test]
fn a_copy_of_a_routed_skill_in_another_file_does_not_take_its_place() {
    let naming = Naming::default();
    let first = RoutingTable::build(1, &[skills("native", vec![tool("a", "x")])], &naming).unwrap();
    let mut copy = tool("a", "x");
    copy.origin.file = Some("/a/copy.so".into());
    let (second, fresh) = first.update(
        &[skills("native", vec![copy.clone(), tool("a", "x")])],
        &naming,
    );
    assert_eq!(
        (second.version(), second.diff(&first)),
        (1, TableDiff::default())
    );
    assert_eq!(fresh[0].source, Source::of("native", &copy));
}

#[test]
fn a_newer_version_takes_over_at_run_time() {
    let naming = Naming::default();
    let with = |versions: &[&str]| {
        let tools = versions
            .iter()
            .map(|version| versioned("logs", "execute", version))
            .collect();
        [skills("native", tools)]
    };
    let first = RoutingTable::build(1, &with(&["1.0.0"]), &naming).unwrap();
    let (second, fresh) = first.update(&with(&["1.0.0", "1.1.0"]), &naming);
    assert_eq!((second.version(), fresh), (2, vec![]));
    let version = |table: &RoutingTable| {
        table.routes()[0]
            .definition
            .skill_version
            .clone()
            .unwrap()
            .to_string()
    };
    assert_eq!(
        (version(&first), version(&second)),
        ("1.0.0".into(), "1.1.0".into())
    );
}

#[test]
fn a_plain_name_that_is_routed_is_kept_when_another_one_comes() {
    let naming = Naming::default();
    let none = |backend, skill| catalog(backend, Prefix::None, vec![tool(skill, "read")]);
    let first = RoutingTable::build(1, &[none("native", "logs")], &naming).unwrap();
    let (second, fresh) = first.update(&[none("mcp", "files"), none("native", "logs")], &naming);
    assert_eq!(
        listing(&second),
        ["files_read -> mcp/files/read", "read -> native/logs/read"]
    );
    assert_eq!(fresh, []);
}

#[test]
fn wishes_that_cannot_be_kept_quarantine_at_run_time() {
    let catalogs = [
        skills("native", vec![tool("a", "x"), tool("b", "x")]),
        skills("native", vec![tool("c", "x")]),
    ];
    let first = RoutingTable::build(1, &catalogs[..1], &Naming::default()).unwrap();
    let naming = aliased(vec![alias(None, Some("a"), Some("x"), "not legal")]);
    let (second, fresh) = first.update(&catalogs, &naming);
    assert_eq!(listing(&second), ["b_x -> native/b/x"]);
    assert!(matches!(fresh[0].error, RoutingError::BadAlias { .. }));
    assert!(matches!(
        fresh[1].error,
        RoutingError::DuplicateBackend { .. }
    ));
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

fn any_tool() -> impl Strategy<Value = CatalogTool> {
    let skill = proptest::option::of(prop_oneof!["[ab]", "a_b", "a\\.b", "日"]);
    let name = prop_oneof!["[xy]", "b_x", "x\\.y"];
    let version = proptest::option::of(0_u64..3);
    (skill, name, version).prop_map(|(skill, name, version)| CatalogTool {
        skill_version: version
            .filter(|_| skill.is_some())
            .map(|minor| semver::Version::new(1, minor, 0)),
        skill,
        ..plain(&name)
    })
}

fn any_catalogs() -> impl Strategy<Value = Vec<Catalog>> {
    let prefix = prop_oneof![
        Just(Prefix::Skill),
        Just(Prefix::Backend),
        Just(Prefix::None)
    ];
    let one = (prefix, proptest::collection::vec(any_tool(), 0..8));
    proptest::collection::vec(one, 0..4).prop_map(|catalogs| {
        catalogs
            .into_iter()
            .zip(["native", "local", "docker"])
            .map(|((prefix, tools), backend)| catalog(backend, prefix, tools))
            .collect()
    })
}

proptest! {
    #[test]
    fn a_table_accounts_for_every_tool_and_no_route_is_lost_at_run_time(
        before in any_catalogs(),
        after in any_catalogs(),
        prefer in proptest::bool::ANY,
    ) {
        let naming = Naming {
            prefer: if prefer { vec!["docker".into()] } else { vec![] },
            ..Naming::default()
        };
        let count = |catalogs: &[Catalog]| catalogs.iter().map(|catalog| catalog.tools.len()).sum::<usize>();
        let accounted = |table: &RoutingTable| table.routes().len() + table.shadowed().len() + table.quarantined().len();

        let built = RoutingTable::build(1, &before, &naming);
        let (first, _) = RoutingTable::default().update(&before, &naming);
        prop_assert_eq!(accounted(&first), count(&before));
        // Building refuses exactly what a running table would have to quarantine.
        prop_assert_eq!(built.is_err(), !first.quarantined().is_empty());
        if let Ok(built) = built {
            prop_assert_eq!(listing(&built), listing(&first));
        }

        let (second, _) = first.update(&after, &naming);
        prop_assert_eq!(accounted(&second), count(&after));
        prop_assert_eq!(second.version() != first.version(), second.routes() != first.routes());
        let (again, fresh) = second.update(&after, &naming);
        prop_assert_eq!(again.version(), second.version());
        prop_assert_eq!(fresh, vec![]);
        prop_assert_eq!(listing(&again), listing(&second));
    }
}
