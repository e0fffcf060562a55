//! The host operations that the kit serves.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use conjure_abi::code;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::channel::Channel;
use super::host::{HostOperationFn, TestHostState, lock};
use crate::error::{Error, Result};
use crate::protocol::{
    Answer, Answers, Ask, Elicit, Elicited, Empty, FileRef, HttpRequest, HttpResponse,
    INLINE_LIMIT, KvKey, KvKeys, KvList, KvSet, KvValue, Progress, Question, RegisterFile,
    Registered, Root, Roots, Sample, Sampled, Secret, SecretGet, host_op,
};

/// The longest key, in bytes.
const MAX_KEY: usize = 512;

/// Data of the test's host, and the functions that answer for it.
#[derive(Default)]
pub(super) struct TestServices {
    pub(super) kv: Mutex<BTreeMap<String, Value>>,
    pub(super) files: Mutex<Vec<FileRef>>,
    pub(super) progress: Mutex<Vec<Progress>>,
    pub(super) secrets: BTreeMap<String, String>,
    pub(super) roots: Vec<Root>,
    pub(super) http: HashMap<(String, String), HttpResponse>,
    pub(super) http_with: Option<Box<dyn Fn(HttpRequest) -> Result<HttpResponse> + Send + Sync>>,
    pub(super) elicit: Option<Box<dyn Fn(Elicit) -> Elicited + Send + Sync>>,
    pub(super) sample: Option<Box<dyn Fn(Sample) -> Result<Sampled> + Send + Sync>>,
    pub(super) custom: HashMap<String, HostOperationFn>,
}

/// The operations that are announced to the plugin.
pub(super) fn operation_names(served: &TestServices) -> Vec<String> {
    let optional = [
        (host_op::SECRET_GET, !served.secrets.is_empty()),
        (
            host_op::HTTP_SEND,
            !served.http.is_empty() || served.http_with.is_some(),
        ),
        (host_op::SAMPLE, served.sample.is_some()),
        (host_op::ELICIT, served.elicit.is_some()),
    ];
    let mut operations: Vec<String> = host_op::ALL
        .iter()
        .filter(|op| !optional.iter().any(|(name, there)| name == *op && !there))
        .map(|op| format!("{op}/1"))
        .chain(served.custom.keys().map(|op| format!("{op}/1")))
        .collect();
    operations.sort();
    operations.dedup();
    operations
}

/// Serves one operation and notes what crossed.
pub(super) async fn serve(
    host: &TestHostState,
    call: &Channel,
    op: &str,
    json: &[u8],
) -> Result<Vec<u8>> {
    let request: Value = decode(op, json)?;
    host.transcript
        .record(format!("host.{op}.request"), &request);
    let reply = answer(host, call, op, request).await?;
    host.transcript.record(format!("host.{op}.reply"), &reply);
    Ok(serde_json::to_vec(&reply)?)
}

