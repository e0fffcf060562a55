//! A loaded plugin: what it is, and the making of its instances.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use async_recursion::async_recursion as boxed;
use conjure_abi::{CallContext, HeaderFields, PluginObject, RSlice, RootRef};
use conjure_skill_sdk::export::{Exported, create_linked};
use conjure_skill_sdk::protocol::{Create, Empty, Manifest, Request, op};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::call::CallRecord;
use super::grant::{InstanceGrant, allowed_permissions};
use super::health::{PluginHealth, PluginLimits, SharedHealth};
use super::in_place::InPlaceOperations;
use super::instance::Instance;
use super::link::{InProcess, InstanceLink};
use super::load::DeferredLibrary;
use super::pool::POOL;
use super::services::{CallMeta, CallOptions, HostServices, PluginId};
use super::worker::{
    InstanceDirs, InstanceWorker, Isolation, IsolationReason, PluginWorkers, WorkerGrants,
    WorkerLink,
};
use super::{FileStamp, Pin, PluginError, ProgramDescription, Sha256};
use conjure_core::sentence::sentence;

/// A plugin that can make instances.
pub struct LoadedPlugin {
    id: PluginId,
    manifest: Arc<Manifest>,
    source: PluginSource,
    factory: Factory,
    pub(super) health: Arc<SharedHealth>,
    pub(super) in_place_operations: Arc<InPlaceOperations>,
}

/// What stands for the path of a plugin that is linked into the host.
pub(super) const LINKED_PATH: &str = "(linked into the host)";

/// Where a plugin comes from.
#[derive(Debug, Clone)]
pub enum PluginSource {
    /// A library, or a program with its description.
    File {
        /// Path that the file was read from.
        path: PathBuf,
        /// Hash of the file's bytes.
        sha256: Sha256,
        /// What its header says, or a program's description in the same words.
        header: Box<HeaderFields>,
        /// The description, where it is a program.
        program: Option<Box<ProgramDescription>>,
        /// Why it may run inside the host.
        pin: Pin,
        /// Why it runs where it does.
        isolation_reason: IsolationReason,
        /// Whether it came in a package.
        is_packaged: bool,
        /// How to recognise that the file changed.
        stamp: FileStamp,
    },
    /// Part of the host's program.
    Linked,
}

impl PluginSource {
    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Linked => None,
        }
    }

    /// How to recognise that the file changed, if there is one.
    pub(super) fn stamp(&self) -> Option<&FileStamp> {
        match self {
            Self::File { stamp, .. } => Some(stamp),
            Self::Linked => None,
        }
    }

    /// Why it may run inside the host.
    pub fn pin(&self) -> &Pin {
        match self {
            Self::File { pin, .. } => pin,
            Self::Linked => &Pin::Linked,
        }
    }
}

type MakeObject = dyn Fn(&[u8], CallContext) -> Result<PluginObject, String> + Send + Sync;

/// Makes the objects of a plugin.
pub(super) enum Factory {
    Library(RootRef),
    /// A library that is opened when it is needed.
    Deferred(Arc<DeferredLibrary>),
    Linked(Arc<MakeObject>),
    /// A library that a worker process opens.
    Worker(Arc<PluginWorkers>),
}

/// What can make objects at once.
enum ObjectSource {
    Library(RootRef),
    Linked(Arc<MakeObject>),
}

impl ObjectSource {
    fn make(&self, config: &[u8], cx: CallContext) -> Result<PluginObject, String> {
        match self {
            Self::Library(root) => root.create()(RSlice::from_slice(config), cx)
                .into_result()
                .map_err(|fault| fault.text().into_owned()),
            Self::Linked(make) => make(config, cx),
        }
    }
}

impl LoadedPlugin {
    pub(super) fn new(
        manifest: Manifest,
        source: PluginSource,
        factory: Factory,
        limits: PluginLimits,
    ) -> Self {
        let id = PluginId {
            name: manifest.name.as_str().into(),
            version: semver::Version::parse(&manifest.version)
                .unwrap_or_else(|_| semver::Version::new(0, 0, 0)),
            sha256: match &source {
                PluginSource::File { sha256, .. } => Some(*sha256),
                PluginSource::Linked => None,
            },
        };
        // Nothing is called in place in another process.
        let here = !matches!(factory, Factory::Worker(_));
        let declared = manifest.tools.iter().filter(|tool| tool.in_place && here);
        let declared = declared.map(|tool| tool.op.clone());
        Self {
            in_place_operations: Arc::new(InPlaceOperations::new(declared, limits.in_place)),
            health: Arc::new(SharedHealth::new(id.clone(), limits)),
            id,
            manifest: Arc::new(manifest),
            source,
            factory,
        }
    }

