//! Plugins that are installed, upgraded, removed, put back and loaded again while the server runs.

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request, State};
use conjure_plugins::{InstallChange, InstallError, InstalledPlugins, LoadedPlugin, PluginFile};
use conjure_runtime::describe::loaded_json;
use conjure_runtime::{
    InstallConsent, PluginDifference, consent_to_add, consent_to_roll_back, try_plugin,
};
use conjure_skill_sdk::protocol::Manifest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::extract::{ImportPermit, JsonBody, Params, PathParams, Ref, read_large_body};
use super::operations::{Operations, routes};
use super::problem::Problem;
use super::state::App;
use super::transfer::blocking;

pub(super) fn router() -> Operations {
    Operations::new()
        .routes(routes!(add))
        .routes(routes!(history))
        .routes(routes!(remove))
        .routes(routes!(reload))
        .routes(routes!(rollback))
}

/// The bytes of a library.
struct LibraryBody(Bytes, ImportPermit);

impl FromRequest<App> for LibraryBody {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let what = "the body has to be a library: `Content-Type: application/octet-stream`";
        let (body, room) =
            read_large_body(request, app, &["application/octet-stream"], what).await?;
        Ok(Self(body, room))
    }
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AddQuery {
    /// Allow what it asks for, and its tools.
    #[serde(default)]
    yes: bool,
}

/// What was changed.
#[derive(Debug, Serialize, ToSchema)]
struct Changed {
    /// The plugin's name.
    plugin: String,
    /// `at_ms`, `action` (`add`, `remove`, `rollback`), and `from` and `to` with `version` and
    /// `sha256`; `altered` where it is removed and was not what its package had. Null where it is that
    /// very build already.
    #[schema(value_type = Option<Object>)]
    change: Option<InstallChange>,
    /// What it asks for and offers that the build before did not, and the other way round.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<Value>,
    /// As `list_plugins` shows it; absent where it is removed.
    #[schema(value_type = Option<Object>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded: Option<Value>,
}

/// Install a plugin, or upgrade the one that is there
///
/// The library is judged, loaded and tried first. When this answers, sessions move to it between two
/// steps. A build that asks to be allowed more than the one before (the first of its name: anything),
/// has tools that are new or look otherwise, or goes back in its version is refused without `yes`.
#[utoipa::path(post, path = "/api/v1/plugins", operation_id = "add_plugin", tag = "plugins",
    params(AddQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream",
        description = "The library, or the bundle of a program"),
    responses((status = 200, description = "It is installed", body = Changed),
        (status = 409, description = "It asks to be allowed more"),
        (status = 422, description = "A host would not take it")))]
async fn add(
    State(app): State<App>,
    Params(query): Params<AddQuery>,
    LibraryBody(bytes, _room): LibraryBody,
) -> Result<Json<Changed>, Problem> {
    let (file, plugin) = load_checked(&app, bytes).await?;
    let name = file.header.name.clone();
    let installed = installed_plugins(&app);
    let (state, before) = {
        let (installed, name) = (installed.clone(), name.clone());
        let read = move || installed.state_and_file(&name);
        blocking(read).await??
    };
    let registry = app.host.registry();
    // Where none is installed, the one that sessions use now, such as one that came with the program.
    let in_use = registry.snapshot().get(&name).cloned();
    let known = match &before {
        Some(old) => registry.loader().stored_manifest(&old.sha256),
        None => in_use
            .as_ref()
            .map(|plugin| Manifest::clone(plugin.manifest())),
    };
    let locked = {
        let (installed, name) = (installed.clone(), name.clone());
        blocking(move || installed.lock().plugin(&name)).await?
    };
    let locked = locked.map_err(InstallError::from)?;
    let is_there = before.as_ref().is_some_and(|it| it.sha256 == file.sha256);
    let from = match &before {
        Some(before) => Some(before.header.version.clone()),
        None => in_use.map(|plugin| plugin.id().version.to_string()),
    };
    let (offered, difference) = consent_to_add(from.as_deref(), known.as_ref(), plugin.manifest());
    let mut consent = match is_there {
        true => InstallConsent::default(),
        false => offered,
    };
    let in_package = "to take the place of one that came in a package";
    consent
        .added_requests
        .extend(locked.map(|_| in_package.to_owned()));
    if !query.yes {
        check_grants(&plugin.id().to_string(), &consent, &difference)?;
    }
    let change = {
        let installed = installed.clone();
        blocking(move || installed.add_if_unchanged(&file, &state)).await??
    };
    let loaded = activate(&app, installed, &name, change.as_ref()).await?;
    Ok(Json(Changed {
        plugin: name,
        change,
        difference: Some(difference.json()),
        loaded: Some(loaded),
    }))
}

