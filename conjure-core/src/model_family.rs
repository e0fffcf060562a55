//! Model families: which models may see each other's private data.
//!
//! One rule for all providers, so that a sidecar's signer is told in the same way when it is made
//! and when it is sent back.

/// The family of a model: its name without what says when or where it was published.
///
/// Left out are a path in front (`anthropic/…`), a region or vendor prefix that ends in a dot
/// (`us.anthropic.…`), and at the end `@…`, `:…`, `-latest` and a date (`-20250929`,
/// `-2025-09-29`). The rest is compared as it is: two versions of a model are two families,
/// because a provider rejects a signature that another model made, while losing one costs only
/// the thoughts.
#[must_use]
pub fn model_family(model: &str) -> String {
    let lower = model.trim().to_ascii_lowercase();
    let name = lower.rsplit('/').next().unwrap_or_default();
    let name = name.split(['@', ':']).next().unwrap_or_default();
    let name = without_vendor(name);
    let name = name.strip_suffix("-latest").unwrap_or(name);
    without_date(name).to_owned()
}

/// Cuts `us.anthropic.` and the like, but not the `gpt-4.` of `gpt-4.1`.
fn without_vendor(name: &str) -> &str {
    let mut rest = name;
    while let Some((first, after)) = rest.split_once('.') {
        if first.is_empty() || !first.chars().all(|c| c.is_ascii_lowercase()) || after.is_empty() {
            break;
        }
        rest = after;
    }
    rest
}

fn without_date(name: &str) -> &str {
    let digits = |text: &str, count: usize| {
        text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    if let Some((rest, day)) = name.rsplit_once('-') {
        if digits(day, 8) {
            return rest;
        }
        let month = rest.rsplit_once('-');
        let year = month.and_then(|(rest, _)| rest.rsplit_once('-'));
        if let (Some((_, month)), Some((rest, year))) = (month, year)
            && digits(day, 2)
            && digits(month, 2)
            && digits(year, 4)
        {
            return rest;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_the_name_without_place_and_date() {
        for (model, family) in [
            ("claude-sonnet-4-5", "claude-sonnet-4-5"),
            ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
            ("claude-sonnet-4-5@20250929", "claude-sonnet-4-5"),
            ("claude-3-7-sonnet-latest", "claude-3-7-sonnet"),
            ("anthropic/Claude-Opus-5", "claude-opus-5"),
            (
                "us.anthropic.claude-haiku-4-5-20251001-v1:0",
                "claude-haiku-4-5-20251001-v1",
            ),
            ("gpt-4.1-2025-04-14", "gpt-4.1"),
            ("gpt-4.1-mini", "gpt-4.1-mini"),
            ("o3", "o3"),
            ("", ""),
        ] {
            assert_eq!(model_family(model), family, "{model}");
        }
    }

    #[test]
    fn two_versions_are_two_families() {
        assert_ne!(
            model_family("claude-opus-4-6"),
            model_family("claude-opus-4-7")
        );
    }
}
