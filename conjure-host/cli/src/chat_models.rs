//! The models that a chat can go on with: those that providers list, and where one gives no list, those
//! that the model book knows of it.

use std::collections::BTreeMap;
use std::time::Duration;

use conjure_config::{AuthName, SessionSpec};
use conjure_core::numerals::thousands;
use conjure_providers::auths::{Auths, MCP_SECRETS};
use conjure_providers::{
    BUILT_IN_PROVIDERS, HttpProvider, KNOWN_PROVIDERS, ListedModel, ModelBook,
};
use conjure_runtime::session::SessionError;
use conjure_terminal::{Picker, PickerItem, pick};
use futures_util::future::join_all;

use super::args::Global;
use super::chat_commands::{report_error, split_provider_model};
use super::chat_session::{ChatSession, models};
use super::chat_threads::{Answerer, no_model};
use super::error::CliError;
use super::terminal_support::has_colors;

/// How long a provider may take to list its models: somebody waits for it.
const LISTING_TIMEOUT: Duration = Duration::from_secs(4);

/// The models of the providers that there is a credential for, provider by provider. Says of which
/// provider nothing is known, and why.
pub(crate) async fn choices(chat: &ChatSession) -> Result<Vec<PickerItem>, CliError> {
    let (book, auths) = match chat {
        ChatSession::Own(own) => (own.models.as_ref(), &own.auths),
        ChatSession::Saved(saved) => (saved.models.as_ref(), &saved.auths),
    };
    let providers = providers(chat, auths).await?;
    Ok(list_models(&providers, auths, book).await)
}

/// Asks who is to answer where nothing says that and nobody has answered before: a model that the person
/// picks, of the providers that there is a credential for; nothing where the list is left. `base_url` is
/// where the provider is, when not at its usual place.
///
/// # Errors
/// When there is no credential, no model is known of those that there is one for, or nothing says which
/// of several is at that address.
pub(crate) async fn choose_answerer(
    global: &Global,
    base_url: Option<&str>,
) -> Result<Option<Answerer>, CliError> {
    let (auths, book) = (global.auths(), models(global));
    let mut providers = of_environment(&SessionSpec::default());
    add_saved(&mut providers, &auths, None).await?;
    if let Some(base_url) = base_url {
        at_address(&mut providers, base_url)?;
    }
    let Some(provider) = providers.keys().next().cloned() else {
        return Err(no_model());
    };
    let choices = list_models(&providers, &auths, book.as_ref()).await;
    if choices.is_empty() {
        let example = format!("`conjure chat --provider {provider} --model MODEL` names one");
        return Err(no_model().hint(example));
    }
    let picker = Picker::new("models", "Which model is to answer?", choices);
    let picked = pick(picker, has_colors(), |_| std::future::ready(Vec::new())).await;
    let Some(picked) = picked.map_err(CliError::host_from)? else {
        return Ok(None);
    };
    let (provider, model) = split_provider_model(&picked).unwrap_or_default();
    let auth = providers.get(provider).and_then(|spec| spec.auth.as_ref());
    Ok(Some(Answerer {
        provider: provider.to_owned(),
        model: model.to_owned(),
        auth: auth.map(|auth| auth.as_str().to_owned()),
    }))
}

/// Has the only provider be asked at this address.
///
/// # Errors
/// When there are several: the key of one is nothing that the server of another is to see.
fn at_address(
    providers: &mut BTreeMap<String, SessionSpec>,
    base_url: &str,
) -> Result<(), CliError> {
    if providers.len() > 1 {
        let names: Vec<&str> = providers.keys().map(String::as_str).collect();
        let message = format!(
            "`--base-url` is where one provider is, and there are credentials for {}",
            names.join(", ")
        );
        return Err(CliError::usage(message).hint("`--provider NAME` says which of them is there"));
    }
    for (name, spec) in providers {
        let at = spec.providers.entry(name.clone()).or_default();
        at.base_url = Some(base_url.to_owned());
    }
    Ok(())
}

