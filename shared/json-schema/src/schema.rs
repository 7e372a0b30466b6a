//! The compiled form of a schema.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use jsonschema::{PatternOptions, ValidationError, ValidationOptions, Validator};
use serde_json::{Value, json};

use crate::compile_error::{CompileCode, CompileErrors, CompileProblem};
use crate::cost::Cost;
use crate::defaults::{self, DefaultsError};
use crate::explain::Explainer;
use crate::graph::Graph;
use crate::limits::CompileOptions;
use crate::names::nearest_names;
use crate::part::{self, SchemaPart};
use crate::precheck;
use crate::violation::{Violation, ViolationCode, cut, join_pointer};

/// Breaches of the JSON Schema draft listed in one answer.
const MOST_BREACHES: usize = 16;

/// Above this estimate an invalid instance is answered with its first violation only, because all
/// of them at once could fill the memory.
const EXPLAINED_WORK: u64 = 1_000_000;

/// A schema, compiled once and used many times; cloning is cheap.
///
/// ```
/// use serde_json::json;
/// let schema = json_schema::Schema::compile_parameters(&json!({
///     "type": "object",
///     "properties": {"player_id": {"type": "string"}},
///     "required": ["player_id"]
/// }))?;
/// let violations = schema.validate(&json!({"playerId": "player123"}));
/// assert_eq!(violations[0].message, "Unknown parameter 'playerId', did you mean 'player_id'?");
/// # Ok::<(), json_schema::CompileErrors>(())
/// ```
#[derive(Clone)]
pub struct Schema {
    inner: Arc<Inner>,
}

struct Inner {
    source: Value,
    validator: Validator,
    graph: Graph,
    cost: Cost,
    options: CompileOptions,
    parameter_names: Vec<String>,
    /// Every pattern by its text, compiled when the first name is matched.
    patterns: OnceLock<HashMap<String, Validator>>,
    /// Whether keys that the schema does not name are refused at the root.
    closed: bool,
}

impl Schema {
    /// Compiles a schema with the default options.
    ///
    /// # Errors
    ///
    /// Fails with every problem found: broken rules of the draft, references out of the document,
    /// patterns that need backtracking, and anything over [`crate::Limits`].
    pub fn compile(schema: &Value) -> Result<Self, CompileErrors> {
        Self::compile_with(schema, CompileOptions::default())
    }

    /// Compiles the schema of a call's parameters: an object whose unknown keys are refused (see
    /// [`CompileOptions::closed_root`]).
    ///
    /// # Errors
    ///
    /// As [`Schema::compile`], and where the schema does not describe an object.
    pub fn compile_parameters(schema: &Value) -> Result<Self, CompileErrors> {
        Self::compile_with(
            schema,
            CompileOptions {
                closed_root: true,
                ..CompileOptions::default()
            },
        )
    }

    /// Compiles a schema.
    ///
    /// # Errors
    ///
    /// As [`Schema::compile`].
    pub fn compile_with(schema: &Value, options: CompileOptions) -> Result<Self, CompileErrors> {
        let (graph, cost) = precheck::check(schema, &options)?;
        check_draft(schema)?;
        let validator =
            build(schema, &options).map_err(|error| precheck::one(build_problem(&error)))?;
        let parameter_names = graph.known_names(0);
        let root = graph.same_value(0);
        let names_any = root.iter().any(|id| graph.nodes[*id].names_properties);
        let opens = root.iter().any(|id| graph.nodes[*id].opens_itself);
        let closed = options.closed_root && names_any && !opens;
        Ok(Self {
            inner: Arc::new(Inner {
                source: schema.clone(),
                validator,
                graph,
                cost,
                options,
                parameter_names,
                patterns: OnceLock::new(),
                closed,
            }),
        })
    }

    /// Returns the schema as it was given.
    pub fn source(&self) -> &Value {
        &self.inner.source
    }

    /// Returns the property names that the root knows, in schema order.
    pub fn parameter_names(&self) -> &[String] {
        &self.inner.parameter_names
    }

