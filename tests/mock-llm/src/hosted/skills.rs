//! The Skills API: `/v1/skills`, in the shapes of today and of the beta.

use std::collections::BTreeSet;
use std::io::{self, Write as _};

use serde_json::{Value, json};

use super::{Body, Hosted, HostedRefusal, list_page, multipart, page};
use crate::request::Request;
use crate::validate::Rule;

/// The most bytes of a skill, unpacked.
const MAX_SKILL_BYTES: usize = 30 * 1000 * 1000;

/// A skill at the provider.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredSkill {
    /// `skill_…`, or a name of the provider's own.
    pub id: String,
    /// What people call it.
    pub title: Option<String>,
    /// `custom` or `anthropic`.
    pub source: String,
    /// Versions of the skill, the newest last.
    pub versions: Vec<StoredVersion>,
}

/// A version of a skill.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredVersion {
    /// `skver_…`; the beta calls it by a number.
    pub id: String,
    /// As its `SKILL.md` has it.
    pub name: String,
    /// As its `SKILL.md` has it.
    pub description: String,
    /// Files of the version, as they were uploaded: path and content.
    pub files: Vec<(String, Vec<u8>)>,
}

impl StoredSkill {
    /// A skill of the provider's own.
    pub(super) fn provider_owned(name: &str) -> Self {
        Self {
            id: name.to_owned(),
            title: Some(name.to_owned()),
            source: "anthropic".to_owned(),
            versions: vec![StoredVersion::new("20251013", name, "The provider's own.")],
        }
    }

    /// A skill of the workspace, with one version.
    #[must_use]
    pub fn custom(id: &str, name: &str, description: &str) -> Self {
        Self {
            id: id.to_owned(),
            title: Some(name.to_owned()),
            source: "custom".to_owned(),
            versions: vec![StoredVersion::new("skver_1", name, description)],
        }
    }

    fn to_json(&self, old: bool) -> Value {
        let latest = self.versions.last().map(|version| version.id.as_str());
        let at = "2026-08-20T00:00:00Z";
        if old {
            json!({
                "id": self.id, "type": "skill", "display_title": self.title,
                "latest_version": latest, "source": self.source,
                "created_at": at, "updated_at": at,
            })
        } else {
            json!({
                "id": self.id, "type": "skill", "display_name": self.title,
                "latest_version_id": latest, "source": {"type": self.source},
                "created_at": at, "updated_at": at,
            })
        }
    }
}

impl StoredVersion {
    fn new(id: &str, name: &str, description: &str) -> Self {
        Self {
            id: id.to_owned(),
            name: name.to_owned(),
            description: description.to_owned(),
            files: Vec::new(),
        }
    }

    /// Packs the files into a ZIP archive.
    fn packed(&self) -> Option<Vec<u8>> {
        let mut archive = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        for (path, bytes) in &self.files {
            let options = zip::write::SimpleFileOptions::default();
            archive.start_file(path.as_str(), options).ok()?;
            archive.write_all(bytes).ok()?;
        }
        Some(archive.finish().ok()?.into_inner())
    }

    fn to_json(&self, skill: &str, old: bool) -> Value {
        let at = "2026-08-20T00:00:00Z";
        if old {
            json!({
                "id": format!("skillver_{}", self.id), "type": "skill_version",
                "version": self.id, "directory": self.name, "skill_id": skill,
                "name": self.name, "description": self.description, "created_at": at,
            })
        } else {
            json!({
                "id": self.id, "type": "skill_version", "skill_id": skill,
                "name": self.name, "description": self.description, "created_at": at,
            })
        }
    }
}

