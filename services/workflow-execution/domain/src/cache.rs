//! The `cache` settings of a node: whether its result may be reused, its lifetime and its scope
//! (rule W45).

use std::time::Duration;

use call_outcome::Violation;
use serde_json::Value;

use super::duration::read_duration;
use super::node_definition::{NodeDefinition, Reuse};
use json_schema::pointer::join;

/// The key in `execution`.
pub const CACHE: &str = "cache";

const KEYS: [&str; 3] = ["mode", "ttl", "scope"];

/// The use of the cache by a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// It reuses a result, or stores its own.
    #[default]
    ReadWrite,
    /// It reuses a result and stores none.
    Read,
    /// It runs and stores its result.
    Refresh,
}

/// The nodes that share their results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheScope {
    /// The nodes of one run.
    Run,
    /// The nodes of all runs of one stored workflow.
    #[default]
    Workflow,
    /// The nodes of all runs.
    Tenant,
}

/// The settings of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// The use of the cache.
    pub mode: CacheMode,
    /// The greatest age of a result; none for any age.
    pub ttl: Option<Duration>,
    /// The nodes that share their results.
    pub scope: CacheScope,
}

impl CacheSettings {
    /// Reads the settings; none where they switch the cache off.
    ///
    /// # Errors
    /// All problems with them, below `pointer`.
    pub fn read(settings: &Value, pointer: &str) -> Result<Option<Self>, Vec<Violation>> {
        let out_of_range = |key: &str, expected: &str| {
            let message = format!("expected {expected}");
            Violation::new(join(pointer, key), "out_of_range", message)
        };
        let Some(fields) = settings.as_object() else {
            let message = "expected an object";
            return Err(vec![Violation::new(pointer, "out_of_range", message)]);
        };
        let mut violations: Vec<Violation> = fields
            .keys()
            .filter(|key| !KEYS.contains(&key.as_str()))
            .map(|key| {
                let message = format!("there is no setting `{key}`");
                Violation::new(join(pointer, key), "unknown_setting", message).nearest(key, KEYS)
            })
            .collect();
        let mode = match fields.get("mode").map(Value::as_str) {
            None | Some(Some("read_write")) => Some(CacheMode::ReadWrite),
            Some(Some("read")) => Some(CacheMode::Read),
            Some(Some("refresh")) => Some(CacheMode::Refresh),
            Some(Some("off")) => None,
            Some(_) => {
                let expected = "`read_write`, `read`, `refresh` or `off`";
                violations.push(out_of_range("mode", expected));
                None
            }
        };
        let scope = match fields.get("scope").map(Value::as_str) {
            None | Some(Some("workflow")) => CacheScope::Workflow,
            Some(Some("run")) => CacheScope::Run,
            Some(Some("tenant")) => CacheScope::Tenant,
            Some(_) => {
                violations.push(out_of_range("scope", "`run`, `workflow` or `tenant`"));
                CacheScope::Workflow
            }
        };
        let ttl = fields.get("ttl").and_then(read_duration);
        if fields.contains_key("ttl") && ttl.is_none() {
            let expected = "a number of seconds above 0, or a text such as `90s`, `5m`, `2h` or `7d`, \
                            at most 366 days";
            violations.push(out_of_range("ttl", expected));
        }
        match violations.is_empty() {
            true => Ok(mode.map(|mode| Self { mode, ttl, scope })),
            false => Err(violations),
        }
    }

    /// Checks that results of nodes of a type may be reused as the settings state. `pointer` points
    /// at the settings.
    ///
    /// # Errors
    /// They may not.
    pub fn check(&self, definition: &NodeDefinition, pointer: &str) -> Result<(), Vec<Violation>> {
        let full_type = &definition.full_type;
        let violation = match definition.reuse {
            Reuse::Reads if self.ttl.is_none() => {
                let message = format!("results of {full_type} grow old: say for how long in `ttl`");
                Violation::new(join(pointer, "ttl"), "missing", message)
            }
            Reuse::Never => {
                let message = format!("results of {full_type} are never reused");
                Violation::new(pointer, "not_cacheable", message)
            }
            Reuse::Reads | Reuse::Deterministic => return Ok(()),
        };
        Err(vec![violation])
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn w45_settings_are_read_with_their_defaults() {
        let read = |settings| CacheSettings::read(&settings, "").unwrap();
        let default = CacheSettings {
            mode: CacheMode::ReadWrite,
            ttl: None,
            scope: CacheScope::Workflow,
        };
        assert_eq!(read(json!({})), Some(default));
        assert_eq!(read(json!({"mode": "off", "ttl": 5})), None);
        let given = CacheSettings {
            mode: CacheMode::Refresh,
            ttl: Some(Duration::from_secs(300)),
            scope: CacheScope::Tenant,
        };
        let settings = json!({"mode": "refresh", "ttl": "5m", "scope": "tenant"});
        assert_eq!(read(settings), Some(given));
    }

    #[test]
    fn w45_everything_that_is_wrong_is_named() {
        let settings = json!({"mode": "on", "ttl": 0, "scope": "all", "time": 3});
        let wrong = CacheSettings::read(&settings, "/cache").unwrap_err();
        let mut named: Vec<_> = wrong
            .iter()
            .map(|violation| (violation.pointer.as_str(), &*violation.code))
            .collect();
        named.sort_unstable();
        let expected = [
            ("/cache/mode", "out_of_range"),
            ("/cache/scope", "out_of_range"),
            ("/cache/time", "unknown_setting"),
            ("/cache/ttl", "out_of_range"),
        ];
        assert_eq!(named, expected);
        assert!(CacheSettings::read(&json!(true), "").is_err());
    }
}
