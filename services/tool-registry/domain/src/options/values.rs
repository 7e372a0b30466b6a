//! Values of options: reading, states, and the document for scripts.

use std::fmt;

use call_outcome::Violation;
use json_schema::pointer::join;
use serde_json::{Map, Value};

use super::{
    check,
    kind::{OptionDeclaration, OptionKind, OptionScope},
};
use crate::permissions::{PermissionKind, PermissionState};

/// Values of the options of one plugin that keep all bounds. `Debug` shows keys only, as values may
/// be secrets.
#[derive(Clone, Default, PartialEq)]
pub struct OptionValues {
    by_key: Map<String, Value>,
}

/// The state of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionState {
    /// It has a value.
    Set,
    /// It has its default.
    Default,
    /// It has no value and needs none.
    Unset,
    /// It has no value and needs one, so the plugin's tools are held.
    Missing,
}

impl OptionState {
    /// Returns the state in the words of plans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Default => "default",
            Self::Unset => "not set",
            Self::Missing => "missing, required: the plugin's tools are held until it is set",
        }
    }
}

impl fmt::Debug for OptionValues {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.by_key.keys()).finish()
    }
}

impl OptionValues {
    /// Reads the values that a layer sets, each under its whole key or under its name. Null means
    /// left out.
    ///
    /// # Errors
    /// All problems: unknown and repeated keys, options that the layer may not set, and values that
    /// break a bound, each with a JSON pointer into `written`. Required options may be missing.
    pub fn read(
        declared: &[OptionDeclaration],
        written: &Map<String, Value>,
        scope: OptionScope,
    ) -> Result<Self, Vec<Violation>> {
        let mut wrong = Vec::new();
        let mut by_key = Map::new();
        for (key, value) in written {
            let pointer = join("", key);
            let option = match find(declared, key) {
                Ok(option) => option,
                Err(violation) => {
                    wrong.push(*violation);
                    continue;
                }
            };
            if !option.scopes.contains(&scope) {
                let message = format!(
                    "is set by the {} only; set it there",
                    option
                        .scopes
                        .iter()
                        .map(|scope| scope.as_str())
                        .collect::<Vec<_>>()
                        .join(" or the ")
                );
                wrong.push(Violation::new(pointer.clone(), "wrong_scope", message));
            }
            if by_key.contains_key(&option.key) {
                let message = format!("{} is written twice; remove one", option.key);
                wrong.push(Violation::new(pointer.clone(), "repeated", message));
            }
            if !value.is_null() {
                wrong.append(&mut check::problems(&option.kind, value, &pointer));
                by_key.insert(option.key.clone(), value.clone());
            }
        }
        match wrong.is_empty() {
            true => Ok(Self { by_key }),
            false => Err(wrong),
        }
    }

    /// Reads stored values against the options of another version of the plugin: a value of an option
    /// that is gone, or that breaks a new bound, is left out. Returns a problem for each of the latter.
    pub fn carried_over(
        declared: &[OptionDeclaration],
        stored: &Map<String, Value>,
    ) -> (Self, Vec<Violation>) {
        let mut wrong = Vec::new();
        let mut by_key = Map::new();
        for (key, value) in stored {
            let Ok(option) = find(declared, key) else {
                continue;
            };
            let mut problems = check::problems(&option.kind, value, &join("", key));
            if problems.is_empty() && !value.is_null() {
                by_key.insert(option.key.clone(), value.clone());
            }
            wrong.append(&mut problems);
        }
        (Self { by_key }, wrong)
    }

    /// Returns all values by whole key, secrets included: to store them.
    pub fn stored(&self) -> &Map<String, Value> {
        &self.by_key
    }

    /// Returns the value of an option or its default, to show it; none if it has none, and always
    /// none for a secret.
    pub fn shown<'a>(&'a self, option: &'a OptionDeclaration) -> Option<&'a Value> {
        match option.kind.is_secret() {
            true => None,
            false => self.in_force(option),
        }
    }

    /// Returns the state of an option.
    pub fn state(&self, option: &OptionDeclaration) -> OptionState {
        match (self.by_key.contains_key(&option.key), &option.default) {
            (true, _) => OptionState::Set,
            (false, Some(_)) => OptionState::Default,
            (false, None) if option.required => OptionState::Missing,
            (false, None) => OptionState::Unset,
        }
    }

    /// Returns the required options without a value. While there is one, the plugin's tools answer
    /// `plugin_not_configured`.
    pub fn missing<'a>(
        &self,
        declared: &'a [OptionDeclaration],
    ) -> impl Iterator<Item = &'a OptionDeclaration> {
        declared
            .iter()
            .filter(|option| self.state(option) == OptionState::Missing)
    }

    /// Returns the document that scripts read: each option under its name, defaults filled in,
    /// options without a value left out. Secrets are in it.
    pub fn document(&self, declared: &[OptionDeclaration]) -> Value {
        let members = declared.iter().filter_map(|option| {
            let value = self.in_force(option)?;
            Some((option.name.clone(), value.clone()))
        });
        Value::Object(members.collect())
    }

    /// Returns the digest of the document, with its `sha256:`, which the entry of a call records.
    pub fn digest(&self, declared: &[OptionDeclaration]) -> String {
        let digest = canonical_json::digest(&self.document(declared));
        format!("sha256:{}", hex::encode(digest))
    }

    fn in_force<'a>(&'a self, option: &'a OptionDeclaration) -> Option<&'a Value> {
        self.by_key.get(&option.key).or(option.default.as_ref())
    }
}

impl OptionDeclaration {
    /// Returns the reason for which an install with this option is refused: secrets do not work yet.
    pub fn refusal(&self) -> Option<Violation> {
        let OptionKind::Secret { secret } = &self.kind else {
            return None;
        };
        let not_yet = PermissionKind::Secrets.state() == PermissionState::NotYet;
        not_yet.then(|| {
            let message = format!(
                "the option {} is the secret {secret}, and the permission secrets cannot be granted yet; \
                 remove the option from the manifest",
                self.key
            );
            let place = format!("{}/type", self.pointer);
            Violation::new(place, "permission_not_yet", message)
        })
    }
}

/// Finds an option by its whole key or by its name.
pub(super) fn find<'a>(
    declared: &'a [OptionDeclaration],
    written: &str,
) -> Result<&'a OptionDeclaration, Box<Violation>> {
    let named = |option: &&OptionDeclaration| option.key == written || option.name == written;
    declared.iter().find(named).ok_or_else(|| {
        let shown = json_schema::violation::cut(written, 80);
        let message = match declared.is_empty() {
            true => format!("there is no option '{shown}'; the plugin has none"),
            false => {
                let keys: Vec<&str> = declared.iter().map(|option| &*option.key).collect();
                format!(
                    "there is no option '{shown}'; take one of {}",
                    keys.join(", ")
                )
            }
        };
        let violation = Violation::new(join("", written), "unknown_option", message);
        let keys = declared.iter().map(|option| option.key.as_str());
        Box::new(violation.nearest(written, keys))
    })
}
