//! What typing asks of the schema of every value, worked out once for each parameter.

use super::{Schema, Types};

/// The answers that a schema gives again and again.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(super) types: Types,
    /// It has `enum` or `const`.
    pub(super) chooses: bool,
    pub(super) raw: bool,
    pub(super) preserves_white_space: bool,
    pub(super) unescapes: bool,
    /// Those of an array's items, where it says what they are.
    pub(super) items: Option<Box<Facts>>,
}

impl Facts {
    /// Works out the answers of a schema and of its items.
    pub(crate) fn of(schema: Schema<'_>) -> Self {
        let list = schema.types().has(Types::ARRAY) && !schema.types().is_any();
        Self {
            items: list.then(|| Box::new(Self::alone(schema.items()))),
            ..Self::alone(schema)
        }
    }

    fn alone(schema: Schema<'_>) -> Self {
        Self {
            types: schema.types(),
            chooses: schema.allowed().is_some(),
            raw: schema.is_raw(),
            preserves_white_space: schema.preserves_white_space(),
            unescapes: schema.unescapes(),
            items: None,
        }
    }
}