    /// Returns whether a property name matches a pattern of this schema, a key of
    /// `patternProperties`, as it does in [`Schema::validate`].
    pub fn name_matches(&self, pattern: &str, name: &str) -> bool {
        let inner = &self.inner;
        let patterns = inner.patterns.get_or_init(|| {
            let compiled = inner.graph.patterns.iter().filter_map(|(text, _)| {
                let alone = json!({"pattern": text});
                Some((text.clone(), build(&alone, &inner.options).ok()?))
            });
            compiled.collect()
        });
        let pattern = patterns.get(pattern);
        pattern.is_some_and(|pattern| pattern.is_valid(&Value::String(name.to_owned())))
    }

    /// Compiles the part at a JSON pointer into the schema; `None` where there is none.
    pub fn part(&self, pointer: &str) -> Option<SchemaPart> {
        part::compile(&self.inner.source, pointer, options(&self.inner.options))
    }

    /// Returns whether a value meets a part of this schema. Returns `false` where the check could
    /// take more work than the limits allow.
    pub fn part_is_valid(&self, part: &SchemaPart, instance: &Value) -> bool {
        self.inner.estimate(instance).is_ok() && part.validator.is_valid(instance)
    }

    /// Returns whether the instance meets the schema.
    pub fn is_valid(&self, instance: &Value) -> bool {
        let inner = &self.inner;
        inner.estimate(instance).is_ok()
            && inner.unknown_at_root(instance).next().is_none()
            && inner.validator.is_valid(instance)
    }

    /// Returns all violations of the instance, an empty list if there are none.
    ///
    /// A missing parameter is not reported if a misspelled parameter obviously means it, so
    /// that one mistake is one violation.
    pub fn validate(&self, instance: &Value) -> Vec<Violation> {
        let inner = &self.inner;
        let work = match inner.estimate(instance) {
            Ok(work) => work,
            Err(violation) => return vec![*violation],
        };
        let mut violations: Vec<Violation> = inner
            .unknown_at_root(instance)
            .map(|name| inner.unknown(instance, name))
            .collect();
        if !inner.validator.is_valid(instance) {
            let explainer = Explainer::new(
                &inner.source,
                &inner.graph,
                instance,
                inner.options.limits.violations,
            );
            if work > EXPLAINED_WORK {
                violations.extend(
                    inner
                        .validator
                        .validate(instance)
                        .err()
                        .into_iter()
                        .flat_map(|error| explainer.explain(&error)),
                );
            } else {
                violations.extend(explainer.explain_all(inner.validator.iter_errors(instance)));
            }
        }
        drop_explained(&mut violations);
        violations.truncate(inner.options.limits.violations);
        violations
    }

    /// Returns the instance without the members that are null where null is refused, as null means
    /// left out; `None` where the rest does not meet the schema either.
    pub fn without_nulls(&self, instance: &Value) -> Option<Value> {
        let mut rest = instance.clone();
        for violation in self.validate(instance) {
            if violation.code == ViolationCode::UnknownParameter {
                return None;
            }
            let (parent, name) = violation.pointer.rsplit_once('/')?;
            let name = name.replace("~1", "/").replace("~0", "~");
            let members = rest.pointer_mut(parent)?.as_object_mut()?;
            members.get(&name).filter(|value| value.is_null())?;
            members.remove(&name);
        }
        self.is_valid(&rest).then_some(rest)
    }

    /// Fills in the defaults of absent properties, at every depth that the instance has, and
    /// returns the JSON pointers of the filled values. Call it after [`Schema::validate`].
    ///
    /// # Errors
    ///
    /// Fails when the defaults would outgrow [`crate::Limits`]; then the instance is unchanged.
    pub fn apply_defaults(&self, instance: &mut Value) -> Result<Vec<String>, DefaultsError> {
        defaults::apply(
            &self.inner.source,
            &self.inner.graph,
            &self.inner.options.limits,
            instance,
        )
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Schema")
            .field("source", &self.inner.source)
            .finish_non_exhaustive()
    }
}