/// What was changed about installed plugins, the oldest first.
#[derive(Debug, Serialize, ToSchema)]
struct PluginHistory {
    /// Each with `at_ms`, `action`, `plugin`, `from` and `to`.
    #[schema(value_type = Vec<Object>)]
    changes: Vec<InstallChange>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct HistoryQuery {
    /// Only of this plugin.
    plugin: Option<String>,
}

/// List what was installed, upgraded, removed and put back
#[utoipa::path(get, path = "/api/v1/plugins/history", operation_id = "list_plugin_changes",
    tag = "plugins", params(HistoryQuery),
    responses((status = 200, description = "All of it", body = PluginHistory)))]
async fn history(
    State(app): State<App>,
    Params(query): Params<HistoryQuery>,
) -> Result<Json<PluginHistory>, Problem> {
    let installed = installed_plugins(&app);
    let changes = blocking(move || installed.history(query.plugin.as_deref())).await??;
    Ok(Json(PluginHistory { changes }))
}

/// Remove an installed plugin; it is kept and can be put back
#[utoipa::path(delete, path = "/api/v1/plugins/{plugin}", operation_id = "remove_plugin",
    tag = "plugins", params(("plugin" = String, Path, description = "Its name")),
    responses((status = 200, description = "It is gone", body = Changed),
        (status = 404, description = "No plugin of this name is installed")))]
async fn remove(
    State(app): State<App>,
    PathParams(Ref(name)): PathParams<Ref>,
) -> Result<Json<Changed>, Problem> {
    let installed = installed_plugins(&app);
    let registry = Arc::clone(app.host.registry());
    let change = blocking(move || {
        let path = installed.file(&name)?.map(|file| file.path);
        let change = installed.remove(&name)?;
        if let Some(path) = path {
            registry.remove(&path);
        }
        Ok::<_, InstallError>(change)
    });
    let change = change.await??;
    Ok(Json(Changed {
        plugin: change.plugin.clone(),
        change: Some(change),
        difference: None,
        loaded: None,
    }))
}

/// Load a plugin again from its file, also one that was given up on
#[utoipa::path(post, path = "/api/v1/plugins/{plugin}/reload", operation_id = "reload_plugin",
    tag = "plugins", params(("plugin" = String, Path, description = "Its name")),
    responses((status = 200, description = "It is loaded", body = Changed),
        (status = 404, description = "There is no such plugin with a file"),
        (status = 422, description = "It cannot be loaded; what was loaded stays in use")))]
async fn reload(
    State(app): State<App>,
    PathParams(Ref(name)): PathParams<Ref>,
) -> Result<Json<Changed>, Problem> {
    let (registry, installed) = (Arc::clone(app.host.registry()), installed_plugins(&app));
    let wanted = name.clone();
    let reloaded = blocking(move || {
        registry.reload_renewed(&wanted, |path| {
            let file = installed.file(&wanted)?;
            if file.is_some_and(|file| file.path == path) {
                // Other hosts of the directory load it again as well.
                installed.reload(&wanted)?;
            }
            Ok::<_, InstallError>(())
        })
    });
    let reloaded = reloaded.await??;
    let plugin = reloaded
        .ok_or_else(|| Problem::not_found(format!("no plugin `{name}` is loaded from a file")))?;
    let plugin = plugin.map_err(|error| Problem::invalid(error.to_string()))?;
    Ok(Json(Changed {
        plugin: name,
        change: None,
        difference: None,
        loaded: Some(loaded_json(&plugin)),
    }))
}

/// Build that is put back.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct RollbackWish {
    /// Version whose newest build is put back; without it, what the last change took away.
    version: Option<String>,
    /// Allow what the build asks for, and its tools.
    #[serde(default)]
    yes: bool,
}

/// Put a build of a plugin back that was installed before
#[utoipa::path(post, path = "/api/v1/plugins/{plugin}/rollback", operation_id = "roll_back_plugin",
    tag = "plugins", params(("plugin" = String, Path, description = "Its name")),
    request_body = RollbackWish,
    responses((status = 200, description = "It is there again", body = Changed),
        (status = 404, description = "There is no such build"),
        (status = 409, description = "It asks to be allowed more")))]
