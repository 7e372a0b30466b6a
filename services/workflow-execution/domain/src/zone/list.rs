//! The iterations over a list (rules W16 and W17).

use std::sync::Arc;

use call_outcome::Failure;
use serde_json::{Value, json};

use super::super::data_flow::{NULL, Values};
use super::super::limits::MAX_VALUE_BYTES;
use super::super::size::weight;
use super::settings::{MAX_ITEMS, MapSettings, Tolerated};

/// A list in progress.
#[derive(Debug)]
pub struct List {
    constants: Values,
    items: Arc<Value>,
    /// The number of items that may fail; none if the first failure ends the map.
    tolerated: Option<u64>,
    concurrency: usize,
    /// The number of items whose iterations have begun.
    begun: usize,
    results: Vec<Value>,
    errors: Vec<Value>,
    bytes: usize,
    leads: UsedOutputs,
}

/// The outputs with the results that have a reader.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsedOutputs {
    pub(super) results: bool,
    pub(super) stream: bool,
}

impl List {
    pub(super) fn begin(
        settings: MapSettings,
        constants: Values,
        items: Option<Arc<Value>>,
        leads: UsedOutputs,
    ) -> Result<Self, Failure> {
        let items = items.unwrap_or_default();
        let count = items.as_array().map_or(0, Vec::len);
        if count > MAX_ITEMS {
            let message = format!("the list has {count} items; at most {MAX_ITEMS} are accepted");
            return Err(Failure::limit("too_many_items", message));
        }
        let tolerated = settings.tolerated.map(|tolerated| match tolerated {
            Tolerated::All => u64::MAX,
            Tolerated::Number(number) => number,
            Tolerated::Percent(percent) => (count as f64 * percent / 100.0).floor() as u64,
        });
        Ok(Self {
            constants,
            items,
            tolerated,
            concurrency: settings.concurrency,
            begun: 0,
            results: Vec::new(),
            errors: Vec::new(),
            bytes: 0,
            leads,
        })
    }

    pub(super) fn index(&self) -> u64 {
        self.results.len() as u64
    }

    /// Returns the results from the item `from` on.
    pub(super) fn results(&self, from: usize) -> &[Value] {
        self.results.get(from..).unwrap_or_default()
    }

    pub(super) fn concurrency(&self) -> usize {
        self.concurrency
    }

    pub(super) fn tolerates_none(&self) -> bool {
        self.tolerated.is_none()
    }

    pub(super) fn next_values(&mut self) -> Option<Values> {
        let items = self.items.as_array()?;
        let item = items.get(self.begun)?;
        let index = self.begun;
        self.begun += 1;
        let own = [Value::from(index), item.clone(), Value::from(items.len())];
        let own = own.into_iter().map(|value| Some(Arc::new(value)));
        Some(self.constants.iter().cloned().chain(own).collect())
    }

    pub(super) fn take(&mut self, gave: Result<Values, Failure>) -> Result<(), Failure> {
        let result = match gave {
            Ok(mut values) => values
                .pop()
                .flatten()
                .as_deref()
                .cloned()
                .unwrap_or_default(),
            Err(failure) => {
                self.fail(failure)?;
                Value::Null
            }
        };
        self.bytes += weight(&result);
        self.results.push(result);
        if self.bytes <= MAX_VALUE_BYTES {
            return Ok(());
        }
        let message =
            format!("the results and errors have more than {MAX_VALUE_BYTES} bytes together");
        Err(Failure::limit("results_too_large", message))
    }

    pub(super) fn outputs(&mut self) -> Vec<Arc<Value>> {
        let failed = self.errors.len();
        let succeeded = Value::from(self.results.len() - failed);
        let errors = Value::Array(std::mem::take(&mut self.errors));
        let results = Arc::new(Value::Array(std::mem::take(&mut self.results)));
        let only_if = |leads: bool| match leads {
            true => Arc::clone(&results),
            false => Arc::clone(&NULL),
        };
        vec![
            only_if(self.leads.results || !self.leads.stream),
            Arc::new(errors),
            Arc::new(succeeded),
            Arc::new(Value::from(failed)),
            only_if(self.leads.stream),
        ]
    }

    fn fail(&mut self, failure: Failure) -> Result<(), Failure> {
        let index = self.index();
        let Some(tolerated) = self.tolerated else {
            return Err(failure.detail("item", index));
        };
        let error = json!({
            "index": index,
            "category": failure.category.as_str(),
            "code": failure.code,
            "message": failure.message,
        });
        self.bytes += weight(&error);
        self.errors.push(error);
        if self.errors.len() as u64 <= tolerated {
            return Ok(());
        }
        let message = format!(
            "{} items failed, {tolerated} are tolerated; the last one: {}",
            self.errors.len(),
            failure.message
        );
        Err(Failure::new(failure.category, "too_many_failures", message).detail("item", index))
    }
}
