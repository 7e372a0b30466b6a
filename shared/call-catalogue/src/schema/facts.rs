//! What typing asks of the schema of every value, worked out once for each parameter.

use std::sync::Arc;

use serde_json::Value;

use super::{Schema, Types};

/// The answers that a schema gives again and again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The parameter whose schema, or whose items' schema, this is.
    parameter: Arc<str>,
    of_items: bool,
    pub(super) types: Types,
    /// It has `enum` or `const`.
    pub(super) chooses: bool,
    /// It has alternatives that types do not tell apart.
    pub(super) union: bool,
    pub(super) raw: bool,
    pub(super) preserves_white_space: bool,
    pub(super) unescapes: bool,
    /// Those of an array's items, where it says what they are.
    pub(super) items: Option<Box<Facts>>,
}

impl Facts {
    /// Works out the answers of a tool's parameter and of its items.
    pub(crate) fn of(root: &Value, parameter: &Arc<str>) -> Self {
        let schema = Schema::root(root).member(parameter);
        let list = schema.types().has(Types::ARRAY) && !schema.types().is_any();
        let items = || Box::new(Self::alone(schema.items(), parameter, true));
        Self {
            items: list.then(items),
            ..Self::alone(schema, parameter, false)
        }
    }

    /// The schema of which these are the answers.
    pub(super) fn find<'s>(&self, root: &'s Value) -> Schema<'s> {
        let parameter = Schema::root(root).member(&self.parameter);
        match self.of_items {
            true => parameter.items(),
            false => parameter,
        }
    }

    fn alone(schema: Schema<'_>, parameter: &Arc<str>, of_items: bool) -> Self {
        Self {
            parameter: Arc::clone(parameter),
            of_items,
            types: schema.types(),
            chooses: schema.allowed().is_some(),
            union: schema.is_union(),
            raw: schema.is_raw(),
            preserves_white_space: schema.preserves_white_space(),
            unescapes: schema.unescapes(),
            items: None,
        }
    }
}
