//! Explains a value that fits none of the alternatives of `anyOf` or `oneOf`.
//!
//! Listing every error of every alternative would drown the error that matters. So: alternatives
//! that differ only in type or in listed values are merged into one requirement; where the value
//! clearly is meant to be one of the alternatives, the violations of this alternative are reported;
//! otherwise each alternative is summed up in a few words.

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind;

use super::{Explainer, LONGEST_EXPECTED, quoted, received, requirement};
use crate::names::nearest_names;
use crate::violation::{Violation, ViolationCode, cut};

/// Alternatives summed up in one message.
const MOST_SUMMED_UP: usize = 4;

impl Explainer<'_> {
    pub(super) fn no_variant(
        &self,
        error: &ValidationError<'_>,
        context: &[Vec<ValidationError<'static>>],
        depth: usize,
    ) -> Vec<Violation> {
        let pointer = error.instance_path().as_str();
        if let Some(merged) = self.merged(error, context) {
            return vec![merged];
        }
        let likely: Vec<&Vec<ValidationError<'static>>> = context
            .iter()
            .filter(|branch| {
                !branch.is_empty() && !branch.iter().any(|inner| is_other_kind(inner, pointer))
            })
            .collect();
        if let [only] = likely[..] {
            return only
                .iter()
                .take(self.most)
                .flat_map(|inner| self.explain_at(inner, depth + 1))
                .collect();
        }
        vec![self.summed_up(error, context, depth)]
    }

    /// Merges alternatives that each require only a type or a listed value at this very place.
    fn merged(
        &self,
        error: &ValidationError<'_>,
        context: &[Vec<ValidationError<'static>>],
    ) -> Option<Violation> {
        let pointer = error.instance_path().as_str();
        let mut expected: Vec<String> = Vec::new();
        let mut values: Vec<&str> = Vec::new();
        let mut code = ViolationCode::TypeMismatch;
        for branch in context {
            let [only] = branch.as_slice() else {
                return None;
            };
            if only.instance_path().as_str() != pointer {
                return None;
            }
            let (inner, wanted) = requirement(only);
            match only.kind() {
                ValidationErrorKind::Type { .. } => {}
                ValidationErrorKind::Enum { options } => {
                    values.extend(
                        options
                            .as_array()
                            .into_iter()
                            .flatten()
                            .filter_map(serde_json::Value::as_str),
                    );
                    code = inner;
                }
                ValidationErrorKind::Constant { expected_value } => {
                    values.extend(expected_value.as_str());
                    code = inner;
                }
                _ => return None,
            }
            if !expected.contains(&wanted) {
                expected.push(wanted);
            }
        }
        let given = error.instance();
        let suggestions = given
            .as_str()
            .map(|text| nearest_names(text, values))
            .unwrap_or_default();
        let expected = cut(&expected.join(" or "), LONGEST_EXPECTED);
        let shown = received(given);
        let meant = suggestions
            .first()
            .map(|first| format!(" Did you mean '{first}'?"))
            .unwrap_or_default();
        Some(Violation {
            pointer: pointer.to_owned(),
            code,
            keyword: error.kind().keyword().to_owned(),
            message: format!(
                "Invalid value for {}: expected {expected}, received {shown}.{meant}",
                quoted(pointer)
            ),
            expected,
            received: shown,
            suggestions,
        })
    }

    fn summed_up(
        &self,
        error: &ValidationError<'_>,
        context: &[Vec<ValidationError<'static>>],
        depth: usize,
    ) -> Violation {
        let pointer = error.instance_path().as_str();
        let mut forms: Vec<String> = context
            .iter()
            .take(MOST_SUMMED_UP)
            .enumerate()
            .filter_map(|(index, branch)| {
                let first = branch
                    .iter()
                    .flat_map(|inner| self.explain_at(inner, depth + 1))
                    .next()?;
                Some(format!(
                    "alternative {}: {}",
                    index + 1,
                    first.message.trim_end_matches('.')
                ))
            })
            .collect();
        if context.len() > MOST_SUMMED_UP {
            forms.push(format!("and {} more", context.len() - MOST_SUMMED_UP));
        }
        let expected = format!("one of {} alternatives", context.len());
        Violation {
            pointer: pointer.to_owned(),
            code: ViolationCode::NoVariant,
            keyword: error.kind().keyword().to_owned(),
            message: cut(
                &format!(
                    "Invalid value for {}: it fits none of {} alternatives ({}).",
                    quoted(pointer),
                    context.len(),
                    forms.join("; ")
                ),
                1_000,
            ),
            expected,
            received: received(error.instance()),
            suggestions: Vec::new(),
        }
    }
}

/// Returns whether the error means that the value is of another kind: another type at the place of
/// the alternatives, or another value at a key one level below, by which alternatives
/// differ.
fn is_other_kind(inner: &ValidationError<'_>, pointer: &str) -> bool {
    let place = inner.instance_path().as_str();
    let below = place.strip_prefix(pointer).unwrap_or(place);
    match inner.kind() {
        ValidationErrorKind::Type { .. } => below.is_empty(),
        ValidationErrorKind::Enum { .. } | ValidationErrorKind::Constant { .. } => {
            below.matches('/').count() <= 1
        }
        _ => false,
    }
}
