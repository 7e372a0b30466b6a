//! The `execution` settings of a node: its time limits, its retries, and the handling of its
//! failure (rules W2 and W19 to W23), and the permits that it waits for before it starts (rules W50
//! and W51).

mod concurrency;

use std::sync::Arc;
use std::time::Duration;

use call_outcome::{Category, Failure, Violation};
use serde_json::{Map, Value, json};

use super::cache::{CACHE, CacheSettings};
use super::data_flow::{DataFlow, NULL, Values};
use super::duration::read_duration;
use super::slot::{Shape, Slot};
use super::stream_value::{is_whole, nothing};
use json_schema::pointer::join;

/// The key in `configValues`.
pub const EXECUTION: &str = "execution";

/// The output that reports a handled failure.
pub const ON_ERROR: &str = "on_error";

/// The most attempts, which is also the most that the ledger of calls accepts.
const MAX_ATTEMPTS: u64 = 32;

const KEYS: [&str; 9] = [
    "timeout",
    "totalTimeout",
    "retry",
    "onError",
    "outputs",
    "cache",
    "concurrencyKey",
    "concurrencyLimit",
    "priority",
];

/// Settings without effect on nodes that have no effects.
pub const OF_EFFECTS: [&str; 3] = ["concurrencyKey", "concurrencyLimit", "priority"];

pub use concurrency::{ConcurrencyKey, MAX_KEY_BYTES, MAX_PRIORITY};

const RETRY_KEYS: [&str; 6] = ["maxAttempts", "initial", "factor", "max", "jitter", "on"];

/// The effect of a failed node on the nodes after it.
#[derive(Clone, Debug, PartialEq)]
pub enum OnError {
    /// They are skipped.
    Fail,
    /// They run, on these outputs; null for an output without a value.
    Continue(Map<String, Value>),
    /// The nodes that need `on_error` run; the other outputs are absent.
    Fallback,
}

/// The retries of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// The most attempts in all, from 1.
    pub max_attempts: u32,
    initial: Duration,
    factor: f64,
    max: Duration,
    jitter: f64,
    /// The categories that are retried; none for the default.
    on: Option<Vec<Category>>,
}

/// The settings of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    /// The time limit of each attempt.
    pub timeout: Option<Duration>,
    /// The time limit of all attempts, with the time in the queue and the pauses.
    pub total_timeout: Option<Duration>,
    /// Its retries.
    pub retry: Retry,
    /// The handling of its failure.
    pub on_error: OnError,
    /// The bound on nodes with the same key that run at once.
    pub concurrency: Option<ConcurrencyKey>,
    /// Its priority among the nodes that wait for a permit, 0 to 9; none for the priority of its
    /// run.
    pub priority: Option<u32>,
    /// The reuse of its result; none if it is not reused.
    pub cache: Option<CacheSettings>,
}

impl Default for Execution {
    fn default() -> Self {
        Self {
            timeout: None,
            total_timeout: None,
            retry: Retry {
                max_attempts: 1,
                initial: Duration::from_secs(1),
                factor: 2.0,
                max: Duration::from_secs(60),
                jitter: 0.2,
                on: None,
            },
            on_error: OnError::Fail,
            concurrency: None,
            priority: None,
            cache: None,
        }
    }
}

impl Execution {
    /// Reads the settings of a node with this shape; none if it has none.
    ///
    /// # Errors
    /// All problems with them; pointers are relative to the node.
    pub fn read(
        config: &Map<String, Value>,
        shape: &Shape,
    ) -> Result<Option<Self>, Vec<Violation>> {
        let Some(settings) = config.get(EXECUTION).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        let mut reader = ExecutionReader {
            violations: Vec::new(),
        };
        let pointer = format!("/configValues/{EXECUTION}");
        let read = reader.execution(settings, shape, &pointer);
        if reader.violations.is_empty() {
            Ok(Some(read))
        } else {
            Err(reader.violations)
        }
    }

    /// Returns the shape with the output that reports a handled failure.
    pub fn extend(&self, mut shape: Shape) -> Shape {
        if self.handles() {
            let description = "Why the node failed: path, category, code, message, retryable and \
                               attempts.";
            let slot = Slot::new(ON_ERROR, DataFlow::Object, description).excluded_from_bypass();
            shape.outputs = shape.outputs.iter().cloned().chain([slot]).collect();
        }
        shape
    }

    /// Whether a failure of the node is handled.
    pub fn handles(&self) -> bool {
        self.on_error != OnError::Fail
    }

    /// Returns the outputs of a node that succeeded, with an `on_error` that reports no failure.
    pub fn succeeded(&self, mut outputs: Values) -> Values {
        match self.on_error {
            OnError::Fail => {}
            OnError::Continue(_) => outputs.push(Some(Arc::clone(&NULL))),
            OnError::Fallback => outputs.push(None),
        }
        outputs
    }

