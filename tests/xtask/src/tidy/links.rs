//! Links of the pages: the file is there, and so is the heading that an anchor names.
//!
//! Anchors are what GitHub makes of a heading. Links to other sites are not followed.

use std::collections::{HashMap, HashSet};

use super::{
    Finding,
    tree::{File, Tree},
    words::words,
};

pub(crate) fn links_resolve(tree: &Tree) -> Vec<Finding> {
    let is_page = |file: &&File| file.path.ends_with(".md");
    let anchors: HashMap<&str, HashSet<String>> = tree
        .files
        .iter()
        .filter(is_page)
        .map(|file| (file.path.as_str(), anchors(&file.text)))
        .collect();
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(is_page) {
        for (at, link) in links(&file.text) {
            if let Some(what) = problem(tree, &anchors, &file.path, link) {
                let message = format!("links to `{link}`, {what}; mend the link");
                findings.push(Finding::new(file.location(at), message));
            }
        }
    }
    findings
}

/// The links of a page, each with where it stands.
fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.match_indices("](").map(|(at, _)| {
        let rest = text.get(at + 2..).unwrap_or_default();
        let link = rest.split([')', '\n', ' ']).next().unwrap_or_default();
        (at, link)
    })
}

/// What of a link on a page is missing, if anything is.
fn problem(
    tree: &Tree,
    anchors: &HashMap<&str, HashSet<String>>,
    page: &str,
    link: &str,
) -> Option<&'static str> {
    let (path, anchor) = match link.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (link, None),
    };
    if link.contains(':') || words(link).next().is_none() {
        return None;
    }
    let directory = page.rsplit_once('/').map_or("", |(directory, _)| directory);
    let target = match path {
        "" => page.to_owned(),
        path => joined(directory, path),
    };
    if !tree.has(&target) {
        return Some("which is not there");
    }
    // Other files than pages have lines for anchors.
    let known = anchors.get(target.as_str())?;
    let is_known = anchor.is_none_or(|anchor| known.contains(anchor));
    (!is_known).then_some("and no heading there has that anchor")
}

/// `path` as seen from `directory`, with `.` and `..` worked out.
pub(super) fn joined(directory: &str, path: &str) -> String {
    let mut parts: Vec<&str> = directory
        .split('/')
        .filter(|part| !part.is_empty())
        .collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// The anchors of a page: its headings', and those that it sets itself with `<a id="…">`.
fn anchors(text: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    let mut is_fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if let Some(heading) = heading(line).filter(|_| !is_fenced) {
            let slug = slug(heading);
            // A heading that is there again has a number.
            let numbered = (1..).map(|number| format!("{slug}-{number}"));
            let mut names = std::iter::once(slug.clone()).chain(numbered);
            anchors.extend(names.find(|name| !anchors.contains(name)));
        }
    }
    let own = text.split("<a id=\"").skip(1);
    anchors.extend(own.filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())));
    anchors
}

/// What a line says that is a heading.
fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    let level = line.len() - text.len();
    (1..=6).contains(&level).then_some(())?;
    Some(text.strip_prefix(' ')?.trim().trim_end_matches('#').trim())
}

/// The anchor of a heading: small letters, digits, `-` and `_`; a space is a `-`, and all else goes.
fn slug(heading: &str) -> String {
    let mut slug = String::new();
    for c in heading_text(heading).chars() {
        match c {
            ' ' => slug.push('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => slug.extend(c.to_lowercase()),
            _ => {}
        }
    }
    slug
}

/// A heading without the addresses of its links.
fn heading_text(heading: &str) -> String {
    let mut parts = heading.split("](");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed_from_their_file_to_a_heading() {
        let text = "# Here\n[a](../docs/b.md#the-part) [b](https://example.org/#x) [c](#here)\n\
                    [d](missing.md)\n[e](../docs/b.md#gone)\n[f](#there)\n[g](../docs/c.rs#L3)\n";
        let page = "# B\n## The part\n```sh\n# gone\n```\n";
        let tree = Tree::of(&[
            ("x/a.md", text),
            ("docs/b.md", page),
            ("docs/c.rs", "//! C.\n"),
        ]);
        let findings = links_resolve(&tree);
        let places: Vec<&str> = findings
            .iter()
            .map(|found| found.location.as_str())
            .collect();
        assert_eq!(places, ["x/a.md:3", "x/a.md:4", "x/a.md:5"]);
    }

    #[test]
    fn an_anchor_is_what_github_makes_of_a_heading() {
        let page = "# `conjure serve`: who gets in?\n## A [link](to/it.md), and more\n## Again\n\
                    ## Again\n## snake_case & x-y\n#no heading\n<a id=\"own\"></a>\n";
        let mut anchors: Vec<String> = anchors(page).into_iter().collect();
        anchors.sort();
        assert_eq!(
            anchors,
            [
                "a-link-and-more",
                "again",
                "again-1",
                "conjure-serve-who-gets-in",
                "own",
                "snake_case--x-y"
            ]
        );
    }
}
