//! The page of packages: an author packs, signs and publishes a plugin, and a host finds, installs and
//! upgrades it.
//!
//! The registry is one on this machine, and so is the server that shows an index.

use conjure_kit::{Cli, ImageRegistry, ProgramHandle};

use super::blocks::Block;
use super::commands::{Place, commands, have};

const PAGE: &str = "conjure-host/docs/packages.md";
/// A registry, an index and a key, as the page names them.
const REGISTRY: &str = "registry.example";
const INDEX: &str = "https://plugins.example";
const SIGNER: &str = "RW…";

/// The author has built the library that the page packs.
const BUILT: &str = r#"
conjure plugin create skill weather
cd weather
sed -i 's/^version = .*/version = "1.2.0"/' Cargo.toml
cargo build
cd ..
mkdir -p target/release
cp weather/target/debug/libweather.so target/release/
"#;
/// The author also has an index, and publishes another version.
const NEWER: &str = r#"
cd weather
sed -i 's/^version = .*/version = "1.3.0"/' Cargo.toml
cargo build
cd ..
conjure plugin pack weather/target/debug/libweather.so --key ~/.conjure-signing.key
conjure plugin publish weather-1.3.0.conjure-plugin oci://registry.example/plugins/weather
mkdir index
conjure plugin publish weather-1.2.0.conjure-plugin index
conjure plugin publish weather-1.3.0.conjure-plugin index
"#;

/// Shows the folder `index` to others, at an address of this machine.
fn shows_index(place: &Place) -> (ProgramHandle, String) {
    let arguments = "-u -m http.server --bind 127.0.0.1 --directory index 0";
    let server = Cli::program("/usr/bin/python3", arguments.split(' '));
    let server = place.as_reader(server).start().unwrap();
    // Serving HTTP on 127.0.0.1 port 1234 (http://127.0.0.1:1234/) ...
    let said = server.wait_for_lines(1).unwrap();
    let (_, address) = said.split_once('(').unwrap();
    let (address, _) = address.split_once("/)").unwrap();
    (server, address.to_owned())
}

#[test]
fn packages() {
    if !have(&["python3"]) {
        return;
    }
    let Some(registry) = ImageRegistry::start().unwrap() else {
        return;
    };
    let address = registry.address();
    let address = address.as_str();
    let place = Place::new();
    place.make(BUILT);
    let [author, host]: [Block; 2] = commands(PAGE).try_into().unwrap();
    place.run_blocks(&[author], &[(REGISTRY, address)]);
    place.make(&NEWER.replace(REGISTRY, address));
    let (_server, index) = shows_index(&place);
    let key = place.workspace.home().join(".conjure-signing.key.pub");
    let key = place.workspace.read(key).unwrap();
    let key = key.lines().last().unwrap();
    let own = [(REGISTRY, address), (INDEX, index.as_str()), (SIGNER, key)];
    let output = place.run_blocks(&[host], &own);
    let is_found = output.stdout.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("weather") && words.next() == Some("1.3.0")
    });
    assert!(is_found, "{}", output.snapshot());
    let listed = place.output_of("conjure plugin list --json");
    let listed = crate::stage::json(&listed);
    let plugins = listed["plugins"].as_array().unwrap();
    let installed = plugins.iter().find(|plugin| plugin["name"] == "weather");
    let installed = installed.unwrap();
    assert_eq!(installed["version"], "1.3.0", "{installed:#}");
}
