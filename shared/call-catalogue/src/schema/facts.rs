//! Facts about a schema that typing needs for every value, derived once for each parameter.

use std::sync::Arc;

use serde_json::Value;

use super::{Schema, Types};

/// The facts about a schema that are needed again and again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The parameter whose schema, or whose items' schema, this is.
    parameter: Arc<str>,
    of_items: bool,
    pub(super) types: Types,
    /// Whether it has `enum` or `const`.
    pub(super) chooses: bool,
    /// Whether it has alternatives that types do not distinguish.
    pub(super) union: bool,
    pub(super) raw: bool,
    pub(super) preserves_white_space: bool,
    pub(super) unescapes: bool,
    /// The facts of an array's items, where the schema describes them.
    pub(super) items: Option<Box<Facts>>,
}

impl Facts {
    /// Derives the facts of a tool's parameter and of its items.
    pub(crate) fn of(root: &Value, parameter: &Arc<str>) -> Self {
        let schema = Schema::root(root).member(parameter);
        let list = schema.types().has(Types::ARRAY) && !schema.types().is_any();
        let items = || Box::new(Self::alone(schema.items(), parameter, true));
        Self {
            items: list.then(items),
            ..Self::alone(schema, parameter, false)
        }
    }

    /// The schema that these facts describe.
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