impl Hosted {
    pub(super) fn skills_api(
        &mut self,
        request: &Request,
        path: &[&str],
    ) -> Result<Body, HostedRefusal> {
        let old = self.is_old(request);
        match (request.method.as_str(), path) {
            ("POST", [_]) => self.create(request, old),
            ("GET", [_]) => {
                let source = request.query_value("source");
                let all: Vec<Value> = self
                    .skills
                    .iter()
                    .filter(|skill| source.as_ref().is_none_or(|it| *it == skill.source))
                    .map(|skill| skill.to_json(old))
                    .collect();
                let (data, next) = page(request, &all, if old { 100 } else { 1000 })?;
                Ok(list_page(&data, next.as_deref(), old))
            }
            ("GET", [_, id]) => Ok(Body::Json(self.find_skill(id)?.to_json(old))),
            ("DELETE", [_, id]) => {
                let skill = self.find_skill(id)?;
                if skill.source != "custom" {
                    return Err(refused_deletion(id, "it is the provider's own"));
                }
                if old && !skill.versions.is_empty() {
                    return Err(refused_deletion(id, "delete its versions first"));
                }
                self.skills.retain(|skill| skill.id != **id);
                Ok(Body::Json(json!({"id": id, "type": "skill_deleted"})))
            }
            ("POST", [_, id, "versions"]) => {
                let (_, version) = self.uploaded(request)?;
                let told = version.to_json(id, old);
                let skill = self.find_skill_mut(id)?;
                if skill
                    .versions
                    .last()
                    .is_some_and(|last| last.name != version.name)
                {
                    let message = "name: a skill keeps its name from version to version";
                    return Err(HostedRefusal::violation(Rule::SkillName, message));
                }
                skill.versions.push(version);
                Ok(Body::Json(told))
            }
            ("GET", [_, id, "versions"]) => {
                let versions = self.find_skill(id)?.versions.iter();
                let all: Vec<Value> = versions.map(|version| version.to_json(id, old)).collect();
                let (data, next) = page(request, &all, if old { 100 } else { 1000 })?;
                Ok(list_page(&data, next.as_deref(), old))
            }
            ("GET", [_, id, "versions", version]) => {
                let versions = &self.find_skill(id)?.versions;
                let found = versions.iter().find(|it| it.id == **version);
                let missing =
                    || HostedRefusal::not_found(format!("no version `{version}` of `{id}`"));
                Ok(Body::Json(found.ok_or_else(missing)?.to_json(id, old)))
            }
            // The beta's alone.
            ("GET", [_, id, "versions", version, "content"]) if old => {
                let versions = &self.find_skill(id)?.versions;
                let found = versions.iter().find(|it| it.id == **version);
                let packed = found.and_then(StoredVersion::packed);
                let missing =
                    || HostedRefusal::not_found(format!("no version `{version}` of `{id}`"));
                Ok(Body::Bytes(packed.ok_or_else(missing)?))
            }
            ("DELETE", [_, id, "versions", version]) => {
                let skill = self.find_skill_mut(id)?;
                let before = skill.versions.len();
                skill.versions.retain(|it| it.id != **version);
                if skill.versions.len() == before {
                    return Err(HostedRefusal::not_found(format!(
                        "no version `{version}` of `{id}`"
                    )));
                }
                Ok(Body::Json(
                    json!({"id": version, "type": "skill_version_deleted"}),
                ))
            }
            _ => Err(HostedRefusal::not_found("no such resource")),
        }
    }

    pub(super) fn find_skill(&self, id: &str) -> Result<&StoredSkill, HostedRefusal> {
        let found = self.skills.iter().find(|skill| skill.id == id);
        found.ok_or_else(|| HostedRefusal::not_found(format!("Skill not found: {id}")))
    }

    fn find_skill_mut(&mut self, id: &str) -> Result<&mut StoredSkill, HostedRefusal> {
        let found = self.skills.iter_mut().find(|skill| skill.id == id);
        found.ok_or_else(|| HostedRefusal::not_found(format!("Skill not found: {id}")))
    }

