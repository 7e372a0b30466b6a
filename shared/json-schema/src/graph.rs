//! A schema as a graph: the parts evaluated on the same value, and the parts evaluated on its
//! members.
//!
//! All work on a schema other than the compiled validator uses this graph: the checks, the price,
//! the known names and the defaults. It follows references within the document and knows no other
//! documents.

use std::collections::HashMap;

use serde_json::Value;

use crate::compile_error::{CompileCode, CompileProblem};
use crate::violation::join_pointer;

/// Index of a node in its graph; the root is 0.
pub(crate) type NodeId = usize;

/// One schema object (or boolean schema) of the document.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// JSON pointer of the schema within the document.
    pub(crate) pointer: String,
    /// Schemas evaluated on the same value.
    pub(crate) in_place: Vec<NodeId>,
    /// The nodes of `in_place` that apply whenever this node does: references and `allOf`.
    pub(crate) always: Vec<NodeId>,
    /// Named properties, in schema order.
    pub(crate) properties: Vec<(String, NodeId)>,
    /// Schema of the properties that `properties` does not name.
    pub(crate) other_properties: Option<NodeId>,
    /// Schemas that any property may meet.
    pub(crate) any_property: Vec<NodeId>,
    /// Schemas of the first items.
    pub(crate) first_items: Vec<NodeId>,
    /// Schema of the remaining items.
    pub(crate) other_items: Option<NodeId>,
    /// Schemas that any item may meet.
    pub(crate) any_item: Vec<NodeId>,
    /// Whether the schema itself decides on properties that it does not name.
    pub(crate) opens_itself: bool,
    /// Whether the keyword `properties` is present.
    pub(crate) names_properties: bool,
}

/// All schemas that can be reached from the root, and the patterns on the way.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    /// Patterns with their pointers.
    pub(crate) patterns: Vec<(String, String)>,
    /// References that lead nowhere this crate goes, and nested base addresses.
    pub(crate) problems: Vec<CompileProblem>,
    ids: HashMap<String, NodeId>,
}

impl Graph {
    /// Builds the graph of a document whose size and depth are already known to be bounded.
    pub(crate) fn build(document: &Value) -> Self {
        let mut builder = Builder {
            document,
            graph: Self::default(),
            queue: Vec::new(),
            references: Vec::new(),
            anchors: HashMap::new(),
        };
        builder.node(String::new());
        builder.run();
        builder.graph
    }

    /// Returns the node at a pointer.
    pub(crate) fn at(&self, pointer: &str) -> Option<NodeId> {
        self.ids.get(pointer).copied()
    }

    /// Returns every node evaluated on the same value as `start`, itself first.
    pub(crate) fn same_value(&self, start: NodeId) -> Vec<NodeId> {
        self.reach(start, |node| &node.in_place)
    }

    /// Returns every node that holds whenever `start` does, itself first.
    pub(crate) fn always(&self, start: NodeId) -> Vec<NodeId> {
        self.reach(start, |node| &node.always)
    }

    fn reach(&self, start: NodeId, edges: impl Fn(&Node) -> &[NodeId]) -> Vec<NodeId> {
        let mut seen = vec![false; self.nodes.len()];
        let mut order = Vec::new();
        let mut stack = vec![start];
        while let Some(id) = stack.pop() {
            if std::mem::replace(&mut seen[id], true) {
                continue;
            }
            order.push(id);
            stack.extend(edges(&self.nodes[id]).iter().rev());
        }
        order
    }

    /// Returns the property names known to the schemas of one value, in schema order.
    pub(crate) fn known_names(&self, start: NodeId) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for id in self.same_value(start) {
            for (name, _) in &self.nodes[id].properties {
                if seen.insert(name.as_str()) {
                    names.push(name.clone());
                }
            }
        }
        names
    }
}

struct Builder<'a> {
    document: &'a Value,
    graph: Graph,
    queue: Vec<NodeId>,
    /// References met so far: where from, and the text.
    references: Vec<(NodeId, String, bool)>,
    anchors: HashMap<String, Vec<NodeId>>,
}

