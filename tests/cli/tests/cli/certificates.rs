//! The system's certificates are needed where somebody shows one, and nowhere else.

use conjure_kit::Model;
use conjure_mock_llm::Message;

use crate::stage::{conjure, workspace};

#[test]
fn a_server_over_plain_http_needs_no_certificates() {
    let workspace = workspace(&[]);
    let model = Model::start().unwrap();
    model.says(Message::new().text("Hello."));
    let run = |url: &str| {
        let args = format!("run --provider ollama --model m --base-url {url} Hi.");
        conjure(&workspace, &args)
            .env("OLLAMA_API_KEY", "a-key-of-nobody")
            .env("SSL_CERT_FILE", "/dev/null")
            .env("SSL_CERT_DIR", workspace.root().join("none"))
            .run()
            .unwrap()
    };
    let plain = run(&model.base_url());
    assert_eq!(plain.stdout, "Hello.\n", "{plain:?}");
    // The same machine over TLS: there it is told what is missing.
    let secure = run("https://127.0.0.1:9");
    assert_eq!(secure.code, Some(2), "{secure:?}");
    assert!(secure.stderr.contains("certificates"), "{secure:?}");
}
