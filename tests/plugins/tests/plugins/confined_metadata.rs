//! What a plugin in a worker tries to learn of files that it does not open: their attributes, and what
//! others do with them.

use conjure_plugin_tests::Bench;

use crate::attempts::{ABOUT_FILES, PLACES};
use crate::confined::{Scene, bench, instance, library_that_starts_programs, takes_attributes};

#[tokio::test(flavor = "multi_thread")]
async fn neither_attributes_nor_changes_of_files_are_told() {
    let scene = Scene::new().await;
    for place in PLACES {
        let dir = scene.outside(place);
        let file = dir.join("file");
        let has_attributes = takes_attributes(&file);
        for (attempt, error) in ABOUT_FILES {
            let row = attempt
                .replace("{f}", file.to_str().unwrap())
                .replace("{d}", dir.to_str().unwrap());
            let outcome = scene.outcome(&row).await;
            assert_eq!(outcome, format!("error {error}"), "`{row}`");
            if has_attributes || attempt.starts_with("watch") {
                scene.works(&row).await;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_starts_programs_watches_its_files_and_ls_and_cp_go_on_without_attributes() {
    let work = tempfile::tempdir().unwrap();
    let bench = bench(true);
    let plugin = bench.load(&library_that_starts_programs());
    let instance = instance(&plugin, work.path()).await;
    let dir = work.path().display();
    std::fs::write(work.path().join("file"), "as it was").unwrap();
    takes_attributes(&work.path().join("file"));
    for row in [
        format!("watch {dir}"),
        format!(
            "shell cd {dir} && exec >said 2>&1; ls -l . && ls -lZ . && cp -a file copy && echo $?"
        ),
    ] {
        let outcome = Bench::execute(&instance, &row).await.unwrap();
        assert_eq!(outcome, "done", "`{row}`");
    }
    let said = std::fs::read_to_string(work.path().join("said")).unwrap();
    assert!(said.ends_with("\n0\n"), "{said}");
    for program in ["ls: ", "cp: "] {
        assert!(!said.contains(program), "{said}");
    }
    let copy = std::fs::read_to_string(work.path().join("copy")).unwrap();
    assert_eq!(copy, "as it was");
}
