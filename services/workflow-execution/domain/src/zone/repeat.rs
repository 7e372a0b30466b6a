//! The iterations of a loop (rules W10 to W13).

use std::sync::Arc;

use call_outcome::{Category, Failure};
use serde_json::{Map, Value};

use super::super::data_flow::{NULL, Values};
use super::super::limits::MAX_VALUE_BYTES;
use super::super::size::weight;
use super::settings::LoopSettings;

/// The most entries of a collected array.
const MAX_COLLECTED: u64 = 10_000;

/// A loop in progress.
#[derive(Debug)]
pub struct Repeat {
    settings: LoopSettings,
    variables: Values,
    constants: Values,
    count: Option<u64>,
    /// The inputs of the zone by name, as conditions see them.
    inputs: Value,
    collected: Vec<Vec<Value>>,
    collected_bytes: usize,
    index: u64,
    stop: Option<&'static str>,
}

impl Repeat {
    pub(super) fn begin(
        settings: LoopSettings,
        variables: Values,
        constants: Values,
        count: Option<Arc<Value>>,
        inputs: Value,
    ) -> Result<Self, Failure> {
        let count = match count.filter(|count| !count.is_null()) {
            None => None,
            Some(count) => Some(count.as_u64().ok_or_else(|| {
                let message = format!("`count` is {count}; expected a whole number from 0");
                Failure::invalid("invalid_count", message)
            })?),
        };
        Ok(Self {
            collected: vec![Vec::new(); settings.collect.len()],
            settings,
            variables,
            constants,
            count,
            inputs,
            collected_bytes: 0,
            index: 0,
            stop: None,
        })
    }

    pub(super) fn index(&self) -> u64 {
        self.index
    }

    pub(super) fn next_values(&mut self) -> Result<Option<Values>, Failure> {
        if self.stop.is_none() {
            self.stop = self.reason_before()?;
        }
        if self.stop.is_some() {
            return Ok(None);
        }
        let index = Some(Arc::new(Value::from(self.index)));
        let values = self.variables.iter().chain(&self.constants).cloned();
        Ok(Some(values.chain([index]).collect()))
    }

    /// Takes the outputs of iterations before the process began, in order. Iterations before the
    /// last may be left out if later ones replaced their values. Returns the number of the next
    /// iteration.
    pub(super) fn resume(
        &mut self,
        ended: impl Iterator<Item = (u64, Result<Values, Failure>)>,
        connected: &[bool],
    ) -> Result<u64, Failure> {
        let mut ended = ended.peekable();
        while let Some((index, gave)) = ended.next() {
            self.index = index;
            match ended.peek() {
                // No loop continued after a failure or an end.
                Some(_) => drop(self.carry(gave?, connected)),
                None => self.take(gave?, connected)?,
            }
        }
        Ok(self.index)
    }

    /// Keeps the outputs of an iteration; returns the value that decides whether it ends the loop.
    fn carry(&mut self, gave: Values, connected: &[bool]) -> Option<Arc<Value>> {
        let mut gave = gave.into_iter().zip(connected);
        for variable in &mut self.variables {
            if let Some((Some(value), true)) = gave.next() {
                *variable = Some(value);
            }
        }
        for entries in &mut self.collected {
            let value = gave.next().and_then(|(value, _)| value);
            let value = value.as_deref().cloned().unwrap_or_default();
            self.collected_bytes += weight(&value);
            entries.push(value);
        }
        gave.next().and_then(|(value, _)| value)
    }

    pub(super) fn take(&mut self, gave: Values, connected: &[bool]) -> Result<(), Failure> {
        let ends = self.carry(gave, connected);
        self.index += 1;
        if !self.collected.is_empty()
            && (self.index > MAX_COLLECTED || self.collected_bytes > MAX_VALUE_BYTES)
        {
            let message = format!(
                "the collected values exceed {MAX_COLLECTED} entries or {MAX_VALUE_BYTES} bytes"
            );
            return Err(Failure::limit("collected_too_large", message));
        }
        if ends.is_some_and(|ends| *ends == Value::Bool(true)) {
            self.stop = Some("break");
        } else if let Some(until) = self.settings.until.clone()
            && self.holds("until", &until)?
        {
            self.stop = Some("until");
        }
        Ok(())
    }

    pub(super) fn outputs(&mut self) -> Vec<Arc<Value>> {
        let variables = self.variables.drain(..);
        let variables = variables.map(|value| value.unwrap_or_else(|| Arc::clone(&NULL)));
        let collected = self
            .collected
            .drain(..)
            .map(|list| Arc::new(Value::Array(list)));
        let reason = Arc::new(Value::from(self.stop.unwrap_or_default()));
        let ends = [Arc::new(Value::from(self.index)), reason];
        variables.chain(collected).chain(ends).collect()
    }

    /// Returns the reason for which there is no further iteration.
    fn reason_before(&self) -> Result<Option<&'static str>, Failure> {
        if self.count.is_some_and(|count| self.index >= count) {
            return Ok(Some("count"));
        }
        if let Some(condition) = &self.settings.while_holds
            && !self.holds("while", condition)?
        {
            return Ok(Some("while"));
        }
        if self.index < self.settings.max_iterations {
            return Ok(None);
        }
        if self.settings.fail_at_max {
            let message = format!(
                "the loop has not ended after {} iterations",
                self.settings.max_iterations
            );
            return Err(Failure::new(Category::Limit, "max_iterations", message));
        }
        Ok(Some("max"))
    }

    fn holds(&self, key: &str, source: &str) -> Result<bool, Failure> {
        let variables = self.settings.variables.iter().zip(&self.variables);
        let variables: Map<String, Value> = variables
            .map(|(slot, value)| {
                (
                    slot.key.to_string(),
                    value.as_deref().cloned().unwrap_or_default(),
                )
            })
            .collect();
        let (variables, index) = (Value::Object(variables), Value::from(self.index));
        let bindings = [
            ("inputs", &self.inputs),
            ("vars", &variables),
            ("index", &index),
        ];
        cel_guard::holds(source, &bindings).map_err(|problem| {
            let message = format!("`{key}` has no result: {problem}");
            Failure::invalid("condition_failed", message)
        })
    }
}