    fn create(&mut self, request: &Request, old: bool) -> Result<Body, HostedRefusal> {
        let (title, version) = self.uploaded(request)?;
        let taken = |title: &String| {
            self.skills
                .iter()
                .any(|it| it.title.as_ref() == Some(title))
        };
        if old && title.as_ref().is_some_and(taken) {
            let message = "display_title: must be unique in the workspace";
            return Err(HostedRefusal::violation(Rule::SkillName, message));
        }
        let skill = StoredSkill {
            id: self.mint("skill_"),
            title,
            source: "custom".to_owned(),
            versions: vec![version],
        };
        let told = skill.to_json(old);
        self.skills.push(skill);
        Ok(Body::Json(told))
    }

    /// The title and the files of an upload.
    fn uploaded(
        &mut self,
        request: &Request,
    ) -> Result<(Option<String>, StoredVersion), HostedRefusal> {
        let wrong = |what: String| HostedRefusal::violation(Rule::Multipart, what);
        let fields = multipart::fields(request)
            .ok_or_else(|| wrong("body: must be multipart/form-data, whole".to_owned()))?;
        let (mut title, mut files) = (None, Vec::new());
        for field in fields {
            match (field.name.as_str(), field.filename) {
                ("files[]", Some(path)) => files.push((path, field.bytes)),
                ("display_name" | "display_title", None) => {
                    title = Some(String::from_utf8_lossy(&field.bytes).into_owned());
                }
                (other, _) => {
                    return Err(wrong(format!("{other}: extra inputs are not permitted")));
                }
            }
        }
        let name = check_layout(&files)?;
        if title
            .as_ref()
            .is_some_and(|title| title.chars().count() > 255)
        {
            return Err(HostedRefusal::violation(
                Rule::SkillName,
                "display_name: at most 255 characters",
            ));
        }
        let mut version = StoredVersion::new(&self.mint("skver_"), &name, "");
        version.files = files;
        Ok((title, version))
    }
}

fn refused_deletion(id: &str, why: &str) -> HostedRefusal {
    HostedRefusal {
        status: 400,
        message: format!("Skill `{id}` cannot be deleted: {why}."),
        rule: None,
    }
}

/// The name in the `SKILL.md` of an upload, after everything about its files was found right.
fn check_layout(files: &[(String, Vec<u8>)]) -> Result<String, HostedRefusal> {
    let wrong = |what: String| HostedRefusal::violation(Rule::SkillFiles, what);
    let mut roots = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (path, _) in files {
        let bad = |part: &str| part.is_empty() || part == "." || part == "..";
        if path.contains('\\') || path.split('/').any(bad) {
            return Err(wrong(format!("files: `{path}` is no relative path")));
        }
        if !seen.insert(path) {
            return Err(wrong(format!("files: `{path}` is there twice")));
        }
        roots.insert(path.split_once('/').map(|(root, _)| root));
    }
    if roots.len() != 1 {
        return Err(wrong("files: all must be in one directory".to_owned()));
    }
    if files.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() >= MAX_SKILL_BYTES {
        return Err(wrong("files: must have less than 30 MB in all".to_owned()));
    }
    let root = roots.into_iter().flatten().next();
    let wanted = root.map_or_else(|| "SKILL.md".to_owned(), |root| format!("{root}/SKILL.md"));
    let text = files.iter().find(|(path, _)| *path == wanted);
    let text = text.ok_or_else(|| wrong(format!("files: there is no `{wanted}`")))?;
    let text = String::from_utf8_lossy(&text.1).into_owned();
    let mut lines = text.lines();
    let name = lines.find_map(|line| line.strip_prefix("name:"));
    let name = name.map(|name| name.trim().trim_matches(['"', '\'']).to_owned());
    let name = name.ok_or_else(|| wrong("SKILL.md: `name` is required".to_owned()))?;
    let like = |text: &str| text.to_lowercase().replace('_', "-");
    if root.is_some_and(|root| like(root) != like(&name)) {
        let message = format!("files: the directory must be called as the skill, `{name}`");
        return Err(HostedRefusal::violation(Rule::SkillName, message));
    }
    Ok(name)
}