    /// Returns the outputs that replace a failure; none if it is not handled. `so_far` are the
    /// streaming outputs until then, by key: under `continue` they just end (rule W27).
    pub fn handled(
        &self,
        shape: &Shape,
        path: &str,
        failure: &Failure,
        attempts: u32,
        so_far: &Map<String, Value>,
    ) -> Option<Values> {
        if failure.category == Category::Cancelled {
            return None;
        }
        let given = match &self.on_error {
            OnError::Fail => return None,
            OnError::Continue(given) => Some(given),
            OnError::Fallback => None,
        };
        let report = json!({
            "path": path,
            "category": failure.category.as_str(),
            "code": failure.code,
            "message": failure.message,
            "retryable": failure.retryable,
            "attempts": attempts,
        });
        let output = |slot: &Slot| match given {
            _ if &*slot.key == ON_ERROR => Some(Arc::new(report.clone())),
            Some(given) => {
                let value = given.get(&*slot.key).or_else(|| so_far.get(&*slot.key));
                Some(match value {
                    Some(value) => Arc::new(value.clone()),
                    None if slot.is_stream => Arc::new(nothing(slot)),
                    None => Arc::clone(&NULL),
                })
            }
            None => None,
        };
        Some(shape.outputs.iter().map(output).collect())
    }
}

impl Retry {
    /// Returns the pause before the attempt after `attempt`; none if there is no further attempt.
    /// `random` is a number from 0 to 1.
    pub fn pause(&self, attempt: u32, failure: &Failure, random: f64) -> Option<Duration> {
        if attempt >= self.max_attempts || !self.repeats(failure) {
            return None;
        }
        let steps = i32::try_from(attempt.saturating_sub(1)).unwrap_or(i32::MAX);
        let seconds = self.initial.as_secs_f64() * self.factor.powi(steps);
        let seconds = seconds.min(self.max.as_secs_f64());
        let spread = 1.0 + self.jitter * (2.0 * random - 1.0);
        Some(Duration::from_secs_f64((seconds * spread).max(0.0)))
    }

    fn repeats(&self, failure: &Failure) -> bool {
        match (&self.on, failure.category) {
            (_, Category::Cancelled) => false,
            (Some(on), category) => on.contains(&category),
            (None, Category::Timeout | Category::Dependency) => true,
            (None, _) => failure.retryable,
        }
    }
}

struct ExecutionReader {
    violations: Vec<Violation>,
}

impl ExecutionReader {
    fn execution(&mut self, settings: &Value, shape: &Shape, pointer: &str) -> Execution {
        let mut read = Execution::default();
        let Some(settings) = self.object(settings, &KEYS, pointer) else {
            return read;
        };
        read.timeout = self.duration(settings, "timeout", pointer);
        read.total_timeout = self.duration(settings, "totalTimeout", pointer);
        if let Some(retry) = settings.get("retry") {
            read.retry = self.retry(retry, &join(pointer, "retry"));
        }
        read.concurrency = self.concurrency(settings, pointer);
        read.priority = self.priority(settings, pointer);
        if let Some(cache) = settings.get(CACHE) {
            match CacheSettings::read(cache, &join(pointer, CACHE)) {
                Ok(cache) => read.cache = cache,
                Err(wrong) => self.violations.extend(wrong),
            }
        }
        let outputs = self.outputs(settings.get("outputs"), shape, &join(pointer, "outputs"));
        read.on_error = match settings.get("onError").map(Value::as_str) {
            None | Some(Some("fail")) => OnError::Fail,
            Some(Some("continue")) => OnError::Continue(outputs),
            Some(Some("fallback")) => OnError::Fallback,
            Some(_) => {
                let expected = "`fail`, `continue` or `fallback`";
                self.out_of_range(join(pointer, "onError"), expected);
                OnError::Fail
            }
        };
        if read.handles() && shape.output(ON_ERROR).is_some() {
            let message = "the node has an output of its own that is named `on_error`";
            let place = join(pointer, "onError");
            self.violations
                .push(Violation::new(place, "duplicate_key", message));
        }
        read
    }

