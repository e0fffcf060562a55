//! `conjure docker`: the image of the container backend.

use conjure_kit::Engine;
use insta::assert_snapshot;

use crate::help::help;
use crate::stage::{conjure, json, workspace};

#[test]
fn the_help() {
    assert_snapshot!(help("docker build"), @r"
    Build the image that containers start from

    Builds it from a Dockerfile in the data directory, which is written there the first time and is
    yours from then on: change it and build again.

    Usage: conjure docker build [OPTIONS]

    Options:
          --image <NAME>
              What to call the image
              
              [default: conjure-workspace]

          --file <FILE>
              Another Dockerfile; its directory is what it may copy from

          --data-dir <DIR>
              Where threads, copies of plugins and their values are kept

          --engine <PROGRAM>
              The program that builds [default: `docker`, else `podman`]

          --json
              Print JSON, for programs

          --no-build
              Write the Dockerfile, say where it is, and build nothing

      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Plugins:
          --plugin <FILE>
              Load this plugin file; naming it says that it may run in this process

          --plugin-dir <DIR>
              Look for plugins in this directory too
    ");
}

#[test]
fn the_dockerfile_is_written_once_and_is_the_persons_from_then_on() {
    let workspace = workspace(&[]);
    let told = json(
        &conjure(&workspace, "docker build --no-build --json")
            .run()
            .unwrap(),
    );
    let file = told["dockerfile"].as_str().unwrap().to_owned();
    assert_eq!(told["image"], "conjure-workspace");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\nFROM "), "{text}");
    std::fs::write(&file, "FROM mine\n").unwrap();
    let again = conjure(&workspace, "docker build --no-build")
        .run()
        .unwrap();
    assert_eq!(again.stdout, format!("The Dockerfile is {file}.\n"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "FROM mine\n");
}

#[test]
fn a_program_that_is_missing_or_fails_is_named() {
    let workspace = workspace(&[]);
    for (program, words) in [
        ("no-such-program", "install Docker or Podman"),
        ("false", "`false build` failed"),
    ] {
        let build = format!("docker build --engine {program}");
        let output = conjure(&workspace, &build).run().unwrap();
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains(words), "{output:?}");
    }
}

#[test]
fn an_image_is_built_from_a_dockerfile() {
    let Some(engine) = Engine::find().unwrap() else {
        return;
    };
    let workspace = workspace(&[]);
    let text = format!("FROM {}\nCOPY mine.txt /mine.txt\n", engine.image());
    workspace.write("image/Dockerfile", &text).unwrap();
    workspace.write("image/mine.txt", "mine\n").unwrap();
    let build = "docker build --image conjure-test-built --file image/Dockerfile --engine docker";
    let output = conjure(&workspace, build).run().unwrap();
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        output.stdout,
        "Built `conjure-test-built` from image/Dockerfile. Sessions with a `docker` backend use it.\n"
    );
    let run = ["run", "--rm", "conjure-test-built", "cat", "/mine.txt"];
    let seen = engine.docker(run);
    engine.docker(["rmi", "conjure-test-built"]).unwrap();
    assert_eq!(seen.unwrap(), "mine");
}
