//! Anthropic's Skills and Files APIs, and the containers that Messages run their skills in.
//!
//! Unlike the wires, this has a memory: a skill that was uploaded is listed, a file that was
//! uploaded can be named, and a conversation that ran in a container must go on in it. What the
//! provider would refuse is refused, and recorded as a violation.

mod containers;
mod files;
mod multipart;
mod skills;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::delivery::{Part, Piece, RenderedAnswer};
use crate::reply::ErrorReply;
use crate::request::Request;
use crate::validate::{Rule, Violation};
use crate::wire::Wire;

pub use files::StoredFile;
pub use skills::StoredSkill;

/// The header value that asks for the shapes of the beta.
pub(crate) const SKILLS_BETA: &str = "skills-2025-10-02";

/// The memory of the hosted APIs.
#[derive(Clone, Debug, Default)]
pub struct Hosted {
    skills: Vec<StoredSkill>,
    files: Vec<StoredFile>,
    /// Ids of containers, and whether each is over.
    containers: BTreeMap<String, bool>,
    /// Where the provider's own calls ran, by their ids.
    containers_by_call: BTreeMap<String, String>,
    paused: Option<containers::PausedTurn>,
    beta_format: bool,
    created_count: u64,
}

/// What an API of the provider's answers.
pub(crate) struct HostedAnswer {
    pub(crate) rendered: RenderedAnswer,
    pub(crate) violation: Option<Violation>,
}

/// Why a request is refused.
struct HostedRefusal {
    status: u16,
    message: String,
    rule: Option<Rule>,
}

impl HostedRefusal {
    fn not_found(message: impl Into<String>) -> Self {
        Self {
            status: 404,
            message: message.into(),
            rule: None,
        }
    }

    fn violation(rule: Rule, message: impl Into<String>) -> Self {
        Self {
            status: 400,
            message: message.into(),
            rule: Some(rule),
        }
    }
}

/// What an operation gives back: JSON, or the bytes of a file.
enum Body {
    Json(Value),
    Bytes(Vec<u8>),
}

impl Hosted {
    /// The rules that need a memory, beside those of the Messages wire. The test of this crate has
    /// a mutation for each.
    pub const RULES: [Rule; 11] = [
        Rule::ContainerUnknown,
        Rule::ContainerExpired,
        Rule::ContainerOmitted,
        Rule::SkillUnknown,
        Rule::UploadUnknown,
        Rule::PausedChanged,
        Rule::Multipart,
        Rule::SkillFiles,
        Rule::SkillName,
        Rule::FileName,
        Rule::Paging,
    ];

    /// With the provider's own skills: `pptx`, `xlsx`, `docx` and `pdf`.
    #[must_use]
    pub fn new() -> Self {
        let skills = ["pptx", "xlsx", "docx", "pdf"].map(StoredSkill::provider_owned);
        Self {
            skills: skills.to_vec(),
            ..Self::default()
        }
    }

    /// Answers in the shapes of the beta, whatever the headers ask for.
    #[must_use]
    pub fn beta_format(mut self) -> Self {
        self.beta_format = true;
        self
    }

    /// With a skill of the workspace.
    #[must_use]
    pub fn skill(mut self, skill: StoredSkill) -> Self {
        self.skills.push(skill);
        self
    }

    /// With a file that a skill made, and that can be downloaded.
    #[must_use]
    pub fn generated_file(mut self, id: &str, name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        self.files.push(StoredFile::new(id, name, bytes, true));
        self
    }

    /// The files, in the order in which they came.
    #[must_use]
    pub fn files(&self) -> &[StoredFile] {
        &self.files
    }

    /// The skills, in the order in which they came.
    #[must_use]
    pub fn skills(&self) -> &[StoredSkill] {
        &self.skills
    }

    /// Ends a container: whoever names it is refused.
    pub fn expire(&mut self, container: &str) {
        self.containers.insert(container.to_owned(), true);
    }