    /// A plugin that is linked into the host: a `Skill`, an `ExecutorPlugin` or a `BackendPlugin`
    /// that `make` makes, once for the manifest and once an instance. It goes through the same
    /// operations as a library.
    ///
    /// # Errors
    /// [`PluginError::Builder`] when the builder contradicts itself or panics.
    pub fn linked<E: Exported>(
        make: impl Fn() -> E + Send + Sync + 'static,
        version: &str,
        limits: PluginLimits,
    ) -> Result<Self, PluginError> {
        let refuse = |name: &str, reason: String| PluginError::Builder {
            path: LINKED_PATH.into(),
            name: name.to_owned(),
            reason,
        };
        let described = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let exported = make();
            let name = exported.plugin_name();
            let manifest = exported.plugin_manifest(&name, version);
            (name, manifest)
        }));
        let (name, manifest) =
            described.map_err(|_| refuse("a plugin", "its builder panicked".to_owned()))?;
        let manifest = manifest.map_err(|error| refuse(&name, error.message().to_owned()))?;
        if semver::Version::parse(version).is_err() {
            let reason = format!("its version `{version}` is not a semantic version");
            return Err(refuse(&name, reason));
        }
        let factory = Factory::Linked(Arc::new(move |config, cx| {
            create_linked(&make, config, cx).map_err(|error| error.message().to_owned())
        }));
        Ok(Self::new(manifest, PluginSource::Linked, factory, limits))
    }

    /// Name, version and hash.
    pub fn id(&self) -> &PluginId {
        &self.id
    }

    /// What it says about itself.
    pub fn manifest(&self) -> &Arc<Manifest> {
        &self.manifest
    }

    /// Source of the plugin: a file, or the host's program.
    pub fn source(&self) -> &PluginSource {
        &self.source
    }

    /// Health of the plugin, with the number of its workers that ended by themselves.
    pub fn health(&self) -> PluginHealth {
        let worker_ends = match &self.factory {
            Factory::Worker(worker) => worker.ends(),
            Factory::Library(_) | Factory::Deferred(_) | Factory::Linked(_) => 0,
        };
        PluginHealth {
            worker_ends,
            ..self.health.report()
        }
    }

    /// The numbers of its worker processes that run, as far as the system says them.
    pub fn worker_pids(&self) -> Vec<u32> {
        match &self.factory {
            Factory::Worker(worker) => worker.pids(),
            Factory::Library(_) | Factory::Deferred(_) | Factory::Linked(_) => Vec::new(),
        }
    }

    /// How many of its worker processes take calls.
    pub fn running_workers(&self) -> usize {
        match &self.factory {
            Factory::Worker(worker) => worker.running(),
            Factory::Library(_) | Factory::Deferred(_) | Factory::Linked(_) => 0,
        }
    }

    /// Where its code runs.
    pub fn isolation(&self) -> Isolation {
        match &self.factory {
            Factory::Worker(_) => Isolation::Process,
            Factory::Library(_) | Factory::Deferred(_) | Factory::Linked(_) => Isolation::InProcess,
        }
    }

    /// Whether its instances are confined to what they are granted, as far as the system can.
    pub(super) fn is_confined(&self) -> bool {
        match &self.factory {
            Factory::Worker(worker) => worker.is_confined(),
            Factory::Library(_) | Factory::Deferred(_) | Factory::Linked(_) => false,
        }
    }

    /// Why its code runs where it does.
    pub fn isolation_reason(&self) -> IsolationReason {
        match &self.source {
            PluginSource::File {
                isolation_reason: place,
                ..
            } => *place,
            PluginSource::Linked => IsolationReason::Linked,
        }
    }

    /// Whether it came in a package: another build of it is an upgrade that somebody else made.
    pub fn is_packaged(&self) -> bool {
        matches!(
            &self.source,
            PluginSource::File {
                is_packaged: true,
                ..
            }
        )
    }

    /// Makes an instance and waits for its first answer.
    ///
    /// The services are there for as long as the instance lives, also while no call runs. Must be
    /// called on a tokio runtime, which then carries out the plugin's host operations.
    ///
    /// # Errors
    /// [`PluginError::Create`] and [`PluginError::Ping`] with what the plugin says, and
    /// [`PluginError::Removed`] or [`PluginError::Quarantined`] without its code having run.
    pub async fn create(
        self: &Arc<Self>,
        create: &Create,
        services: Arc<dyn HostServices>,
    ) -> Result<Arc<Instance>, PluginError> {
        self.create_in(create, services, &InstanceDirs::default())
            .await
    }

    /// Like [`LoadedPlugin::create`], for a session with these directories: in a worker the instance
    /// reaches them, its own directory, and what its manifest names.
    ///
    /// # Errors
    /// As [`LoadedPlugin::create`].
    pub async fn create_in(
        self: &Arc<Self>,
        create: &Create,
        services: Arc<dyn HostServices>,
        dirs: &InstanceDirs,
    ) -> Result<Arc<Instance>, PluginError> {
        let grant = InstanceGrant {
            dirs: dirs.clone(),
            permissions: None,
            withholds_working_dir: false,
        };
        self.create_granted(create, services, &grant).await
    }

    /// Like [`LoadedPlugin::create`], with what a session grants. The services keep to it by themselves.
    ///
    /// # Errors
    /// As [`LoadedPlugin::create`], and where nothing keeps the instance to the grant.
    pub async fn create_granted(
        self: &Arc<Self>,
        create: &Create,
        services: Arc<dyn HostServices>,
        grant: &InstanceGrant,
    ) -> Result<Arc<Instance>, PluginError> {
        if self.health.is_removed() {
            return Err(PluginError::Removed {
                plugin: self.id.to_string(),
            });
        }
        self.create_even_if_removed(create, services, grant).await
    }

    /// Like [`Self::create_granted`], also after the plugin was removed, for whoever had it then, such
    /// as a step whose table has its tools: what was loaded of it is there until the last has ended.
    ///
    /// # Errors
    /// As [`LoadedPlugin::create_granted`], without [`PluginError::Removed`].
    pub async fn create_even_if_removed(
        self: &Arc<Self>,
        create: &Create,
        services: Arc<dyn HostServices>,
        grant: &InstanceGrant,
    ) -> Result<Arc<Instance>, PluginError> {
        let asked = &self.manifest.permissions;
        let allowed = allowed_permissions(asked, grant.permissions.as_ref());
        let kept = match grant.withholds_working_dir {
            true => self.check_working_dir(),
            false => Ok(()),
        };
        if let Err(error) = kept.and_then(|()| self.check_enforced(&allowed)) {
            return Err(PluginError::Create {
                plugin: self.id.to_string(),
                reason: sentence(&error.to_string()).into_owned(),
            });
        }
        let grants = WorkerGrants {
            permissions: allowed,
            asked_write: asked.write.clone(),
            dirs: grant.dirs.clone(),
        };
        self.create_with(create, services, grants).await
    }

    async fn create_with(
        self: &Arc<Self>,
        create: &Create,
        services: Arc<dyn HostServices>,
        grants: WorkerGrants,
    ) -> Result<Arc<Instance>, PluginError> {
        if let Some(reason) = self.health.quarantined() {
            return Err(PluginError::Quarantined {
                plugin: self.id.to_string(),
                reason: reason.to_owned(),
            });
        }
        let context = CallRecord::new(
            Arc::clone(&self.health),
            Handle::current(),
            Arc::clone(&services),
            None,
            None,
            CallMeta {
                session: create.session.as_deref().map(Arc::from),
                ..CallMeta::default()
            },
        );
        let dirs = grants.dirs.clone();
        let link = match self.link(create, &context, grants).await {
            Ok(link) => link,
            Err(error) => {
                context.finish();
                return Err(error);
            }
        };
        let mut instance = Instance::new(Arc::clone(self), link, context, services);
        if self.isolation() == Isolation::Process {
            instance.confine_to(dirs);
        }
        self.ping(&instance).await?;
        Ok(Arc::new(instance))
    }

    /// Makes the plugin's object, wherever the plugin runs.
    #[boxed]
    async fn link(
        &self,
        create: &Create,
        context: &Arc<CallRecord>,
        mut grants: WorkerGrants,
    ) -> Result<Box<dyn InstanceLink>, PluginError> {
        let config =
            serde_json::to_vec(create).map_err(|error| self.create_error(&error.to_string()))?;
        let asynchronous = self.manifest.has("start/1");
        let source = match &self.factory {
            Factory::Library(root) => ObjectSource::Library(*root),
            Factory::Deferred(library) => ObjectSource::Library(library.root().await?),
            Factory::Linked(make) => ObjectSource::Linked(Arc::clone(make)),
            Factory::Worker(worker) => {
                if let Some(own) = create.data_dir.as_deref().map(Path::new) {
                    // What is not there cannot be granted.
                    conjure_config::fs::create_private_dir(own)
                        .map_err(|error| self.create_error(&error.to_string()))?;
                    grants.dirs = grants.dirs.with_own_dir(own);
                }
                let worker = InstanceWorker::new(Arc::clone(worker), grants);
                let (context, limit) = (Arc::clone(context), self.health.limits.create);
                let link = WorkerLink::create(worker, config, context, asynchronous, limit).await?;
                let link = link.map_err(|fault| self.create_error(&fault.text()))?;
                let link: Box<dyn InstanceLink> = Box::new(link);
                return Ok(link);
            }
        };
        let object = self.object(source, config, context).await?;
        let context = Arc::clone(context);
        Ok(Box::new(InProcess::new(object, context, asynchronous)))
    }

    /// What its owner can do where it fails for want of something that a worker does not reach; nothing
    /// where trust would change nothing.
    pub fn trust_remedy(&self) -> Option<String> {
        let path = self.source.path()?;
        self.isolation_reason().is_about_trust().then(|| {
            format!(
                "It is not trusted, so it runs in a process of its own and reaches what its manifest \
                 names; `conjure plugin trust {}` lets it run in the host's",
                path.display()
            )
        })
    }

    fn create_error(&self, reason: &str) -> PluginError {
        let reason = match self.trust_remedy() {
            Some(remedy) => sentence(&format!("{} {remedy}", sentence(reason))).into_owned(),
            None => sentence(reason).into_owned(),
        };
        PluginError::Create {
            plugin: self.id.to_string(),
            reason,
        }
    }

    async fn object(
        &self,
        source: ObjectSource,
        config: Vec<u8>,
        context: &Arc<CallRecord>,
    ) -> Result<PluginObject, PluginError> {
        let refuse = |reason: String| self.create_error(&reason);
        let (sender, receiver) = oneshot::channel();
        let call = Arc::clone(context);
        context.enter();
        POOL.run(move || {
            let made = source.make(&config, call.context());
            call.leave();
            // When nobody waits any more the object ends here, on a thread of the plugin's.
            drop(sender.send(made));
        })
        .map_err(|error| refuse(format!("the host has no thread ({error})")))?;
        let limit = self.health.limits.create;
        match tokio::time::timeout(limit, receiver).await {
            Ok(Ok(made)) => made.map_err(refuse),
            Ok(Err(_)) => Err(refuse("its code ended without a result".to_owned())),
            Err(_) => {
                context.abandon();
                Err(refuse(format!("it did not come back within {limit:?}")))
            }
        }
    }

    #[boxed]
    async fn ping(&self, instance: &Instance) -> Result<(), PluginError> {
        if !self.manifest.has("conjure.ping/1") {
            return Ok(());
        }
        let refuse = |reason: String| PluginError::Ping {
            plugin: self.id.to_string(),
            reason,
        };
        let mut request = Request::new(Empty {});
        let limit = self.health.limits.create;
        request.deadline_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let json = serde_json::to_vec(&request).map_err(|error| refuse(error.to_string()))?;
        let options = CallOptions {
            deadline: Some(limit),
            ..CallOptions::default()
        };
        instance
            .request(op::PING, json, options)
            .await
            .map(drop)
            .map_err(|failure| refuse(failure.to_string()))
    }

    /// Only who has it makes instances from now on; what runs goes on and ends.
    pub(super) fn remove(&self) {
        self.health.remove();
    }

    /// Whether it was removed from its host.
    pub fn is_removed(&self) -> bool {
        self.health.is_removed()
    }

    /// Instances that live.
    pub fn instances(&self) -> usize {
        self.health.instances.load(Ordering::Acquire)
    }
}

impl fmt::Debug for LoadedPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedPlugin")
            .field("id", &self.id)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