    fn retry(&mut self, settings: &Value, pointer: &str) -> Retry {
        let mut retry = Execution::default().retry;
        let Some(settings) = self.object(settings, &RETRY_KEYS, pointer) else {
            return retry;
        };
        if let Some(attempts) = settings.get("maxAttempts") {
            let attempts = attempts.as_u64();
            match attempts.filter(|attempts| (1..=MAX_ATTEMPTS).contains(attempts)) {
                Some(attempts) => retry.max_attempts = attempts as u32,
                None => self.out_of_range(
                    join(pointer, "maxAttempts"),
                    &format!("a whole number from 1 to {MAX_ATTEMPTS}"),
                ),
            }
        }
        retry.initial = self
            .duration(settings, "initial", pointer)
            .unwrap_or(retry.initial);
        retry.max = self.duration(settings, "max", pointer).unwrap_or(retry.max);
        retry.factor = self
            .number(settings, "factor", pointer, 1.0, 100.0)
            .unwrap_or(retry.factor);
        retry.jitter = self
            .number(settings, "jitter", pointer, 0.0, 1.0)
            .unwrap_or(retry.jitter);
        if let Some(on) = settings.get("on") {
            let names = on.as_array().map_or(&[][..], Vec::as_slice);
            let category = |name: &Value| {
                let all = Category::ALL.into_iter();
                all.filter(|category| *category != Category::Cancelled)
                    .find(|category| name.as_str() == Some(category.as_str()))
            };
            let categories: Option<Vec<Category>> = names.iter().map(category).collect();
            match categories.filter(|categories| !categories.is_empty()) {
                Some(categories) => retry.on = Some(categories),
                None => self.out_of_range(
                    join(pointer, "on"),
                    "an array of categories of failures, such as `timeout` and `dependency`",
                ),
            }
        }
        retry
    }

    fn outputs(
        &mut self,
        given: Option<&Value>,
        shape: &Shape,
        pointer: &str,
    ) -> Map<String, Value> {
        let Some(given) = given.filter(|given| !given.is_null()) else {
            return Map::new();
        };
        let Some(given) = given.as_object() else {
            self.out_of_range(pointer.to_owned(), "an object of values by output");
            return Map::new();
        };
        for (key, value) in given {
            match shape.outputs.iter().find(|slot| &*slot.key == key) {
                None => {
                    let known = shape.outputs.iter().map(|slot| &*slot.key);
                    let message = format!("the node has no output `{key}`");
                    let violation = Violation::new(join(pointer, key), "unknown_slot", message);
                    self.violations.push(violation.nearest(key, known));
                }
                Some(slot) if slot.is_stream && is_whole(slot, value) => {}
                Some(slot) if value.is_null() || slot.whole().holds(value) && !slot.is_stream => {}
                Some(slot) => {
                    let expected = format!("a value of the type {}", slot.whole().name());
                    self.out_of_range(join(pointer, key), &expected);
                }
            }
        }
        given.clone()
    }

