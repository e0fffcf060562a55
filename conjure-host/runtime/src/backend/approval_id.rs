//! What tells apart whose tools were approved: servers, backends and skills, each with what it depends
//! on. The id names the file that holds what was approved, so one that changes begins anew.

use conjure_config::BackendSpec;
use conjure_plugins::{LoadedPlugin, Sha256};
use conjure_skill_sdk::protocol::CatalogRequest;
use serde_json::{Map, Value, json};

use super::contributors::is_contributor;

/// The settings of a server that say which one it is; the others say how it is used.
const IDENTITY: [&str; 4] = ["command", "args", "cwd", "url"];

/// The id of a server: the plugin, the name, and the settings that say which one it is. Of a backend
/// without servers the build counts too, where somebody put that there: it is theirs, and they know its
/// tools. Another build that came in a package is held against the one before, as a server is: of a
/// backend the package does not say what its tools are.
///
/// A backend with a share in requests offers other tools with another provider, so each that it was asked
/// for has an id. The version stands for the build of one that is linked into the host.
pub(super) fn of_server(
    spec: &BackendSpec,
    plugin: &LoadedPlugin,
    whom: &CatalogRequest,
    server: Option<&str>,
) -> ApprovalId {
    let config = spec.config.as_ref();
    let own = config.and_then(|config| config.get("servers")?.get(server?));
    let settings = match own {
        Some(own) => IDENTITY.iter().map(|name| own.get(name)).collect(),
        None => vec![config],
    };
    let id = |build: Option<String>, version: Option<String>| {
        let mut id = Map::from_iter([
            ("plugin".to_owned(), json!(plugin.manifest().name)),
            ("build".to_owned(), json!(build)),
            ("server".to_owned(), json!(server)),
            ("settings".to_owned(), json!(settings)),
        ]);
        if is_contributor(plugin) {
            id.insert("provider".to_owned(), json!(whom.provider));
            id.insert("version".to_owned(), json!(version));
        }
        digest(Value::Object(id))
    };
    let build = plugin.id().sha256.filter(|_| own.is_none());
    ApprovalId::of(plugin, build.map(|hash| hash.to_string()), &id)
}

/// The id of a native skill, with its build and its settings. One that is linked into the host has the
/// build of its version. One that came in a package has neither, as a backend has not: a new build does not
/// make new definitions of its tools approved ones.
pub(super) fn of_skill(plugin: &LoadedPlugin, config: &Value) -> ApprovalId {
    let id = |build: Option<String>, version: Option<String>| {
        digest(json!({
            "skill": plugin.id().name.to_string(),
            "version": version,
            "build": build,
            "settings": config,
        }))
    };
    let build = plugin.id().sha256.map(|hash| hash.to_string());
    ApprovalId::of(plugin, build, &id)
}

/// Under which id approvals are kept.
pub(super) struct ApprovalId {
    pub(super) id: String,
    /// Id of the build alone, of a plugin that came in a package: earlier versions of the program kept what
    /// was approved under it.
    pub(super) build_id: Option<String>,
}

impl ApprovalId {
    /// Makes the id, with build and version where the plugin came in no package.
    fn of(
        plugin: &LoadedPlugin,
        build: Option<String>,
        id: &dyn Fn(Option<String>, Option<String>) -> String,
    ) -> Self {
        let of_build = id(build, Some(plugin.id().version.to_string()));
        match plugin.is_packaged() {
            false => Self {
                id: of_build,
                build_id: None,
            },
            true => Self {
                id: id(None, None),
                build_id: Some(of_build),
            },
        }
    }
}

fn digest(mut id: Value) -> String {
    // The order in which somebody wrote settings says nothing.
    id.sort_all_objects();
    Sha256::of(id.to_string().as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use conjure_plugins::PluginLimits;
    use conjure_skill_sdk::protocol::{
        BackendCall, CatalogReply, Contribute, Contribution, Observation, Observe, Open, ToolResult,
    };
    use conjure_skill_sdk::{Backend, BackendPlugin, Contributes, Cx, Error, Result};

    use super::*;

    /// Nobody calls it.
    struct UncalledBackend;

    impl Backend for UncalledBackend {
        async fn open(&self, _cx: Cx, _request: Open) -> Result<()> {
            Ok(())
        }

        async fn catalog(&self, _cx: Cx) -> Result<CatalogReply> {
            Ok(CatalogReply::default())
        }

        async fn call(&self, _cx: Cx, _request: BackendCall) -> Result<ToolResult> {
            Err(Error::new("there is no tool"))
        }

        async fn close(&self, _cx: Cx) -> Result<()> {
            Ok(())
        }
    }

    impl Contributes for UncalledBackend {
        async fn contribute(&self, _cx: Cx, _request: Contribute) -> Result<Contribution> {
            Ok(Contribution::default())
        }

        async fn observe(&self, _cx: Cx, _request: Observe) -> Result<Observation> {
            Ok(Observation::default())
        }
    }

    fn plain() -> BackendPlugin<UncalledBackend> {
        BackendPlugin::new("plain", "Offers nothing", |_setup| Ok(UncalledBackend))
    }

    fn linked(make: fn() -> BackendPlugin<UncalledBackend>, version: &str) -> LoadedPlugin {
        LoadedPlugin::linked(make, version, PluginLimits::default()).unwrap()
    }

    #[test]
    fn a_provider_tells_only_backends_apart_that_have_a_share_in_requests() {
        let spec = BackendSpec::default();
        let id = |plugin: &LoadedPlugin, provider: Option<&str>, model: Option<&str>| {
            let whom = CatalogRequest {
                provider: provider.map(str::to_owned),
                model: model.map(str::to_owned),
            };
            of_server(&spec, plugin, &whom, None).id
        };
        let (one, other, model) = (Some("one"), Some("other"), Some("m"));
        // What is in files that were written before.
        let known = "8e5d1e3dc56f676696f2c3798cd51f10cfc8f3ee69104de8bc1b177cd064aef2";
        let plain = linked(plain, "1.0.0");
        assert_eq!(id(&plain, None, None), known);
        assert_eq!(id(&plain, one, model), known);
        let sharing = || self::plain().with_contributions();
        let first = linked(sharing, "1.0.0");
        // Its catalog is asked for once a provider: a held tool does not get free with another model.
        assert_eq!(id(&first, one, model), id(&first, one, Some("n")));
        assert_ne!(id(&first, one, model), id(&first, other, model));
        assert_ne!(id(&first, one, model), id(&first, None, None));
        let second = linked(sharing, "1.1.0");
        assert_ne!(id(&first, one, model), id(&second, one, model));
    }
}
