//! Slots: the inputs and outputs of nodes and workflows.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;

use super::data_flow::DataFlow;

/// The category of a slot that connects to every slot.
const BEHAVIOR_WILDCARD: &str = "BehaviorWildcard";

/// One input or output of a node, or of a workflow's interface.
#[derive(Clone, Debug, PartialEq)]
pub struct Slot {
    /// The key by which edges and values name it.
    pub key: Arc<str>,
    /// The type of its values.
    pub data_flow: DataFlow,
    /// The purpose.
    pub description: String,
    /// Whether a value is required. Has no meaning for outputs.
    pub required: bool,
    /// Whether several edges may end here; the value is then an array.
    pub multi: bool,
    /// Whether of the values of several edges the node takes only the first that exists, as the
    /// pair of the place of its edge and the value.
    pub first: bool,
    /// The value that is used if no other is present.
    pub default: Option<Arc<Value>>,
    /// Values that an editor offers; empty for any value.
    pub suggestions: Vec<Cow<'static, str>>,
    /// Whether the slot describes the node's own work and carries no data, as a separator or a
    /// status does; when the node is bypassed, nothing passes from or to it.
    pub excluded_from_bypass: bool,
    /// Free words; slots that share one may be connected whatever their types.
    pub categories: Vec<String>,
    /// Whether a text passes here piece by piece, or values one after the other, while they are written.
    /// The slot holds the whole of it (see [`super::stream_value`]).
    pub is_stream: bool,
    /// The stream input with whose whole the whole of this stream output begins, so that its pieces
    /// pass through at once.
    pub relays: Option<Arc<str>>,
}

impl Slot {
    /// The category of slots that carry chat messages, as an array or as its JSON text (rule W35).
    pub const CHAT_HISTORY: &str = "ChatHistory";

    /// Makes an optional slot for a single value.
    pub fn new(key: &str, data_flow: DataFlow, description: &str) -> Self {
        Self {
            key: key.into(),
            data_flow,
            description: description.to_owned(),
            required: false,
            multi: false,
            first: false,
            default: None,
            suggestions: Vec::new(),
            excluded_from_bypass: false,
            categories: Vec::new(),
            is_stream: false,
            relays: None,
        }
    }

    /// Makes the value mandatory.
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Lets several edges end here.
    pub fn multi(mut self) -> Self {
        self.multi = true;
        self
    }

    /// Takes only the first of several values, with its place.
    pub fn first(mut self) -> Self {
        self.multi = true;
        self.first = true;
        self
    }

    /// Keeps bypassed values away from the slot.
    pub fn excluded_from_bypass(mut self) -> Self {
        self.excluded_from_bypass = true;
        self
    }

    /// Sets the value that is used if no other is present.
    pub fn default(mut self, value: Value) -> Self {
        self.default = Some(Arc::new(value));
        self
    }

    /// Offers values in an editor.
    pub fn suggest(mut self, values: impl IntoIterator<Item = &'static str>) -> Self {
        self.suggestions = values.into_iter().map(Cow::Borrowed).collect();
        self
    }

    /// Adds a category.
    pub fn category(mut self, category: &str) -> Self {
        self.categories.push(category.to_owned());
        self
    }

    /// Lets a text pass piece by piece, or values one after the other. An output of a node with an effect is
    /// the effect's output.
    pub fn stream(mut self) -> Self {
        self.is_stream = true;
        self
    }

    /// Lets the pieces of the input `key` pass through this output at once, if they pass here at all.
    pub fn relaying(mut self, key: &str) -> Self {
        self.relays = self.is_stream.then(|| key.into());
        self
    }

    /// Whether values other than text pass here one after the other.
    pub fn streams_values(&self) -> bool {
        self.is_stream && self.data_flow != DataFlow::String
    }

    /// Returns the type of this slot's value in a slot for plain values.
    pub fn whole(&self) -> DataFlow {
        match self.streams_values() && !self.data_flow.is_any() {
            true => DataFlow::Array,
            false => self.data_flow,
        }
    }

