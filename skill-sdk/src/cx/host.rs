//! The host operations that every host knows, one method each and one for asynchronous code.
//!
//! Any other operation goes through [`Cx::host`].

use serde_json::Value;

use super::Cx;
use crate::block_on::block_on;
use crate::error::Result;
use crate::protocol::{
    Answers, Ask, Elicit, Elicited, Empty, FileRef, HttpRequest, HttpResponse, KvKey, KvKeys,
    KvList, KvSet, KvValue, RegisterFile, Registered, Root, Roots, Sample, Sampled, Secret,
    SecretGet, host_op,
};

impl Cx {
    /// Registers a file that the call made, and gives its handle.
    ///
    /// # Errors
    /// The host's fault.
    pub fn file(&self, file: FileRef) -> Result<String> {
        block_on(self.file_async(file))
    }

    /// [`Cx::file`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn file_async(&self, file: FileRef) -> Result<String> {
        let reply: Registered = self
            .host_async(host_op::FILE, &RegisterFile { file })
            .await?;
        Ok(reply.artifact)
    }

    /// Reads a value of the plugin's own namespace.
    ///
    /// # Errors
    /// The host's fault.
    pub fn kv_get(&self, key: &str) -> Result<Option<Value>> {
        block_on(self.kv_get_async(key))
    }

    /// [`Cx::kv_get`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn kv_get_async(&self, key: &str) -> Result<Option<Value>> {
        let reply: KvValue = self
            .host_async(host_op::KV_GET, &KvKey { key: key.into() })
            .await?;
        Ok(reply.value)
    }

    /// Writes a value of the plugin's own namespace.
    ///
    /// # Errors
    /// The host's fault.
    pub fn kv_set(&self, key: &str, value: Value) -> Result<()> {
        block_on(self.kv_set_async(key, value))
    }

    /// [`Cx::kv_set`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn kv_set_async(&self, key: &str, value: Value) -> Result<()> {
        self.host_async::<_, Empty>(
            host_op::KV_SET,
            &KvSet {
                key: key.into(),
                value,
            },
        )
        .await
        .map(drop)
    }

    /// Removes a value of the plugin's own namespace.
    ///
    /// # Errors
    /// The host's fault.
    pub fn kv_delete(&self, key: &str) -> Result<()> {
        block_on(self.kv_delete_async(key))
    }

    /// [`Cx::kv_delete`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn kv_delete_async(&self, key: &str) -> Result<()> {
        self.host_async::<_, Empty>(host_op::KV_DELETE, &KvKey { key: key.into() })
            .await
            .map(drop)
    }

    /// Lists keys of the plugin's own namespace.
    ///
    /// # Errors
    /// The host's fault.
    pub fn kv_list(&self, prefix: &str) -> Result<Vec<String>> {
        block_on(self.kv_list_async(prefix))
    }

    /// [`Cx::kv_list`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn kv_list_async(&self, prefix: &str) -> Result<Vec<String>> {
        let reply: KvKeys = self
            .host_async(
                host_op::KV_LIST,
                &KvList {
                    prefix: prefix.into(),
                },
            )
            .await?;
        Ok(reply.keys)
    }

    /// Reads a secret that the manifest names.
    ///
    /// # Errors
    /// The host's fault.
    pub fn secret(&self, name: &str) -> Result<String> {
        block_on(self.secret_async(name))
    }

    /// [`Cx::secret`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn secret_async(&self, name: &str) -> Result<String> {
        let reply: Secret = self
            .host_async(host_op::SECRET_GET, &SecretGet { name: name.into() })
            .await?;
        Ok(reply.value)
    }

    /// Sends an HTTP request to a host that the manifest names.
    ///
    /// # Errors
    /// The host's fault.
    pub fn http(&self, request: &HttpRequest) -> Result<HttpResponse> {
        block_on(self.http_async(request))
    }

    /// [`Cx::http`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn http_async(&self, request: &HttpRequest) -> Result<HttpResponse> {
        self.host_async(host_op::HTTP_SEND, request).await
    }

    /// Asks the session's model.
    ///
    /// # Errors
    /// The host's fault.
    pub fn sample(&self, request: &Sample) -> Result<Sampled> {
        block_on(self.sample_async(request))
    }

    /// [`Cx::sample`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn sample_async(&self, request: &Sample) -> Result<Sampled> {
        self.host_async(host_op::SAMPLE, request).await
    }

    /// Asks the person.
    ///
    /// # Errors
    /// The host's fault.
    pub fn elicit(&self, request: &Elicit) -> Result<Elicited> {
        block_on(self.elicit_async(request))
    }

    /// [`Cx::elicit`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn elicit_async(&self, request: &Elicit) -> Result<Elicited> {
        self.host_async(host_op::ELICIT, request).await
    }

    /// Asks several things at once. What nobody can answer is refused alone.
    ///
    /// # Errors
    /// The host's fault; [`conjure_abi::code::UNSUPPORTED`] by a host that has no such operation.
    pub fn ask(&self, request: &Ask) -> Result<Answers> {
        block_on(self.ask_async(request))
    }

    /// [`Cx::ask`] for asynchronous code.
    ///
    /// # Errors
    /// As [`Cx::ask`].
    pub async fn ask_async(&self, request: &Ask) -> Result<Answers> {
        self.host_async(host_op::ASK, request).await
    }

    /// The directories that the session works in.
    ///
    /// # Errors
    /// The host's fault.
    pub fn roots(&self) -> Result<Vec<Root>> {
        block_on(self.roots_async())
    }

    /// [`Cx::roots`] for asynchronous code.
    ///
    /// # Errors
    /// The host's fault.
    pub async fn roots_async(&self) -> Result<Vec<Root>> {
        let reply: Roots = self.host_async(host_op::ROOTS, &Empty {}).await?;
        Ok(reply.roots)
    }
}
