//! Tables that follow each other: order, version numbers, quarantine.

use proptest::prelude::*;

use super::*;

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
fn a_route_that_was_found_holds_for_the_version_of_its_table_only() {
    let naming = Naming::default();
    let catalogs = |tools| [skills("native", tools)];
    let first = RoutingTable::build(3, &catalogs(vec![tool("b", "x")]), &naming).unwrap();
    let (found, route) = first.find("b_x").unwrap();
    assert_eq!(
        first.routes().get(first.position(found).unwrap()),
        Some(route)
    );
    assert!(first.find("a_x").is_none());

    let (same, _) = first.update(&catalogs(vec![tool("b", "x")]), &naming);
    assert_eq!(same.position(found), first.position(found));
    let (grown, _) = first.update(&catalogs(vec![tool("a", "x"), tool("b", "x")]), &naming);
    assert_eq!(grown.position(found), None);
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
        ToolSource::of("local", &tool("logs", "execute"))
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
    assert_eq!(fresh[0].source, ToolSource::of("native", &copy));
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

#[test]
fn a_tool_that_is_held_is_kept_out_and_said_and_the_others_stay() {
    let held = |reason: &str| CatalogTool {
        held: Some(HeldReason {
            reason: reason.to_owned(),
            remedy: "approve it".to_owned(),
        }),
        ..tool("notes", "add")
    };
    let offered = skills("mcp", vec![tool("notes", "add"), tool("notes", "read")]);
    let table = RoutingTable::build(1, std::slice::from_ref(&offered), &Naming::default()).unwrap();
    let changed = skills(
        "mcp",
        vec![held("its description changed"), tool("notes", "read")],
    );
    let (next, fresh) = table.update(std::slice::from_ref(&changed), &Naming::default());
    assert_eq!(listing(&next), ["notes_read -> mcp/notes/read"]);
    assert_eq!(fresh.len(), 1);
    assert_eq!(fresh[0].name.as_str(), "notes_add");
    assert_eq!(
        fresh[0].error.to_string(),
        "its description changed. approve it"
    );
    // Said once, and not taken for an error when a session begins with it.
    let (again, fresh) = next.update(std::slice::from_ref(&changed), &Naming::default());
    assert_eq!((fresh.len(), again.quarantined().len()), (0, 1));
    let begun = RoutingTable::build(1, std::slice::from_ref(&changed), &Naming::default()).unwrap();
    assert_eq!(begun.quarantined().len(), 1);
    // A session that would not have it anyway hears nothing of it.
    let naming = Naming {
        except: vec!["notes_add".to_owned()],
        ..Naming::default()
    };
    let without = RoutingTable::build(1, &[changed], &naming).unwrap();
    assert!(without.quarantined().is_empty());
    let (back, _) = next.update(&[offered], &Naming::default());
    assert_eq!(back.routes().len(), 2);
    assert!(back.quarantined().is_empty());
}
