//! The parts that a result depends on, and the key that follows from them (rule W46).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::data_flow::Input;
use super::execution::EXECUTION;
use super::plan::PlanNode;

/// The most differences that are named.
const MAX_CHANGED: usize = 32;

/// The name of a result: the SHA-256 of all parts that it depends on, and of its scope.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq, PartialOrd, Ord)]
pub struct CacheKey(pub [u8; 32]);

/// The parts that a result depends on: the first bytes of a digest of each, by the name of the
/// part.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyParts(BTreeMap<String, [u8; 16]>);

impl KeyParts {
    /// Collects the parts that the result of a node depends on, without its tools.
    pub fn of(node: &PlanNode, inputs: &[Option<Input<'_>>], conversation_id: &str) -> Self {
        let mut parts = Self::default();
        let definition = node.definition();
        // A type of the engine changes with the engine, and one of a plugin with its package.
        let version = match &definition.plugin {
            Some(plugin) => &plugin.package_digest,
            None => env!("CARGO_PKG_VERSION"),
        };
        parts.add("type", &format!("{} {version}", definition.full_type));
        let config = node.config.iter().filter(|(key, _)| *key != EXECUTION);
        let config: Map<String, Value> = config.map(|(k, v)| (k.clone(), v.clone())).collect();
        parts.add("config", &canonical_json::to_string(&Value::Object(config)));
        if !conversation_id.is_empty() {
            parts.add("conversation", conversation_id);
        }
        for (slot, value) in node.own_shape.inputs.iter().zip(inputs) {
            if let Some(value) = value {
                let name = format!("inputs.{}", slot.key);
                parts.add(&name, &canonical_json::to_string(value));
            }
        }
        parts
    }

    /// Adds a tool whose output the result depends on.
    pub fn add_tool(&mut self, tool_id: &str, etag: &str) {
        self.add(&format!("tool.{tool_id}"), etag);
    }

    fn add(&mut self, name: &str, text: &str) {
        let digest = canonical_json::digest_of_parts([text.as_bytes()]);
        let mut short = [0; 16];
        short.copy_from_slice(&digest[..16]);
        self.0.insert(name.to_owned(), short);
    }

    /// Returns the key of the result in a scope.
    pub fn key(&self, scope: &str) -> CacheKey {
        let parts = self
            .0
            .iter()
            .flat_map(|(name, digest)| [name.as_bytes(), &digest[..]]);
        CacheKey(canonical_json::digest_of_parts(
            [scope.as_bytes()].into_iter().chain(parts),
        ))
    }

    /// Returns the names of the parts that have changed.
    pub fn changed_since(&self, before: &Self) -> Vec<String> {
        let differs = |name: &&String| self.0.get(*name) != before.0.get(*name);
        let gone = before.0.keys().filter(|name| !self.0.contains_key(*name));
        let mut changed: Vec<String> = self.0.keys().chain(gone).filter(differs).cloned().collect();
        changed.sort_unstable();
        changed.truncate(MAX_CHANGED);
        changed
    }

    /// Writes the parts as a text that [`KeyParts::from_text`] reads.
    pub fn to_text(&self) -> String {
        let of =
            |(name, digest): (&String, &[u8; 16])| (name.clone(), Value::from(hex::encode(digest)));
        Value::Object(self.0.iter().map(of).collect()).to_string()
    }

    /// Reads parts; none if [`KeyParts::to_text`] did not write the text.
    pub fn from_text(text: &str) -> Option<Self> {
        let fields: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
        let digest = |(name, digest): (String, String)| {
            let mut short = [0; 16];
            hex::decode_to_slice(digest, &mut short).ok()?;
            Some((name, short))
        };
        fields
            .into_iter()
            .map(digest)
            .collect::<Option<_>>()
            .map(Self)
    }
}

/// Returns the name of a node of a workflow, by which its last result is found.
pub fn node_name(scope: &str, path: &str) -> CacheKey {
    CacheKey(canonical_json::digest_of_parts([
        scope.as_bytes(),
        path.as_bytes(),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(of: &[(&str, &str)]) -> KeyParts {
        let mut parts = KeyParts::default();
        for (name, text) in of {
            parts.add(name, text);
        }
        parts
    }

    #[test]
    fn w46_equal_parts_have_one_key_and_any_other_part_or_scope_has_another() {
        let given = [("type", "a"), ("inputs.x", "1")];
        let key = parts(&given).key("run");
        assert_eq!(key, parts(&[given[1], given[0]]).key("run"));
        for (other, scope) in [
            (parts(&[("type", "a"), ("inputs.x", "2")]), "run"),
            (parts(&[("type", "a"), ("inputs.y", "1")]), "run"),
            (parts(&[("type", "a")]), "run"),
            (parts(&given), "tenant"),
        ] {
            assert_ne!(key, other.key(scope), "{other:?} {scope}");
        }
    }

    #[test]
    fn w47_differences_are_named_also_of_parts_read_back() {
        let before = parts(&[("type", "a"), ("inputs.x", "1"), ("inputs.gone", "1")]);
        let before = KeyParts::from_text(&before.to_text()).unwrap();
        let now = parts(&[("type", "a"), ("inputs.x", "2"), ("inputs.new", "1")]);
        let changed = now.changed_since(&before);
        assert_eq!(changed, ["inputs.gone", "inputs.new", "inputs.x"]);
        assert!(now.changed_since(&now).is_empty());
        assert_eq!(KeyParts::from_text("{\"type\":\"zz\"}"), None);
    }
}