    /// Answers a request of these APIs; nothing for another one's.
    pub(crate) fn answer(&mut self, request: &Request) -> Option<HostedAnswer> {
        let (_, path) = request.path.split_once("/v1/")?;
        let parts: Vec<&str> = path.split('/').collect();
        let parts = parts.as_slice();
        if !matches!(parts.first(), Some(&("skills" | "files"))) {
            return None;
        }
        let answered = headers(request).and_then(|()| {
            if parts.first() == Some(&"files") {
                self.files_api(request, parts)
            } else {
                self.skills_api(request, parts)
            }
        });
        Some(match answered {
            Ok(Body::Json(json)) => {
                HostedAnswer::of(200, "application/json", json.to_string().as_bytes())
            }
            Ok(Body::Bytes(bytes)) => HostedAnswer::of(200, "application/octet-stream", &bytes),
            Err(refused) => HostedAnswer {
                rendered: Wire::Anthropic.error(
                    &ErrorReply::new(refused.status).message(refused.message.clone()),
                    request,
                ),
                violation: refused.rule.map(|rule| Violation {
                    request: request.index,
                    rule,
                    message: refused.message,
                }),
            },
        })
    }

    fn is_old(&self, request: &Request) -> bool {
        let beta = request.header("anthropic-beta");
        self.beta_format || beta.is_some_and(|beta| beta.contains(SKILLS_BETA))
    }

    fn mint(&mut self, prefix: &str) -> String {
        self.created_count += 1;
        format!("{prefix}{:024}", self.created_count)
    }
}

impl HostedAnswer {
    fn of(status: u16, media_type: &str, bytes: &[u8]) -> Self {
        Self {
            rendered: RenderedAnswer {
                status,
                headers: vec![
                    ("content-type".to_owned(), media_type.to_owned()),
                    ("request-id".to_owned(), "req_hosted".to_owned()),
                ],
                body: vec![Part(vec![Piece::new(bytes, 1)])],
                stream: false,
            },
            violation: None,
        }
    }
}

fn headers(request: &Request) -> Result<(), HostedRefusal> {
    if !Wire::Anthropic.has_credential(request) {
        return Err(HostedRefusal {
            status: 401,
            message: "x-api-key header is required".to_owned(),
            rule: Some(Rule::Authentication),
        });
    }
    if request.header("anthropic-version").is_none() {
        let message = "anthropic-version: header is required";
        return Err(HostedRefusal::violation(Rule::Version, message));
    }
    Ok(())
}

/// A page of a list: `limit` up to `most`, 20 by default; a page's name is the number that it
/// begins with.
fn page<T: Clone>(
    request: &Request,
    all: &[T],
    most: usize,
) -> Result<(Vec<T>, Option<String>), HostedRefusal> {
    let number = |name: &str, prefix: &str| match request.query_value(name) {
        None => Ok(None),
        Some(text) => {
            let number = text.strip_prefix(prefix).and_then(|it| it.parse().ok());
            let wrong =
                || HostedRefusal::violation(Rule::Paging, format!("{name}: `{text}` is not valid"));
            number.map(Some).ok_or_else(wrong)
        }
    };
    let limit: usize = number("limit", "")?.unwrap_or(20);
    let from: usize = number("page", "page_")?.unwrap_or(0);
    if limit < 1 || limit > most || from > all.len() {
        let message = format!("limit must be between 1 and {most}, and page one that was given");
        return Err(HostedRefusal::violation(Rule::Paging, message));
    }
    let to = from.saturating_add(limit).min(all.len());
    let data = all.get(from..to).unwrap_or_default().to_vec();
    Ok((data, (to < all.len()).then(|| format!("page_{to}"))))
}

fn list_page(data: &[Value], next: Option<&str>, old: bool) -> Body {
    let mut list = json!({"data": data, "next_page": next});
    if let (true, Some(fields)) = (old, list.as_object_mut()) {
        fields.insert("has_more".to_owned(), next.is_some().into());
    }
    Body::Json(list)
}