    /// Returns whether an edge may lead from this output to `target`.
    pub fn connects_to(&self, target: &Slot) -> bool {
        let behaves_as_any =
            |slot: &Slot| slot.categories.iter().any(|word| word == BEHAVIOR_WILDCARD);
        let given = match target.is_stream {
            true => self.data_flow,
            false => self.whole(),
        };
        if given.flows_into(target.data_flow) && self.fits_count(target) {
            return true;
        }
        behaves_as_any(self)
            || behaves_as_any(target)
            || self
                .categories
                .iter()
                .any(|word| target.categories.contains(word))
    }

    /// Whether the slot accepts a value although it is not of the slot's type.
    pub fn takes_otherwise(&self, value: &Value) -> bool {
        (value.is_array() || value.is_string())
            && self
                .categories
                .iter()
                .any(|word| word == Self::CHAT_HISTORY)
    }

    /// Many values fit one array or a slot for many; one value fits everything.
    fn fits_count(&self, target: &Slot) -> bool {
        !self.multi
            || target.multi
            || target.data_flow.is_any()
            || target.data_flow == DataFlow::Array
    }
}

/// The slots of one node in one workflow. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Shape {
    /// The inputs, in the order in which a node sees their values.
    pub inputs: Arc<[Slot]>,
    /// The outputs, in the order in which a node returns their values.
    pub outputs: Arc<[Slot]>,
}

impl Shape {
    /// Combines inputs and outputs.
    pub fn new(inputs: Vec<Slot>, outputs: Vec<Slot>) -> Self {
        Self {
            inputs: inputs.into(),
            outputs: outputs.into(),
        }
    }

    /// Returns the place of the input `key`.
    pub fn input(&self, key: &str) -> Option<usize> {
        self.inputs.iter().position(|slot| &*slot.key == key)
    }

    /// Returns the place of the output `key`.
    pub fn output(&self, key: &str) -> Option<usize> {
        self.outputs.iter().position(|slot| &*slot.key == key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(data_flow: DataFlow, categories: &[&str]) -> Slot {
        let mut slot = Slot::new("k", data_flow, "");
        slot.categories = categories.iter().map(|word| (*word).to_owned()).collect();
        slot
    }

    #[test]
    fn a_shared_category_or_the_wildcard_behaviour_connects_foreign_types() {
        let text = slot(DataFlow::String, &["Prompt"]);
        assert!(text.connects_to(&slot(DataFlow::Object, &["Json", "Prompt"])));
        assert!(!text.connects_to(&slot(DataFlow::Object, &["Json"])));
        assert!(text.connects_to(&slot(DataFlow::Object, &["BehaviorWildcard"])));
    }

    #[test]
    fn w24_a_stream_meets_its_own_type_and_a_plain_slot_gets_all_of_it() {
        let numbers = slot(DataFlow::Integer, &[]).stream();
        assert!(numbers.connects_to(&slot(DataFlow::Float, &[]).stream()));
        assert!(numbers.connects_to(&slot(DataFlow::String, &[]).stream()));
        assert!(!numbers.connects_to(&slot(DataFlow::Array, &[]).stream()));
        assert!(numbers.connects_to(&slot(DataFlow::Array, &[])));
        assert!(!numbers.connects_to(&slot(DataFlow::Integer, &[])));
        assert!(slot(DataFlow::Integer, &[]).connects_to(&numbers));
        assert!(!slot(DataFlow::Array, &[]).connects_to(&numbers));
        let text = slot(DataFlow::String, &[]).stream();
        assert!(text.connects_to(&slot(DataFlow::String, &[])));
        assert!(!text.connects_to(&slot(DataFlow::Array, &[])));
    }

    #[test]
    fn many_values_do_not_fit_a_slot_for_one() {
        let many = slot(DataFlow::String, &[]).multi();
        assert!(!many.connects_to(&slot(DataFlow::String, &[])));
        assert!(many.connects_to(&slot(DataFlow::String, &[]).multi()));
        assert!(many.connects_to(&slot(DataFlow::Wildcard, &[])));
        assert!(slot(DataFlow::String, &[]).connects_to(&many));
    }
}