    fn object<'v>(
        &mut self,
        value: &'v Value,
        known: &[&'static str],
        pointer: &str,
    ) -> Option<&'v Map<String, Value>> {
        let Some(fields) = value.as_object() else {
            self.out_of_range(pointer.to_owned(), "an object");
            return None;
        };
        for key in fields.keys().filter(|key| !known.contains(&key.as_str())) {
            let message = format!("there is no setting `{key}`");
            let violation = Violation::new(join(pointer, key), "unknown_setting", message);
            self.violations
                .push(violation.nearest(key, known.iter().copied()));
        }
        Some(fields)
    }

    fn duration(
        &mut self,
        settings: &Map<String, Value>,
        key: &str,
        pointer: &str,
    ) -> Option<Duration> {
        let value = settings.get(key)?;
        let read = read_duration(value);
        if read.is_none() {
            let expected = "a number of seconds above 0, or a text such as `90s`, `5m`, `2h` or `7d`, \
                            at most 366 days";
            self.out_of_range(join(pointer, key), expected);
        }
        read
    }

    fn number(
        &mut self,
        settings: &Map<String, Value>,
        key: &str,
        pointer: &str,
        least: f64,
        most: f64,
    ) -> Option<f64> {
        let number = settings.get(key)?.as_f64();
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            self.out_of_range(
                join(pointer, key),
                &format!("a number from {least} to {most}"),
            );
        }
        number
    }

    fn out_of_range(&mut self, pointer: String, expected: &str) {
        let message = format!("expected {expected}");
        self.violations
            .push(Violation::new(pointer, "out_of_range", message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape::new(Vec::new(), vec![Slot::new("text", DataFlow::String, "")])
    }

    fn read(settings: Value) -> Result<Execution, Vec<(String, String)>> {
        let config = Map::from_iter([(EXECUTION.to_owned(), settings)]);
        let named = |violations: Vec<Violation>| {
            let named =
                |violation: Violation| (violation.pointer.clone(), violation.code.to_string());
            violations.into_iter().map(named).collect()
        };
        let read = Execution::read(&config, &shape()).map_err(named);
        read.map(Option::unwrap_or_default)
    }

    #[test]
    fn w2_durations_are_seconds_or_texts_with_a_unit() {
        for (written, seconds) in [
            (json!(2), 2.0),
            (json!(0.5), 0.5),
            (json!("90s"), 90.0),
            (json!("100ms"), 0.1),
            (json!("5m"), 300.0),
            (json!("2h"), 7_200.0),
            (json!("7d"), 604_800.0),
        ] {
            let found = read(json!({"timeout": written})).unwrap().timeout;
            assert_eq!(found, Some(Duration::from_secs_f64(seconds)), "{written}");
        }
        for wrong in [
            json!(0),
            json!(-1),
            json!("5"),
            json!("5 weeks"),
            json!("367d"),
            json!([]),
        ] {
            assert!(read(json!({"totalTimeout": wrong})).is_err(), "{wrong}");
        }
    }

    #[test]
    fn w2_everything_that_is_wrong_is_named() {
        let settings = json!({
            "time_out": 1, "onError": "ignore", "outputs": {"txt": "a", "text": 7},
            "retry": {"maxAttempts": 0, "factor": 0.5, "jitter": 2, "on": ["cancelled"], "first": 1},
            "cache": {"mode": "read_write"}, "priority": 10,
            "concurrencyKey": "inputs.", "concurrencyLimit": 0,
        });
        let mut found = read(settings).unwrap_err();
        found.sort_unstable();
        let at = |rest: &str| format!("/configValues/execution/{rest}");
        let expected = [
            ("concurrencyKey", "invalid_expression"),
            ("concurrencyLimit", "out_of_range"),
            ("onError", "out_of_range"),
            ("outputs/text", "out_of_range"),
            ("outputs/txt", "unknown_slot"),
            ("priority", "out_of_range"),
            ("retry/factor", "out_of_range"),
            ("retry/first", "unknown_setting"),
            ("retry/jitter", "out_of_range"),
            ("retry/maxAttempts", "out_of_range"),
            ("retry/on", "out_of_range"),
            ("time_out", "unknown_setting"),
        ];
        assert_eq!(
            found,
            expected.map(|(rest, code)| (at(rest), code.to_owned()))
        );
    }

    #[test]
    fn w20_pauses_grow_to_the_longest_and_only_what_may_pass_is_repeated() {
        let settings = json!({"retry": {"maxAttempts": 5, "initial": "1s", "factor": 3, "max": "5s", "jitter": 0.5}});
        let retry = read(settings).unwrap().retry;
        let timeout = Failure::new(Category::Timeout, "late", "late");
        let pauses = (1..=5).map(|attempt| {
            retry
                .pause(attempt, &timeout, 0.5)
                .map(|pause| pause.as_secs_f64())
        });
        assert_eq!(
            pauses.collect::<Vec<_>>(),
            [Some(1.0), Some(3.0), Some(5.0), Some(5.0), None]
        );
        assert_eq!(
            retry.pause(1, &timeout, 1.0),
            Some(Duration::from_millis(1_500))
        );
        let repeats = |retry: &Retry, category, retryable: bool| {
            let failure = Failure::new(category, "code", "message");
            let failure = if retryable {
                failure.retryable()
            } else {
                failure
            };
            retry.pause(1, &failure, 0.5).is_some()
        };
        assert!(repeats(&retry, Category::Dependency, false));
        assert!(repeats(&retry, Category::Runtime, true));
        assert!(!repeats(&retry, Category::Runtime, false));
        assert!(!repeats(&retry, Category::Cancelled, true));
        let only = read(json!({"retry": {"maxAttempts": 2, "on": ["domain"]}}))
            .unwrap()
            .retry;
        assert!(
            repeats(&only, Category::Domain, false) && !repeats(&only, Category::Timeout, true)
        );
    }

    #[test]
    fn w23_a_handled_failure_gives_the_outputs_of_its_policy() {
        let failure = Failure::new(Category::Domain, "no", "no such player");
        let outputs = |settings: Value| {
            let execution = read(settings).unwrap();
            let shape = execution.extend(shape());
            let handled = execution.handled(&shape, "g/n", &failure, 3, &Map::new())?;
            Some(json!(
                handled
                    .iter()
                    .map(|value| value.as_deref().cloned())
                    .collect::<Vec<_>>()
            ))
        };
        let report = json!({"path": "g/n", "category": "domain", "code": "no",
            "message": "no such player", "retryable": false, "attempts": 3});
        assert_eq!(outputs(json!({})), None);
        assert_eq!(
            outputs(json!({"onError": "continue"})),
            Some(json!([null, report]))
        );
        let given = json!({"onError": "continue", "outputs": {"text": "a"}});
        assert_eq!(outputs(given), Some(json!(["a", report])));
        let fallback = read(json!({"onError": "fallback"})).unwrap();
        let shape = fallback.extend(shape());
        let handled = fallback
            .handled(&shape, "n", &failure, 1, &Map::new())
            .unwrap();
        assert!(handled[0].is_none() && handled[1].is_some());
        assert_eq!(fallback.succeeded(Values::from_elem(None, 1)).len(), 2);
    }
}
