//! The shared settings of nodes that wait.

use call_outcome::{Failure, Violation};
use std::time::Duration;

use chrono::DateTime;
use json_schema::Schema;
use serde_json::{Map, Value};

use json_schema::pointer::join;
use workflow_domain::duration::read_duration;
use workflow_domain::execution::EXECUTION;
use workflow_domain::slot::Shape;
use workflow_domain::wait::Due;

/// The longest wait.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The longest schema, in bytes.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;

/// The settings of a node, with their problems.
pub(super) struct WaitSettings<'a> {
    config: &'a Map<String, Value>,
    violations: Vec<Violation>,
}

impl<'a> WaitSettings<'a> {
    pub(super) fn new(config: &'a Map<String, Value>) -> Self {
        Self {
            config,
            violations: Vec::new(),
        }
    }

    /// Returns the shape, or all problems.
    pub(super) fn end(self, shape: Shape) -> Result<Shape, Vec<Violation>> {
        match self.violations.is_empty() {
            true => Ok(shape),
            false => Err(self.violations),
        }
    }

    /// Adds a problem with a setting.
    pub(super) fn refuse(&mut self, key: &str, message: impl Into<String>) {
        self.violations.push(Violation::new(
            join("/configValues", key),
            "out_of_range",
            message.into(),
        ));
    }

    /// Returns a setting that is not null.
    pub(super) fn get(&self, key: &str) -> Option<&'a Value> {
        self.config.get(key).filter(|value| !value.is_null())
    }

    /// Reads a text of at least one and at most `most` bytes.
    pub(super) fn text(&mut self, key: &str, most: usize) -> Option<&'a str> {
        let value = self.get(key)?;
        let text = value.as_str();
        let text = text.filter(|text| !text.is_empty() && text.len() <= most);
        if text.is_none() {
            self.refuse(key, format!("expected a text of 1 to {most} bytes"));
        }
        text
    }

    /// Refuses a missing text.
    pub(super) fn required_text(&mut self, key: &str, most: usize) {
        if self.get(key).is_none() {
            self.refuse(key, "is missing");
        }
        self.text(key, most);
    }

    /// Reads a duration.
    pub(super) fn duration(&mut self, key: &str) -> Option<Duration> {
        let duration = read_duration(self.get(key)?);
        if duration.is_none() {
            let expected = "expected a number of seconds above 0, or a text such as `90s`, `5m`, `2h` or \
                            `7d`, at most 366 days";
            self.refuse(key, expected);
        }
        duration
    }

    /// Returns the due time of a wait that `key` bounds.
    pub(super) fn due(&mut self, key: &str) -> Due {
        self.duration(key).map_or(Due::Never, Due::After)
    }

    /// Returns whether the node takes its default at the due time: `key` is `fail` or `default`.
    pub(super) fn takes_default(&mut self, key: &str) -> bool {
        match self.get(key).map(Value::as_str) {
            None | Some(Some("fail")) => false,
            Some(Some("default")) => true,
            Some(_) => {
                self.refuse(key, "expected `fail` or `default`");
                false
            }
        }
    }

    /// Checks the schema at `key`, and that the default fits it if the node takes it.
    pub(super) fn check_schema(&mut self, key: &str, takes_default: bool) {
        let Some(schema) = self.get(key) else {
            return;
        };
        if json_schema::text_bytes(schema) > MAX_SCHEMA_BYTES {
            return self.refuse(key, format!("is longer than {MAX_SCHEMA_BYTES} bytes"));
        }
        let compiled = match Schema::compile(schema) {
            Ok(compiled) => compiled,
            Err(errors) => return self.refuse(key, errors.to_string()),
        };
        let default = self.get("default").unwrap_or(&Value::Null);
        let violations = compiled.validate(default);
        for violation in violations.iter().filter(|_| takes_default) {
            let pointer = format!("/configValues/default{}", violation.pointer);
            let message = violation.message.clone();
            let code = violation.code.as_str();
            self.violations.push(Violation::new(pointer, code, message));
        }
    }

    /// Refuses times in the settings for the execution: the duration of the wait is a setting of
    /// its own.
    pub(super) fn refuse_timeouts(&mut self) {
        for key in ["timeout", "totalTimeout"] {
            let given = self.get(EXECUTION).and_then(|given| given.get(key));
            if given.is_some_and(|given| !given.is_null()) {
                let message = "does not bound a wait; set how long it waits in its own settings";
                let pointer = format!("/configValues/{EXECUTION}/{key}");
                self.violations
                    .push(Violation::new(pointer, "out_of_range", message));
            }
        }
    }
}

/// Reads a time of RFC 3339.
pub(super) fn read_time(text: &str) -> Option<Due> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    // Of a leap second, chrono counts more than a second of nanoseconds.
    let nanos = time.timestamp_subsec_nanos().min(999_999_999);
    Some(Due::At(time.timestamp(), i32::try_from(nanos).ok()?))
}

/// Makes the failure of a node whose time has passed.
pub(super) fn timed_out(code: &'static str, message: &str) -> Failure {
    Failure::new(call_outcome::Category::Timeout, code, message)
}