async fn rollback(
    State(app): State<App>,
    PathParams(Ref(name)): PathParams<Ref>,
    JsonBody(wish): JsonBody<RollbackWish>,
) -> Result<Json<Changed>, Problem> {
    let installed = installed_plugins(&app);
    let RollbackWish { version, yes } = wish;
    let (change, difference) = {
        let (installed, name) = (installed.clone(), name.clone());
        let registry = Arc::clone(app.host.registry());
        let rolled_back = blocking(move || {
            let (state, there) = installed.state_and_file(&name)?;
            let build = installed.rollback_target(&name, version.as_deref())?;
            let (consent, difference) =
                consent_to_roll_back(registry.loader(), there.as_ref(), &state, &build);
            if !yes {
                check_grants(&format!("{name} {}", build.version), &consent, &difference)?;
            }
            let change = installed.rollback_if_unchanged(&name, &build, &state)?;
            Ok::<_, Problem>((change, difference))
        });
        rolled_back.await??
    };
    let loaded = activate(&app, installed, &name, Some(&change)).await?;
    Ok(Json(Changed {
        plugin: name,
        change: Some(change),
        difference: Some(difference.json()),
        loaded: Some(loaded),
    }))
}

/// Refuses a build that asks for what nobody has allowed yet, with all that is different.
fn check_grants(
    build: &str,
    consent: &InstallConsent,
    difference: &PluginDifference,
) -> Result<(), Problem> {
    let more = consent.phrases();
    if more.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "{build} asks for what nobody has allowed yet: {}. Say `yes` if it may",
        more.join(", ")
    );
    let problem = Problem::conflict("asks-for-more", detail).with_member("more", more);
    Err(problem.with_member("difference", difference.json()))
}

fn installed_plugins(app: &App) -> InstalledPlugins {
    InstalledPlugins::of(app.host.data_dir())
}

/// A library that a host takes: judged, loaded, and with an instance that answers.
async fn load_checked(app: &App, bytes: Bytes) -> Result<(PluginFile, Arc<LoadedPlugin>), Problem> {
    let dir = app.host.data_dir().join("tmp");
    let registry = Arc::clone(app.host.registry());
    let (file, plugin) = blocking(move || {
        let failed =
            |error: std::io::Error| Problem::of_disk(&error, format!("cannot keep it: {error}"));
        conjure_config::fs::create_private_dir(&dir).map_err(failed)?;
        let sent = tempfile::Builder::new().prefix("plugin-").tempdir_in(&dir);
        let sent = sent.map_err(failed)?;
        let path = sent.path().join(format!(
            "sent.{}",
            conjure_config::platform::LIBRARY_EXTENSION
        ));
        conjure_config::fs::write_atomic(&path, &bytes).map_err(failed)?;
        let read = || PluginFile::read(&path, true);
        let refused = |error: conjure_plugins::PluginError| {
            // What it was called here says nothing to whoever sent it.
            let reason = error.to_string();
            Problem::invalid(reason.replace(&path.display().to_string(), "the library"))
        };
        let file = read().map_err(refused)?;
        let plugin = registry.loader().load_file(read().map_err(refused)?);
        Ok::<_, Problem>((file, Arc::new(plugin.map_err(refused)?)))
    })
    .await??;
    try_plugin(app.host.data_dir(), &plugin)
        .await
        .map_err(|error| Problem::invalid(error.to_string()))?;
    Ok((file, plugin))
}

/// Has the host take what is installed at once, without waiting for the directory to tell. Where it
/// does not, the change is taken back.
async fn activate(
    app: &App,
    installed: InstalledPlugins,
    name: &str,
    change: Option<&InstallChange>,
) -> Result<Value, Problem> {
    let registry = Arc::clone(app.host.registry());
    let (name, change) = (name.to_owned(), change.cloned());
    let loaded = blocking(move || {
        let Some(file) = installed.file(&name)? else {
            return Ok(json!(null));
        };
        match registry.add(&file.path, false) {
            Ok(plugin) => Ok(loaded_json(&plugin)),
            Err(error) => {
                let is_back = match change {
                    Some(change) => installed.undo(&change)?,
                    None => true,
                };
                let outcome = match is_back {
                    true => "so nothing was changed",
                    false => "and somebody has changed it meanwhile, which stays",
                };
                Err(Problem::invalid(format!(
                    "this host does not take it, {outcome}: {error}"
                )))
            }
        }
    });
    loaded.await?
}

impl From<InstallError> for Problem {
    fn from(error: InstallError) -> Self {
        match error {
            InstallError::NotInstalled { .. } | InstallError::NoBackup { .. } => {
                Self::not_found(error.to_string())
            }
            InstallError::Altered { .. } => Self::conflict("altered", error.to_string()),
            InstallError::ChangedMeanwhile { .. } => Self::conflict("overtaken", error.to_string()),
            InstallError::Conflict { .. } => Self::conflict("in-the-way", error.to_string()),
            InstallError::Plugin(_) => Self::invalid(error.to_string()),
            InstallError::Io(ref source) => Self::of_disk(source, error.to_string()),
            InstallError::Lock(_) => Self::host(error.to_string()),
        }
    }
}
