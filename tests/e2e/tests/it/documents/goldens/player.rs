//! Steps of a golden: requests with values from earlier answers, and answers without varying
//! values.
//!
//! A step has a `step` (its name), a `method`, a `request`, and an `answer` or an `error`. In a request
//! - `{"$from": "a step", "at": "/a/pointer"}` is a value of the answer to an earlier step,
//! - `{"$json": value}` is the value as text,
//! - `{"$times": 101, "of": value}` is a list, and `{"$long": 257}` a text of so many letters,
//! - `{backend}` in a text is the address of the backend.
//!
//! A step with `files` writes or removes these files first. With `until`, it is repeated until the answer has
//! the given value at each pointer. The values at the pointers of `varies` are not recorded, and
//! the entries of a list that `brief` names by this field alone.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Map, Value};
use testkit::{eventually, exchange};

/// The requests about one kind of documents.
pub(super) struct Player {
    kind: String,
    service: String,
    backend: String,
    /// The directory of the files of documents.
    deploy: PathBuf,
    /// The answers by step, as they came.
    answers: HashMap<String, Value>,
    /// Names of values that vary between runs of the test, in the order of their arrival.
    names: Vec<String>,
}

impl Player {
    pub(super) fn new(kind: &str, service: &str, backend: &str, deploy: PathBuf) -> Self {
        Self {
            kind: kind.to_owned(),
            service: service.to_owned(),
            backend: backend.to_owned(),
            deploy,
            answers: HashMap::new(),
            names: Vec::new(),
        }
    }

    /// Sends the request of a step, and returns the difference of the answer from the recorded one.
    /// With `record` the answer is recorded instead.
    pub(super) async fn play(
        &mut self,
        address: &str,
        step: &mut Value,
        record: bool,
    ) -> anyhow::Result<Vec<String>> {
        let name = step["step"].as_str().context("a step has no name")?;
        let name = format!("{}: {name}", self.kind);
        let (part, answer) = self
            .answer(address, step, &name)
            .await
            .with_context(|| name.clone())?;
        let step = step.as_object_mut().context("a step is an object")?;
        let other = match part {
            "answer" => "error",
            _ => "answer",
        };
        if record {
            step.shift_remove(other);
            step.insert(part.to_owned(), answer);
            return Ok(Vec::new());
        }
        let mut differences = Vec::new();
        match step.get(part) {
            Some(golden) => differ(golden, &answer, &format!("/{part}"), &mut differences),
            None => {
                let recorded = step.get(other).unwrap_or(&Value::Null);
                let (recorded, answer) = (shown(recorded), shown(&answer));
                differences.push(format!("/{other} was {recorded}, but /{part} is {answer}"));
            }
        }
        let named = |difference| format!("{name}: {difference}");
        Ok(differences.into_iter().map(named).collect())
    }

    /// Sends the request of a step, and returns the kind of the answer and the answer without
    /// varying values.
    async fn answer(
        &mut self,
        address: &str,
        step: &Value,
        name: &str,
    ) -> anyhow::Result<(&'static str, Value)> {
        self.change_files(&step["files"])?;
        let method = step["method"].as_str().context("a method")?;
        let path = format!("{}/{method}", self.service);
        let body = self.request(&step["request"])?.to_string();
        let wanted = step["until"].as_object();
        let (part, answer) = eventually(name, || async {
            let sent = send(address, &path, &body).await;
            let Ok((_, answer)) = &sent else {
                return Some(sent);
            };
            let mut wanted = wanted.into_iter().flatten();
            let enough = wanted.all(|(at, value)| answer.pointer(at) == Some(value));
            enough.then_some(sent)
        })
        .await??;
        let key = step["step"].as_str().unwrap_or_default();
        self.answers.insert(key.to_owned(), answer.clone());
        let mut answer = self.steady(answer);
        for at in step["varies"].as_array().into_iter().flatten() {
            let place = at.as_str().and_then(|at| answer.pointer_mut(at));
            *place.with_context(|| format!("nothing at {at}"))? = "<varies>".into();
        }
        for (list, field) in step["brief"].as_object().into_iter().flatten() {
            let entries = answer[list].as_array_mut();
            for entry in entries.into_iter().flatten() {
                *entry = entry[field.as_str().unwrap_or_default()].take();
            }
        }
        Ok((part, answer))
    }

    /// Writes the files of a step, and removes those that are `null`.
    fn change_files(&self, files: &Value) -> anyhow::Result<()> {
        for (path, content) in files.as_object().into_iter().flatten() {
            let path = self.deploy.join(path);
            match content {
                Value::Null => std::fs::remove_file(path)?,
                content => std::fs::write(path, content.to_string())?,
            }
        }
        Ok(())
    }

