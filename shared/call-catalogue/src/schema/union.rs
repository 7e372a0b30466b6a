//! Schemas with alternatives (C9): their list, whether types settle the choice for a value, and the
//! remaining schema after the choice of one.

use serde_json::Value;

use super::{MOST_DEPTH, NOTHING, Schema, Types};

/// Keywords that do not restrict a value further than the alternatives.
const REMARKS: [&str; 14] = [
    "title",
    "description",
    "examples",
    "default",
    "deprecated",
    "readOnly",
    "writeOnly",
    "discriminator",
    "$comment",
    "$schema",
    "$id",
    "$defs",
    "definitions",
    "nullable",
];

/// Alternatives looked at; schemas with more than these are typed by the first ones.
const MOST_ALTERNATIVES: usize = 256;

impl<'s> Schema<'s> {
    /// Whether a value may match one of several alternatives that its type does not distinguish.
    pub fn is_union(self) -> bool {
        match self.facts {
            Some(facts) => facts.union,
            None => self.is_composed() && types_leave_open(&self.alternatives()),
        }
    }

    /// The alternatives of `anyOf` and `oneOf`, those within alternatives included, each with the
    /// sibling keywords. None of them is a union itself.
    pub fn alternatives(self) -> Vec<Schema<'s>> {
        let schema = self.located();
        let mut branches = schema.branches();
        if branches.is_empty() {
            let all = schema.list("allOf").iter();
            let mut parts = all.map(|node| schema.at(node).branches());
            branches = parts.find(|part| part.len() > 1).unwrap_or_default();
        }
        let mut found = Vec::new();
        for branch in branches {
            branch.collect_alternatives(&mut found, MOST_DEPTH);
        }
        if !schema.is_only_union() {
            for alternative in &mut found {
                let chosen = alternative.node;
                let facts = None;
                *alternative = Self {
                    chosen,
                    facts,
                    ..schema
                };
            }
        }
        found
    }

    fn collect_alternatives(self, found: &mut Vec<Schema<'s>>, depth: usize) {
        let branches = match self.is_only_union() {
            true => self.branches(),
            false => Vec::new(),
        };
        if branches.is_empty() && found.len() < MOST_ALTERNATIVES {
            found.push(self);
        }
        for branch in branches {
            // Deeper than this only a circle of references leads.
            if depth > 0 && found.len() < MOST_ALTERNATIVES {
                branch.collect_alternatives(found, depth - 1);
            }
        }
    }

    /// Whether the schema only lists alternatives.
    fn is_only_union(self) -> bool {
        self.chosen.is_none() && self.says_only(&["anyOf", "oneOf"])
    }

    /// Whether a value meets all keywords of the schema, as dispatch would check. A schema
    /// that was not compiled admits everything.
    pub fn admits(self, value: &Value) -> bool {
        let node = self.node();
        let part = self.checked.filter(|_| !std::ptr::eq(node, &NOTHING));
        part.is_none_or(|checked| checked.part_is_valid(self.root, node, value))
    }

    /// Whether the schema has none but these keywords and remarks.
    fn says_only(self, keywords: &[&str]) -> bool {
        let known =
            |key: &String| keywords.contains(&key.as_str()) || REMARKS.contains(&key.as_str());
        match self.node() {
            Value::Object(map) => map.keys().all(known),
            _ => true,
        }
    }
}

/// Whether two alternatives are both objects or both arrays, or a scalar alternative has keywords
/// other than its type.
fn types_leave_open(alternatives: &[Schema<'_>]) -> bool {
    let structure = Types::OBJECT.with(Types::ARRAY);
    let mut structures = Types::NONE;
    alternatives.len() > 1
        && alternatives.iter().any(|alternative| {
            let types = alternative.types();
            let shared = structures.has(types);
            structures = structures.with(Types(types.0 & structure.0));
            let scalar = types.has(Types::SCALARS.with(Types::STRING));
            shared || (scalar && !alternative.says_only(&["type"]))
        })
}
