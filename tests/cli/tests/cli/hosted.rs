//! Hosted skills from the command line: where the key and the address come from.

use conjure_mock_llm::{Hosted, MockLlm, Script, StoredSkill};

use crate::stage::{conjure, workspace};

/// The package of the hosted skills.
const HOSTED: &str = "conjure-backend-anthropic";

#[test]
fn the_key_is_the_providers_own_unless_a_secret_says_another() {
    let hosted = Hosted::new().skill(StoredSkill::custom("skill_01", "my-report", "Reports."));
    let mock = MockLlm::start_blocking(Script::new().hosted(hosted)).unwrap();
    let workspace = workspace(&[HOSTED]);
    workspace
        .write(
            "session.toml",
            "[[backend]]\nkind = \"anthropic\"\nconfig.skills = [\"skill_01\", \"xlsx\"]\n",
        )
        .unwrap();
    let routes = |variables: &[(&str, &str)]| {
        let cli = conjure(&workspace, "routes --config session.toml")
            .env("ANTHROPIC_BASE_URL", mock.base_url());
        let cli = variables
            .iter()
            .fold(cli, |cli, (name, value)| cli.env(name, value));
        cli.run().unwrap()
    };
    let key = || {
        let last = mock.requests().pop().unwrap();
        last.header("x-api-key").unwrap().to_owned()
    };
    let own = ("ANTHROPIC_API_KEY", "the-providers");
    let listed = routes(&[own]);
    assert_eq!(listed.code, Some(0), "{listed:?}");
    assert!(
        listed.stdout.contains("my-report_code_execution"),
        "{listed:?}"
    );
    assert!(listed.stdout.contains("xlsx_code_execution"), "{listed:?}");
    assert_eq!(key(), "the-providers");
    routes(&[own, ("CONJURE_SECRET_ANTHROPIC_API_KEY", "a-secret")]);
    assert_eq!(key(), "a-secret");
    let before = mock.requests().len();
    let without = routes(&[]);
    assert_ne!(without.code, Some(0), "{without:?}");
    assert!(without.stderr.contains("ANTHROPIC_API_KEY"), "{without:?}");
    assert_eq!(mock.requests().len(), before);
}