impl Builder<'_> {
    /// Returns the node of a pointer, new ones being queued.
    fn node(&mut self, pointer: String) -> NodeId {
        if let Some(id) = self.graph.ids.get(&pointer) {
            return *id;
        }
        let id = self.graph.nodes.len();
        self.graph.nodes.push(Node {
            pointer: pointer.clone(),
            ..Node::default()
        });
        self.graph.ids.insert(pointer, id);
        self.queue.push(id);
        id
    }

    /// Visits nodes until neither they nor their references bring new ones. References wait for the
    /// queue, because an anchor may come after the reference that names it.
    fn run(&mut self) {
        loop {
            while let Some(id) = self.queue.pop() {
                self.visit(id);
            }
            let references = std::mem::take(&mut self.references);
            if references.is_empty() {
                return;
            }
            for (from, reference, dynamic) in references {
                self.resolve(from, &reference, dynamic);
            }
        }
    }

    fn visit(&mut self, id: NodeId) {
        let pointer = self.graph.nodes[id].pointer.clone();
        let document = self.document;
        let Some(Value::Object(schema)) = document.pointer(&pointer) else {
            return;
        };
        for (keyword, value) in schema {
            let place = join_pointer(&pointer, keyword);
            self.keyword(id, keyword, value, place);
        }
    }

    fn keyword(&mut self, id: NodeId, keyword: &str, value: &Value, place: String) {
        match keyword {
            "$ref" | "$dynamicRef" | "$recursiveRef" => {
                if let Some(reference) = value.as_str() {
                    self.references
                        .push((id, reference.to_owned(), keyword != "$ref"));
                }
            }
            "$id" | "id" | "$anchor" | "$dynamicAnchor" => self.address(id, keyword, value, place),
            "allOf" | "anyOf" | "oneOf" => {
                for child in self.list(value, &place) {
                    self.same_value_as(id, child, keyword == "allOf");
                }
            }
            "not" | "if" | "then" | "else" => {
                let child = self.node(place);
                self.same_value_as(id, child, false);
            }
            "dependentSchemas" | "dependencies" => {
                for (_, child) in self.map(value, &place) {
                    self.same_value_as(id, child, false);
                }
            }
            "$defs" | "definitions" => {
                self.map(value, &place);
            }
            "pattern" => {
                if let Some(pattern) = value.as_str() {
                    self.graph.patterns.push((pattern.to_owned(), place));
                }
            }
            _ => self.member_keyword(id, keyword, value, place),
        }
    }

    /// Handles the keywords that apply to the members of an object or array.
    fn member_keyword(&mut self, id: NodeId, keyword: &str, value: &Value, place: String) {
        match keyword {
            "properties" => {
                let children = self.map(value, &place);
                self.graph.nodes[id].properties = children;
                self.graph.nodes[id].names_properties = true;
            }
            "patternProperties" => {
                for (pattern, child) in self.map(value, &place) {
                    self.graph
                        .patterns
                        .push((pattern.clone(), join_pointer(&place, &pattern)));
                    self.graph.nodes[id].any_property.push(child);
                }
                self.graph.nodes[id].opens_itself = true;
            }
            "additionalProperties" | "unevaluatedProperties" => {
                let child = self.node(place);
                if keyword == "additionalProperties" {
                    self.graph.nodes[id].other_properties = Some(child);
                } else {
                    self.graph.nodes[id].any_property.push(child);
                }
                self.graph.nodes[id].opens_itself = true;
            }
            "propertyNames" => {
                let child = self.node(place);
                self.graph.nodes[id].any_property.push(child);
            }
            "items" if value.is_array() => {
                let children = self.list(value, &place);
                self.graph.nodes[id].first_items = children;
            }
            "prefixItems" => {
                let children = self.list(value, &place);
                self.graph.nodes[id].first_items = children;
            }
            "items" | "additionalItems" => {
                let child = self.node(place);
                self.graph.nodes[id].other_items = Some(child);
            }
            "contains" | "unevaluatedItems" => {
                let child = self.node(place);
                self.graph.nodes[id].any_item.push(child);
            }
            _ => {}
        }
    }

    fn same_value_as(&mut self, id: NodeId, child: NodeId, always: bool) {
        self.graph.nodes[id].in_place.push(child);
        if always {
            self.graph.nodes[id].always.push(child);
        }
    }

    fn list(&mut self, value: &Value, place: &str) -> Vec<NodeId> {
        let count = value.as_array().map_or(0, Vec::len);
        (0..count)
            .map(|index| self.node(format!("{place}/{index}")))
            .collect()
    }

    /// Returns the children of a map of schemas; members that are no schemas (the name lists of
    /// `dependencies`) are left out.
    fn map(&mut self, value: &Value, place: &str) -> Vec<(String, NodeId)> {
        let members = value.as_object().into_iter().flatten();
        members
            .filter(|(_, schema)| schema.is_object() || schema.is_boolean())
            .map(|(name, _)| (name.clone(), self.node(join_pointer(place, name))))
            .collect()
    }

    fn address(&mut self, id: NodeId, keyword: &str, value: &Value, place: String) {
        let Some(address) = value.as_str() else {
            return;
        };
        let anchor = match keyword {
            "$anchor" | "$dynamicAnchor" => Some(address),
            // Before draft 2019-09 an anchor was an identifier that is only a fragment.
            _ => address.strip_prefix('#'),
        };
        match anchor {
            Some(anchor) => self.anchors.entry(anchor.to_owned()).or_default().push(id),
            None if id == 0 => {}
            None => self.graph.problems.push(CompileProblem::new(
                place,
                CompileCode::NestedId,
                format!("a subschema must not set the base address {address:?}; remove it and refer to the subschema by `#/...`"),
            )),
        }
    }

    fn resolve(&mut self, from: NodeId, reference: &str, dynamic: bool) {
        let keyword = if dynamic {
            "dynamic reference"
        } else {
            "reference"
        };
        let place = self.graph.nodes[from].pointer.clone();
        let Some(fragment) = self.own_fragment(reference) else {
            self.graph.problems.push(CompileProblem::new(
                place,
                CompileCode::RemoteReference,
                format!("the {keyword} {reference:?} leaves the document; copy its target under `$defs` and refer to `#/$defs/...`"),
            ));
            return;
        };
        let fragment = percent_decode(fragment);
        let targets = if fragment.is_empty() {
            vec![0]
        } else if fragment.starts_with('/') {
            if self.document.pointer(&fragment).is_some() {
                vec![self.node(fragment)]
            } else {
                Vec::new()
            }
        } else {
            self.anchors.get(&fragment).cloned().unwrap_or_default()
        };
        if targets.is_empty() {
            self.graph.problems.push(CompileProblem::new(
                place,
                CompileCode::BrokenReference,
                format!("the {keyword} {reference:?} points at nothing in this document; correct it or add its target"),
            ));
        }
        for target in targets {
            self.same_value_as(from, target, true);
        }
    }

    /// Returns the fragment of a reference into this document.
    fn own_fragment<'r>(&self, reference: &'r str) -> Option<&'r str> {
        if let Some(fragment) = reference.strip_prefix('#') {
            return Some(fragment);
        }
        let own = self
            .document
            .get("$id")
            .or_else(|| self.document.get("id"))?
            .as_str()?
            .trim_end_matches('#');
        let rest = reference.strip_prefix(own)?;
        if rest.is_empty() {
            Some("")
        } else {
            rest.strip_prefix('#')
        }
    }
}

/// Undoes percent-encoding; invalid sequences stay unchanged.
fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(hex.unwrap_or(bytes[at]));
        at += if hex.is_some() { 3 } else { 1 };
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}
