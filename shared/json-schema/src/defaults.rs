//! Fills in the defaults of a schema (rule C13).

use serde_json::{Map, Value};

use crate::graph::{Graph, NodeId};
use crate::limits::Limits;
use crate::violation::join_pointer;

/// The reason why no defaults were filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DefaultsError {
    /// The schema would fill in more than one instance may grow by.
    #[error(
        "defaults would add more than {values} values or {bytes} bytes; send these values or give the schema fewer defaults"
    )]
    TooMuch {
        /// Values allowed.
        values: usize,
        /// Bytes of JSON text allowed.
        bytes: usize,
    },
}

/// Fills in absent values and returns their pointers, parents first.
pub(crate) fn apply(
    document: &Value,
    graph: &Graph,
    limits: &Limits,
    instance: &mut Value,
) -> Result<Vec<String>, DefaultsError> {
    let mut filler = Filler {
        document,
        graph,
        limits,
        bytes: 0,
        visits: limits.work,
        filled: Vec::new(),
    };
    let mut completed = instance.clone();
    filler.visit(&[0], &mut completed, "", 0)?;
    *instance = completed;
    Ok(filler.filled)
}

struct Filler<'a> {
    document: &'a Value,
    graph: &'a Graph,
    limits: &'a Limits,
    bytes: usize,
    visits: u64,
    filled: Vec<String>,
}

impl Filler<'_> {
    /// Visits a value with the schemas that are known to hold for it. A schema under `anyOf`, `if` and
    /// their like may not, so its defaults are left alone.
    fn visit(
        &mut self,
        schemas: &[NodeId],
        value: &mut Value,
        pointer: &str,
        depth: usize,
    ) -> Result<(), DefaultsError> {
        if depth > self.limits.instance_depth {
            return Err(self.too_much());
        }
        let mut holding: Vec<NodeId> = Vec::new();
        for id in schemas.iter().flat_map(|id| self.graph.always(*id)) {
            if !holding.contains(&id) {
                holding.push(id);
            }
        }
        self.visits = self
            .visits
            .checked_sub(1 + holding.len() as u64)
            .ok_or_else(|| self.too_much())?;
        match value {
            Value::Object(members) => self.object(&holding, members, pointer, depth),
            Value::Array(items) => self.array(&holding, items, pointer, depth),
            _ => Ok(()),
        }
    }

    fn object(
        &mut self,
        holding: &[NodeId],
        members: &mut Map<String, Value>,
        pointer: &str,
        depth: usize,
    ) -> Result<(), DefaultsError> {
        let graph = self.graph;
        let mut named: Vec<(&str, Vec<NodeId>)> = Vec::new();
        for (name, child) in holding.iter().flat_map(|id| &graph.nodes[*id].properties) {
            match named.iter_mut().find(|(known, _)| known == name) {
                Some((_, children)) => children.push(*child),
                None => named.push((name, vec![*child])),
            }
        }
        for (name, children) in named {
            let place = join_pointer(pointer, name);
            if !members.contains_key(name) {
                let Some(default) = self.default_of(&children) else {
                    continue;
                };
                self.fill(&default, &place)?;
                members.insert(name.to_owned(), default);
            }
            if let Some(member) = members.get_mut(name) {
                self.visit(&children, member, &place, depth + 1)?;
            }
        }
        Ok(())
    }

    fn array(
        &mut self,
        holding: &[NodeId],
        items: &mut [Value],
        pointer: &str,
        depth: usize,
    ) -> Result<(), DefaultsError> {
        for (index, item) in items.iter_mut().enumerate() {
            let children: Vec<NodeId> = holding
                .iter()
                .filter_map(|id| {
                    let node = &self.graph.nodes[*id];
                    node.first_items.get(index).copied().or(node.other_items)
                })
                .collect();
            if !children.is_empty() {
                self.visit(&children, item, &format!("{pointer}/{index}"), depth + 1)?;
            }
        }
        Ok(())
    }

    fn default_of(&self, schemas: &[NodeId]) -> Option<Value> {
        schemas
            .iter()
            .flat_map(|id| self.graph.always(*id))
            .find_map(|id| {
                self.document
                    .pointer(&self.graph.nodes[id].pointer)?
                    .get("default")
            })
            .cloned()
    }

    fn fill(&mut self, default: &Value, place: &str) -> Result<(), DefaultsError> {
        self.bytes += crate::text_bytes(default);
        if self.filled.len() == self.limits.defaults || self.bytes > self.limits.default_bytes {
            return Err(self.too_much());
        }
        self.filled.push(place.to_owned());
        Ok(())
    }

    fn too_much(&self) -> DefaultsError {
        DefaultsError::TooMuch {
            values: self.limits.defaults,
            bytes: self.limits.default_bytes,
        }
    }
}
