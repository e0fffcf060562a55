//! Several versions of one skill.

use super::*;

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
                requested: "^2".into()
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