/// The models of these providers. Says of which nothing is known, and why.
async fn list_models(
    providers: &BTreeMap<String, SessionSpec>,
    auths: &Auths,
    book: Option<&ModelBook>,
) -> Vec<PickerItem> {
    let asked = providers
        .iter()
        .map(|(name, spec)| fetch_models_with_timeout(auths, name, spec.clone()));
    let listed = Box::pin(join_all(asked)).await;
    let mut choices = Vec::new();
    for (provider, listed) in providers.keys().zip(listed) {
        let mut models = or_known_models(listed, book, provider).unwrap_or_else(|error| {
            report_error(&error);
            Vec::new()
        });
        models.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        choices.extend(models.iter().map(|model| choice(provider, model, book)));
    }
    choices
}

/// The providers that there is a credential for, each with what asks it.
async fn providers(
    chat: &ChatSession,
    auths: &Auths,
) -> Result<BTreeMap<String, SessionSpec>, CliError> {
    let (mut providers, chosen) = match chat {
        ChatSession::Own(own) => {
            let mut providers = of_environment(&own.spec);
            if let Some(name) = own.spec.provider.as_deref() {
                providers.insert(name.to_owned(), for_provider_only(own.spec.clone(), name));
            }
            (providers, None)
        }
        ChatSession::Saved(saved) => {
            let view = saved.sessions.manager().get(&saved.id).await?;
            (BTreeMap::new(), Some(view.auth))
        }
    };
    add_saved(&mut providers, auths, chosen.as_ref()).await?;
    Ok(providers)
}

/// Providers that the environment has a key for.
fn of_environment(spec: &SessionSpec) -> BTreeMap<String, SessionSpec> {
    let with_key = KNOWN_PROVIDERS.iter().filter(|known| known.has_key());
    let asked = with_key.map(|known| {
        (
            known.name.to_owned(),
            for_provider_only(spec.clone(), known.name),
        )
    });
    asked.collect()
}

/// Adds providers that there is a saved auth for; `chosen` goes before others of its provider.
async fn add_saved(
    providers: &mut BTreeMap<String, SessionSpec>,
    auths: &Auths,
    chosen: Option<&AuthName>,
) -> Result<(), CliError> {
    for auth in auths.list().await? {
        let name = auth.full_name();
        let is_chosen = chosen == Some(&name);
        if is_chosen || !providers.contains_key(&auth.provider) {
            let spec = SessionSpec {
                auth: Some(name.into()),
                ..SessionSpec::default()
            };
            providers.insert(auth.provider, spec);
        }
    }
    // They are asked nothing, and the secrets of MCP servers are sent to nobody else.
    providers.retain(|name, _| name != MCP_SECRETS && !BUILT_IN_PROVIDERS.contains(&name.as_str()));
    Ok(())
}

/// A session's description without what it says of other providers: their credentials are not needed.
fn for_provider_only(spec: SessionSpec, provider: &str) -> SessionSpec {
    let mut spec = spec.with_provider_base_url();
    spec.providers.retain(|name, _| name == provider);
    spec
}

async fn fetch_models_with_timeout(
    auths: &Auths,
    provider: &str,
    spec: SessionSpec,
) -> Result<Vec<ListedModel>, CliError> {
    let listed = Box::pin(fetch_models(auths, provider, spec));
    match tokio::time::timeout(LISTING_TIMEOUT, listed).await {
        Ok(listed) => listed,
        Err(_) => Err(CliError::usage(format!(
            "it gave none within {} seconds",
            LISTING_TIMEOUT.as_secs()
        ))),
    }
}

async fn fetch_models(
    auths: &Auths,
    provider: &str,
    spec: SessionSpec,
) -> Result<Vec<ListedModel>, CliError> {
    let spec = auths.open(spec).await?;
    let provider = HttpProvider::of(provider, &spec).map_err(SessionError::from)?;
    Ok(provider.models().await?)
}

