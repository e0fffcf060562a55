//! What servers say about their use.

use serde_json::{Value, json};

use super::stage::{Stage, server, with};

#[test]
fn the_instructions_of_a_server_are_in_the_catalog_under_its_name_and_no_longer_than_they_may_be() {
    let long = with(server(&["long-instructions"]), json!({}));
    let off = with(server(&[]), json!({ "instructions": false }));
    let stage = Stage::new(json!({ "s": server(&[]), "long": long, "off": off }));
    let catalog = stage.catalog();
    let of = |server: &str| stage.status_of("one", server)["instructions"].clone();
    assert_eq!(of("s"), "Be kind to it.");
    assert_eq!(of("off"), Value::Null);
    let long = of("long");
    let long = long.as_str().unwrap();
    assert!(
        long.len() < 4_200 && long.ends_with(" [cut]"),
        "{}",
        long.len()
    );
    let said = catalog.server_instructions.iter();
    let said: Vec<_> = said.map(|one| (&*one.server, &*one.text)).collect();
    assert_eq!(said, [("s", "Be kind to it."), ("long", long)]);
    assert_eq!(catalog.instructions, None);
}
