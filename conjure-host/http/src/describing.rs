//! The description of the API, made of what the operations say of themselves: what all have in
//! common is added here, once. Only tests make it; a server has the file.

use serde_json::Value;
use utoipa::OpenApi as _;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{ContentBuilder, HeaderBuilder, OpenApi, Ref, RefOr, ResponseBuilder, Tag};

use super::document;
use super::middleware::OPEN_PATHS;
use super::problem::{Described, MEDIA_TYPE};

/// Set to 1: the file is written anew.
const WRITE: &str = "CONJURE_WRITE_FIXTURES";
/// The file.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/openapi.json");

/// What the description begins with.
#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Conjure",
        description = "A host for AI agents. Errors are problem details (RFC 9457); lists come in \
                       pages with a cursor; a create that has an `Idempotency-Key` is done once.",
        version = "1"
    ),
    components(schemas(Described))
)]
struct Base;

#[test]
fn the_description_is_what_the_operations_say() {
    let mut described = super::routes().describe(Base::openapi());
    finish(&mut described);
    let made = serde_json::to_string_pretty(&described).unwrap() + "\n";
    if std::env::var(WRITE).is_ok_and(|value| value == "1") {
        conjure_config::fs::write(FILE, &made).unwrap();
        return;
    }
    let kept = document().unwrap();
    let mut lines = kept.lines().zip(made.lines());
    let place = lines.position(|(kept, made)| kept != made);
    assert!(
        kept == made,
        "conjure-host/docs/openapi.json differs from line {} on; {WRITE}=1 writes it anew",
        place.map_or(0, |place| place + 1)
    );
}

#[test]
fn every_operation_says_what_an_error_is() {
    let document: Value = serde_json::from_str(&document().unwrap()).unwrap();
    let mut seen = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("421"), "{method} {path}");
            for (status, response) in responses {
                if status.starts_with(['4', '5']) {
                    let content = &response["content"][MEDIA_TYPE]["schema"]["$ref"];
                    assert_eq!(content, "#/components/schemas/Problem", "{path} {status}");
                }
            }
            let tags = operation["tags"].as_array().unwrap();
            let known = |tag: &Value| TAGS.iter().any(|(name, _)| tag == name);
            assert!(tags.iter().all(known), "{method} {path}");
            seen += 1;
        }
    }
    assert!(seen > 20, "{seen} operations");
}

/// Adds what all operations have in common.
fn finish(described: &mut OpenApi) {
    let paths = described.paths.paths.iter_mut();
    for (path, item) in paths {
        for (method, operation) in operations(item) {
            if let Some(operation) = operation {
                complete(path, method, operation);
            }
        }
    }
    let components = described.components.get_or_insert_default();
    let token = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .description(Some(
            "The token of the user who serves, or another one that it was given",
        ));
    components.add_security_scheme("token", SecurityScheme::Http(token.build()));
    described.security = Some(vec![SecurityRequirement::new(
        "token",
        Vec::<String>::new(),
    )]);
    let tags = TAGS.map(|(name, about)| {
        let mut tag = Tag::new(name);
        tag.description = Some(about.to_owned());
        tag
    });
    described.tags = Some(tags.into());
}

/// What operations are grouped under.
const TAGS: [(&str, &str); 11] = [
    ("server", "How the server is"),
    ("auths", "Saved credentials"),
    ("providers", "Providers and their models"),
    ("personas", "Who a model is to be"),
    ("mcp-servers", "MCP servers that sessions choose from"),
    ("plugins", "Plugins of the host"),
    ("sessions", "Settings that conversations run with"),
    ("turns", "What is said, and what runs"),
    ("events", "What happens, as it happens"),
    ("threads", "Conversations that are kept"),
    ("files", "Files that calls made"),
];

fn operations(item: &mut PathItem) -> [(&'static str, &mut Option<Operation>); 4] {
    [
        ("get", &mut item.get),
        ("post", &mut item.post),
        ("patch", &mut item.patch),
        ("delete", &mut item.delete),
    ]
}

/// Adds the answers that every operation of its kind may get.
fn complete(path: &str, method: &str, operation: &mut Operation) {
    if method == "post" {
        let key = ParameterBuilder::new()
            .name("Idempotency-Key")
            .parameter_in(ParameterIn::Header)
            .description(Some(
                "The same key and body again get the first answer; nothing is done twice",
            ))
            .schema(Some(
                ObjectBuilder::new()
                    .schema_type(Type::String)
                    .min_length(Some(1))
                    .max_length(Some(255))
                    .build(),
            ))
            .build();
        operation
            .parameters
            .get_or_insert_default()
            .push(key.into());
        for (status, response) in &mut operation.responses.responses {
            if let (true, RefOr::T(response)) = (status.starts_with('2'), response) {
                let replayed = HeaderBuilder::new()
                    .schema(Some(
                        ObjectBuilder::new().schema_type(Type::Boolean).build(),
                    ))
                    .description(Some("`true` on the first answer again"))
                    .build();
                response
                    .headers
                    .insert("Idempotency-Replayed".to_owned(), replayed.into());
            }
        }
    }
    let mut problems = vec![
        ("400", "The request is malformed"),
        ("403", "Pages of its `Origin` may not call"),
        ("421", "The server is not known by its `Host`"),
        ("500", "Something of the host's own failed"),
        ("503", "The database or the host is busy or ending"),
    ];
    if OPEN_PATHS.contains(&path) {
        operation.security = Some(vec![SecurityRequirement::default()]);
    } else {
        problems.push(("401", "A token is needed"));
    }
    if path.contains('{') {
        problems.push(("404", "There is no such thing"));
    }
    if operation.request_body.is_some() {
        problems.extend([
            ("408", "The body came too slowly"),
            ("413", "The body is too large"),
            ("415", "The body is of another media type"),
        ]);
    }
    let beside_path = |parameter: &RefOr<Parameter>| match parameter {
        RefOr::T(parameter) => parameter.parameter_in != ParameterIn::Path,
        RefOr::Ref(_) => true,
    };
    let parameters = operation.parameters.iter().flatten();
    if operation.request_body.is_some() || parameters.into_iter().any(beside_path) {
        problems.push(("422", "What was sent cannot be right"));
    }
    if method == "post" {
        problems.push(("408", "The body came too slowly"));
        problems.push(("413", "The body is too large"));
        problems.push(("409", "The key is in use by a request that is not done"));
    }
    if method != "get" {
        problems.push(("507", "No space is left"));
    }
    for (status, about) in problems {
        let known = operation.responses.responses.entry(status.to_owned());
        known.or_insert_with(|| ResponseBuilder::new().description(about).build().into());
    }
    for (status, response) in &mut operation.responses.responses {
        let is_problem = status.starts_with('4') || status.starts_with('5');
        if let (true, RefOr::T(response)) = (is_problem, response) {
            let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem")));
            response
                .content
                .insert(MEDIA_TYPE.to_owned(), content.build().into());
        }
    }
}