/// What a provider listed, and else what is known of it.
///
/// # Errors
/// Why it gave no list, where nothing is known either.
fn or_known_models(
    listed: Result<Vec<ListedModel>, CliError>,
    book: Option<&ModelBook>,
    provider: &str,
) -> Result<Vec<ListedModel>, CliError> {
    let error = match listed {
        Ok(models) if !models.is_empty() => return Ok(models),
        Ok(_) => CliError::usage("it has none"),
        Err(error) => error,
    };
    let known = book.into_iter().flat_map(|book| book.models(provider));
    let known: Vec<ListedModel> = known
        .map(|model| ListedModel {
            name: model.to_owned(),
            context: None,
            max_output: None,
        })
        .collect();
    if known.is_empty() {
        let hint = format!("`/model {provider}/MODEL` goes on with one that you name");
        let error = error.context(format_args!("no list of the models of {provider}"));
        return Err(error.hint(hint));
    }
    Ok(known)
}

fn choice(provider: &str, model: &ListedModel, book: Option<&ModelBook>) -> PickerItem {
    let facts = book.and_then(|book| book.facts(provider, &model.name));
    let window = facts.and_then(|facts| facts.context).or(model.context);
    let name = format!("{provider}/{}", model.name);
    PickerItem {
        id: name.clone(),
        label: name,
        detail: window.map_or_else(String::new, |window| {
            format!("{} tokens", thousands(window))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(models: Result<Vec<ListedModel>, CliError>) -> Vec<String> {
        models.unwrap().into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn what_a_provider_lists_goes_before_what_is_known_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let book = ModelBook::read(dir.path()).unwrap();
        let own = || {
            Ok(vec![ListedModel {
                name: "one-of-my-own".to_owned(),
                context: Some(4096),
                max_output: None,
            }])
        };
        let none = || Err(CliError::usage("the connection was refused"));
        let of = |listed, provider| or_known_models(listed, Some(&book), provider);
        assert_eq!(names(of(own(), "anthropic")), ["one-of-my-own"]);
        for listed in [none(), Ok(Vec::new())] {
            let known: Vec<&str> = book.models("anthropic").collect();
            assert!(!known.is_empty());
            assert_eq!(names(of(listed, "anthropic")), known);
        }
        let error = of(none(), "openai-compatible").unwrap_err();
        assert_eq!(
            error.to_string(),
            "no list of the models of openai-compatible: the connection was refused"
        );
        let item = choice("llamacpp", &names_one(own()), Some(&book));
        assert_eq!(item.label, "llamacpp/one-of-my-own");
        assert_eq!(item.detail, format!("{} tokens", thousands(4096)));
    }

    fn names_one(models: Result<Vec<ListedModel>, CliError>) -> ListedModel {
        models.unwrap().remove(0)
    }

    #[test]
    fn an_address_is_that_of_the_only_provider() {
        let of = |names: &[&str]| -> BTreeMap<String, SessionSpec> {
            let specs = names
                .iter()
                .map(|name| ((*name).to_owned(), SessionSpec::default()));
            specs.collect()
        };
        let mut one = of(&["openai"]);
        at_address(&mut one, "http://10.0.0.7").unwrap();
        let base_url = one["openai"].providers["openai"].base_url.as_deref();
        assert_eq!(base_url, Some("http://10.0.0.7"));
        let error = at_address(&mut of(&["anthropic", "openai"]), "http://10.0.0.7").unwrap_err();
        assert!(error.to_string().contains("anthropic, openai"), "{error}");
        at_address(&mut of(&[]), "http://10.0.0.7").unwrap();
    }

    #[test]
    fn the_address_of_one_provider_is_not_said_of_another() {
        let text = "provider = \"ollama\"\nbase_url = \"http://10.0.0.7\"";
        let spec = SessionSpec::from_toml(text).unwrap();
        let own = for_provider_only(spec.clone(), "ollama");
        let base_url = own.providers["ollama"].base_url.as_deref();
        assert_eq!(base_url, Some("http://10.0.0.7"));
        let other = for_provider_only(spec, "openai");
        assert!(other.providers.is_empty() && other.base_url.is_none());
    }
}