    /// Fills in the values that a request refers to.
    fn request(&self, written: &Value) -> anyhow::Result<Value> {
        if let Some(step) = written["$from"].as_str() {
            let at = written["at"].as_str().unwrap_or_default();
            let answer = self.answers.get(step);
            let answer = answer.with_context(|| format!("no step {step} before"))?;
            let value = answer.pointer(at).cloned();
            return value.with_context(|| format!("{step} has nothing at {at}"));
        }
        if let Some(value) = written.get("$json") {
            return Ok(self.request(value)?.to_string().into());
        }
        if let Some(times) = written["$times"].as_u64() {
            return Ok((0..times).map(|_| written["of"].clone()).collect());
        }
        if let Some(letters) = written["$long"].as_u64() {
            return Ok("x".repeat(usize::try_from(letters)?).into());
        }
        match written {
            Value::String(text) => Ok(text.replace("{backend}", &self.backend).into()),
            Value::Array(values) => values.iter().map(|value| self.request(value)).collect(),
            Value::Object(fields) => fields
                .iter()
                .map(|(key, value)| Ok((key.clone(), self.request(value)?)))
                .collect::<anyhow::Result<Map<_, _>>>()
                .map(Value::Object),
            plain => Ok(plain.clone()),
        }
    }

    /// Returns an answer with names for values that vary between runs of the test.
    fn steady(&mut self, answer: Value) -> Value {
        match answer {
            Value::String(text) if is_time(&text) => "<time>".into(),
            Value::String(text) if self.varies(&text) => self.name(text).into(),
            Value::String(text) => text.replace(&self.backend, "{backend}").into(),
            Value::Array(values) => values.into_iter().map(|value| self.steady(value)).collect(),
            Value::Object(fields) => {
                let fields = fields.into_iter();
                let steady = fields.map(|(key, value)| (key, self.steady(value)));
                Value::Object(steady.collect())
            }
            plain => plain,
        }
    }

    /// Returns whether a text is made of random bits: an id, or a digest of the address of the backend.
    fn varies(&self, text: &str) -> bool {
        is_id(text) || (self.kind == "backends" && is_digest(text))
    }

    fn name(&mut self, text: String) -> String {
        let place = self.names.iter().position(|known| *known == text);
        let place = place.unwrap_or_else(|| {
            self.names.push(text);
            self.names.len() - 1
        });
        format!("<value {}>", place + 1)
    }
}

/// Sends a request as Connect JSON, and returns whether an answer or an error came, and which.
async fn send(address: &str, path: &str, body: &str) -> anyhow::Result<(&'static str, Value)> {
    let head = format!("POST /{path}\r\ncontent-type: application/json\r\n");
    let answer = exchange(address, &head, body.as_bytes(), |_| false).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer")?;
    let mut answer: Value = serde_json::from_str(body).with_context(|| answer.clone())?;
    if head.starts_with("HTTP/1.1 200 ") {
        return Ok(("answer", answer));
    }
    // The bytes of a detail repeat `debug`, with the keys of a map in any order.
    for detail in answer["details"].as_array_mut().into_iter().flatten() {
        if let Some(detail) = detail.as_object_mut().filter(|d| d.contains_key("debug")) {
            detail.shift_remove("value");
        }
        detail.sort_all_objects();
    }
    Ok(("error", answer))
}

fn is_time(text: &str) -> bool {
    let form = |(at, byte): (usize, u8)| match at {
        4 | 7 => byte == b'-',
        10 => byte == b'T',
        13 | 16 => byte == b':',
        19 => byte == b'.' || byte == b'Z',
        _ => byte.is_ascii_digit() || byte == b'Z',
    };
    text.len() >= 20 && text.ends_with('Z') && text.bytes().enumerate().all(form)
}

/// Returns whether a text is an id that a service made: `caiu_` or another word, and a UUID.
fn is_id(text: &str) -> bool {
    let parts = text.rsplit_once('_');
    parts.is_some_and(|(word, uuid)| {
        word.bytes().all(|byte| byte.is_ascii_lowercase()) && is_digest(uuid)
    })
}

fn is_digest(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns the first 300 characters of a value.
fn shown(value: &Value) -> String {
    value.to_string().chars().take(300).collect()
}

/// Finds each place at which an answer differs from the golden.
fn differ(golden: &Value, answer: &Value, at: &str, differences: &mut Vec<String>) {
    match (golden, answer) {
        (Value::Object(golden), Value::Object(answer)) => {
            for (key, value) in golden {
                let came = answer.get(key).unwrap_or(&Value::Null);
                differ(value, came, &format!("{at}/{key}"), differences);
            }
            for (key, value) in answer.iter().filter(|(key, _)| !golden.contains_key(*key)) {
                differ(&Value::Null, value, &format!("{at}/{key}"), differences);
            }
        }
        (Value::Array(golden), Value::Array(answer)) => {
            let (had, has) = (golden.len(), answer.len());
            if had != has {
                differences.push(format!("{at} had {had} entries, has {has}"));
            }
            for (place, (golden, answer)) in golden.iter().zip(answer).enumerate() {
                differ(golden, answer, &format!("{at}/{place}"), differences);
            }
        }
        _ if golden == answer => {}
        _ => differences.push(format!("{at} was {}, is {}", shown(golden), shown(answer))),
    }
}