async fn answer(host: &TestHostState, call: &Channel, op: &str, request: Value) -> Result<Value> {
    let served = &host.services;
    match op {
        host_op::CALL_CANCELLED => {
            call.stopped().await;
            return encode(&Empty {});
        }
        _ if call.is_closed() => return Err(Error::with_code(code::GONE, "the call is over")),
        host_op::CALL_WRITABLE => {
            call.writable().await;
            return encode(&Empty {});
        }
        _ => {}
    }
    if let Some(handler) = served.custom.get(op) {
        return handler(request).await;
    }
    match op {
        host_op::PROGRESS => {
            lock(&served.progress).push(parse_request(op, request)?);
            encode(&Empty {})
        }
        host_op::FILE => {
            let RegisterFile { file } = parse_request(op, request)?;
            let mut files = lock(&served.files);
            files.push(file);
            encode(&Registered {
                artifact: format!("artifact-{}", files.len()),
            })
        }
        host_op::KV_GET => {
            let KvKey { key } = parse_request(op, request)?;
            encode(&KvValue {
                value: lock(&served.kv).get(&key).cloned(),
            })
        }
        host_op::KV_SET => {
            let KvSet { key, value } = parse_request(op, request)?;
            if key.len() > MAX_KEY {
                return Err(Error::invalid(format!("a key has at most {MAX_KEY} bytes")));
            }
            if value.to_string().len() > INLINE_LIMIT {
                return Err(Error::invalid("a value has at most 64 KiB of JSON"));
            }
            lock(&served.kv).insert(key, value);
            encode(&Empty {})
        }
        host_op::KV_DELETE => {
            let KvKey { key } = parse_request(op, request)?;
            lock(&served.kv).remove(&key);
            encode(&Empty {})
        }
        host_op::KV_LIST => {
            let KvList { prefix } = parse_request(op, request)?;
            let kv = lock(&served.kv);
            let keys = kv.keys().filter(|key| key.starts_with(&prefix));
            encode(&KvKeys {
                keys: keys.cloned().collect(),
            })
        }
        host_op::SECRET_GET => {
            let SecretGet { name } = parse_request(op, request)?;
            let value = served.secrets.get(&name).ok_or_else(|| {
                Error::with_code(code::DENIED, format!("no secret `{name}` is granted"))
            })?;
            encode(&Secret {
                value: value.clone(),
            })
        }
        host_op::HTTP_SEND => encode(&http(served, parse_request(op, request)?)?),
        host_op::SAMPLE => encode(&sampled(served, parse_request(op, request)?)?),
        host_op::ELICIT => encode(&elicited(served, parse_request(op, request)?)?),
        host_op::ROOTS => encode(&roots(served)),
        host_op::ASK => {
            let Ask { questions } = parse_request(op, request)?;
            let answers = questions
                .into_iter()
                .map(|(key, question)| (key, answer_question(served, question)))
                .collect();
            encode(&Answers { answers })
        }
        _ => Err(unsupported(op)),
    }
}

fn sampled(served: &TestServices, request: Sample) -> Result<Sampled> {
    match &served.sample {
        Some(sample) => sample(request),
        None => Err(unsupported(host_op::SAMPLE)),
    }
}

fn elicited(served: &TestServices, request: Elicit) -> Result<Elicited> {
    match &served.elicit {
        Some(elicit) => Ok(elicit(request)),
        None => Err(unsupported(host_op::ELICIT)),
    }
}

fn roots(served: &TestServices) -> Roots {
    Roots {
        roots: served.roots.clone(),
    }
}

/// One question of several. What nobody can answer is refused alone.
fn answer_question(served: &TestServices, question: Question) -> Answer {
    let answer = match question {
        Question::Elicit(question) => elicited(served, question).map(Answer::Elicited),
        Question::Sample(question) => sampled(served, question).map(Answer::Sampled),
        Question::Roots => Ok(Answer::Roots(roots(served))),
        Question::Other(_) => Err(unsupported(host_op::ASK)),
    };
    answer.unwrap_or_else(|error| Answer::Refused {
        code: error.code(),
        message: error.message().to_owned(),
    })
}

fn http(served: &TestServices, request: HttpRequest) -> Result<HttpResponse> {
    let key = (request.method.clone(), request.url.clone());
    match (served.http.get(&key), &served.http_with) {
        (Some(response), _) => Ok(response.clone()),
        (None, Some(answer)) => answer(request),
        (None, None) => Err(Error::with_code(
            code::DENIED,
            format!("the test has no answer to {} {}", key.0, key.1),
        )),
    }
}

fn unsupported(op: &str) -> Error {
    Error::with_code(
        code::UNSUPPORTED,
        format!("this host has no operation `{op}`"),
    )
}

fn parse_request<T: DeserializeOwned>(op: &str, request: Value) -> Result<T> {
    serde_json::from_value(request).map_err(|error| mismatch_error(op, &error))
}

fn decode(op: &str, json: &[u8]) -> Result<Value> {
    serde_json::from_slice(json).map_err(|error| mismatch_error(op, &error))
}

fn mismatch_error(op: &str, error: &serde_json::Error) -> Error {
    Error::invalid(format!("the request for `{op}` does not fit: {error}"))
}

fn encode<T: Serialize>(reply: &T) -> Result<Value> {
    Ok(serde_json::to_value(reply)?)
}