impl Inner {
    /// Bounds the work that the instance can cause, or refuses it.
    fn estimate(&self, instance: &Value) -> Result<u64, Box<Violation>> {
        let deepest = self.cost.deepest();
        let Some((depth, values)) = precheck::measure(instance, deepest) else {
            return Err(refused(
                ViolationCode::TooDeep,
                format!(
                    "The arguments are nested deeper than {deepest} levels, which this schema allows at most; flatten them."
                ),
                format!("at most {deepest} levels"),
            ));
        };
        let work = self.cost.of(depth, values);
        if work > self.options.limits.work {
            return Err(refused(
                ViolationCode::TooLarge,
                format!(
                    "The arguments hold {values} values, too many to check against this schema at once; send fewer."
                ),
                "fewer values".to_owned(),
            ));
        }
        Ok(work)
    }

    fn unknown_at_root<'a>(&'a self, instance: &'a Value) -> impl Iterator<Item = &'a str> {
        let members = if self.closed {
            instance.as_object()
        } else {
            None
        };
        let keys = members.into_iter().flat_map(|members| members.keys());
        keys.filter(|key| !self.parameter_names.contains(key))
            .map(String::as_str)
            .take(self.options.limits.violations)
    }

    fn unknown(&self, instance: &Value, name: &str) -> Violation {
        let absent = self
            .parameter_names
            .iter()
            .filter(|known| instance.get(known.as_str()).is_none());
        let suggestions = nearest_names(name, absent.map(String::as_str));
        crate::explain::unknown_parameter(
            "",
            name,
            instance.get(name),
            suggestions,
            &self.parameter_names,
            "additionalProperties",
        )
    }
}

fn refused(code: ViolationCode, message: String, expected: String) -> Box<Violation> {
    Box::new(Violation {
        pointer: String::new(),
        code,
        keyword: String::new(),
        message,
        expected,
        received: String::new(),
        suggestions: Vec::new(),
    })
}

/// Compiles a schema whose price is known.
fn build(schema: &Value, options: &CompileOptions) -> Result<Validator, ValidationError<'static>> {
    self::options(options).build(schema)
}

fn options<'r>(options: &CompileOptions) -> ValidationOptions<'r> {
    let bytes = options.limits.pattern_compiled_bytes;
    let patterns = PatternOptions::regex()
        .size_limit(bytes)
        .dfa_size_limit(bytes);
    jsonschema::options()
        .offline()
        .with_pattern_options(patterns)
        .should_validate_formats(options.assert_formats)
}

/// Drops the missing parameters whose misspelled form is reported already.
fn drop_explained(violations: &mut Vec<Violation>) {
    let stood_for: Vec<String> = violations
        .iter()
        .filter(|violation| violation.code == ViolationCode::UnknownParameter)
        .filter_map(|violation| {
            violation
                .suggestions
                .first()
                .map(|name| join_pointer(violation.parent(), name))
        })
        .collect();
    violations.retain(|violation| {
        violation.code != ViolationCode::MissingParameter || !stood_for.contains(&violation.pointer)
    });
}

/// Checks the schema by the meta-schema of its draft.
fn check_draft(schema: &Value) -> Result<(), CompileErrors> {
    let meta = jsonschema::meta::validator_for(schema).map_err(|_| {
        precheck::one(CompileProblem::new(
            "/$schema",
            CompileCode::InvalidSchema,
            "the draft is unknown; use \"https://json-schema.org/draft/2020-12/schema\" or leave `$schema` out",
        ))
    })?;
    let mut problems: Vec<CompileProblem> = Vec::new();
    // The meta-schema consists of vocabularies, and each of them reports a breach of its own.
    for error in meta.iter_errors(schema) {
        let problem = build_problem(&error);
        if !problems.contains(&problem) {
            problems.push(problem);
        }
        if problems.len() == MOST_BREACHES {
            break;
        }
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(CompileErrors { problems })
    }
}

fn build_problem(error: &ValidationError<'_>) -> CompileProblem {
    let pointer = error.instance_path().as_str();
    let said = cut(&error.to_string(), 300);
    if said.ends_with("is not a \"regex\"") {
        let message = format!(
            "{said}; correct the pattern (linear-time syntax, without look-around and back-references) or make it smaller"
        );
        return CompileProblem::new(pointer, CompileCode::PatternTooComplex, message);
    }
    CompileProblem::new(
        pointer,
        CompileCode::InvalidSchema,
        format!("{said}; correct the schema"),
    )
}

#[cfg(test)]
mod tests;
