//! Data-driven conformance cases and their runner.
//!
//! A case is a directory `fixtures/calls/<dialect>/{ok,err,inert}/<case>/` with `input.txt`, the
//! text of a model, and `expected.json`, its meaning. The tools of all cases are in
//! `fixtures/calls/catalogue.json`. Fields that `expected.json` leaves out are not compared.

pub mod families;
pub mod mutation;
pub mod pieces;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use call_catalogue::{Catalogue, Tool};
use call_text::{Call, FinishReason, Parsed, Policy};
use serde::Deserialize;
use serde_json::{Map, Value};

/// A case with its input.
#[derive(Debug, Clone)]
pub struct Case {
    /// `<dialect>/<outcome>/<case>`.
    pub name: String,
    /// The text of the model.
    pub input: String,
    /// The expected reading.
    pub expected: Expected,
}

/// The expected reading of a message. Absent fields are not compared, except that a case without
/// `calls` expects none.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The rules of the rule book that the case covers.
    pub rules: Vec<String>,
    /// The policy, defaults filled in.
    #[serde(default)]
    pub policy: Policy,
    /// The reason why the model stopped.
    #[serde(default)]
    pub finish: FinishReason,
    /// The detected dialect.
    pub dialect: Option<String>,
    /// The text before the first block.
    pub response_text: Option<String>,
    /// The text after it.
    pub trailing_text: Option<String>,
    /// Every call, in order.
    #[serde(default)]
    pub calls: Vec<ExpectedCall>,
    /// Problem codes of the blocks, in order.
    pub block_problems: Option<Vec<String>>,
    /// `rule:code` of remarks that must be there.
    #[serde(default)]
    pub diagnostics: Vec<String>,
    /// The exact feedback for the model.
    pub observation: Option<String>,
    /// Block-wide controls.
    pub controls: Option<Map<String, Value>>,
}

/// One call.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedCall {
    /// The tool's id.
    pub tool: String,
    /// The typed arguments; compared byte for byte, order aside.
    pub arguments: Option<Value>,
    /// Whether it may run by itself.
    pub ready: bool,
    /// `code` or `code:path` of every problem, in order; none if absent.
    #[serde(default)]
    pub problems: Vec<String>,
    /// `rule:code` of every tolerance, in order, if given.
    pub tolerances: Option<Vec<String>>,
    /// Whether a confirmation is required, if given.
    pub confirm: Option<bool>,
    /// Selected control fields, if given: step, continue_on_error, retries, uris, no_reply, metadata.
    pub control: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CatalogueFile {
    tools: Vec<Tool>,
    hidden: Vec<String>,
}

/// Returns the directory of the cases.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/calls")
}

/// The tools that all cases may call.
pub fn catalogue() -> Result<Catalogue> {
    // Property tests request it thousands of times.
    static READ: OnceLock<Catalogue> = OnceLock::new();
    if let Some(catalogue) = READ.get() {
        return Ok(catalogue.clone());
    }
    let path = fixtures().join("catalogue.json");
    let file: CatalogueFile = serde_json::from_str(&fs::read_to_string(&path)?)
        .with_context(|| path.display().to_string())?;
    let catalogue = Catalogue::new(file.tools, file.hidden)?;
    Ok(READ.get_or_init(|| catalogue).clone())
}

/// All cases, sorted by name.
pub fn cases() -> Result<Vec<Case>> {
    let root = fixtures();
    let mut cases = Vec::new();
    for dialect in directories(&root)? {
        for outcome in directories(&dialect)? {
            for case in directories(&outcome)? {
                cases.push(read_case(&root, &case).with_context(|| case.display().to_string())?);
            }
        }
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(cases)
}

fn directories(path: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(path).with_context(|| path.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    Ok(found)
}

fn read_case(root: &Path, path: &Path) -> Result<Case> {
    let input = fs::read_to_string(path.join("input.txt"))?;
    let expected = serde_json::from_str(&fs::read_to_string(path.join("expected.json"))?)?;
    let name = path
        .strip_prefix(root)?
        .to_string_lossy()
        .replace('\\', "/");
    Ok(Case {
        name,
        input,
        expected,
    })
}

/// Compares an outcome with the expected one; every difference is one line.
pub fn differences(case: &Case, parsed: &Parsed, catalogue: &Catalogue) -> Vec<String> {
    let expected = &case.expected;
    let mut found = Differences::default();
    if let Some(dialect) = &expected.dialect {
        let actual = parsed
            .dialect
            .map_or("none", call_catalogue::Dialect::as_str);
        found.compare("dialect", dialect, actual);
    }
    if let Some(text) = &expected.response_text {
        found.compare(
            "response text",
            &format!("{text:?}"),
            &format!("{:?}", parsed.response_text),
        );
    }
    if let Some(text) = &expected.trailing_text {
        found.compare(
            "trailing text",
            &format!("{text:?}"),
            &format!("{:?}", parsed.trailing_text),
        );
    }
    if let Some(problems) = &expected.block_problems {
        let actual = parsed
            .blocks
            .iter()
            .flat_map(|block| &block.problems)
            .map(|problem| problem.code.as_str());
        found.compare(
            "block problems",
            &problems.join(" "),
            &actual.collect::<Vec<_>>().join(" "),
        );
    }
    if let Some(observation) = &expected.observation {
        let actual = call_prompt::observation::feedback(parsed, catalogue).unwrap_or_default();
        found.compare("observation", observation, &actual);
    }
    if let Some(controls) = &expected.controls {
        let actual = parsed
            .blocks
            .first()
            .map(|block| block.controls.clone())
            .unwrap_or_default();
        found.compare(
            "controls",
            &sorted(&Value::Object(controls.clone())),
            &sorted(&Value::Object(actual)),
        );
    }
    found.compare(
        "number of calls",
        &expected.calls.len().to_string(),
        &parsed.calls.len().to_string(),
    );
    for (index, (wanted, call)) in expected.calls.iter().zip(&parsed.calls).enumerate() {
        compare_call(&mut found, index, wanted, call);
    }
    let remarks: Vec<String> = parsed
        .diagnostics
        .iter()
        .map(|diagnostic| format!("{}:{}", diagnostic.rule, diagnostic.code))
        .collect();
    for wanted in expected
        .diagnostics
        .iter()
        .filter(|wanted| !remarks.contains(wanted))
    {
        found.0.push(format!(
            "remark {wanted} is missing; there are {}",
            remarks.join(" ")
        ));
    }
    found.0
}

#[derive(Default)]
struct Differences(Vec<String>);

impl Differences {
    fn compare(&mut self, what: &str, expected: &str, actual: &str) {
        if expected != actual {
            let width = what.len() + 9;
            self.0.push(format!(
                "{what}: expected {expected}\n    {:>width$} {actual}",
                "got"
            ));
        }
    }
}

fn compare_call(found: &mut Differences, index: usize, wanted: &ExpectedCall, call: &Call) {
    let mut compare = |what: &str, expected: &str, actual: &str| {
        found.compare(&format!("call {index} {what}"), expected, actual);
    };
    compare("tool", &wanted.tool, &call.tool_id);
    if let Some(arguments) = &wanted.arguments {
        compare(
            "arguments",
            &sorted(arguments),
            &sorted(&Value::Object(call.arguments.clone())),
        );
    }
    let with_path = wanted.problems.iter().any(|problem| problem.contains(':'));
    let problems = call.problems.iter().map(|problem| {
        let code = problem.code.as_str();
        if with_path {
            format!("{code}:{}", problem.path)
        } else {
            code.to_owned()
        }
    });
    compare(
        "problems",
        &wanted.problems.join(" "),
        &problems.collect::<Vec<_>>().join(" "),
    );
    compare(
        "ready",
        &wanted.ready.to_string(),
        &call.is_ready().to_string(),
    );
    if let Some(tolerances) = &wanted.tolerances {
        let actual = call
            .tolerances
            .iter()
            .map(|tolerance| format!("{}:{}", tolerance.rule, tolerance.code));
        compare(
            "tolerances",
            &tolerances.join(" "),
            &actual.collect::<Vec<_>>().join(" "),
        );
    }
    if let Some(confirm) = wanted.confirm {
        compare(
            "confirmation",
            &confirm.to_string(),
            &call.needs_confirmation.to_string(),
        );
    }
    let control = serde_json::to_value(&call.control).unwrap_or_default();
    for (key, value) in wanted.control.iter().flatten() {
        compare(
            key,
            &sorted(value),
            &control.get(key).map_or_else(String::new, sorted),
        );
    }
}

/// JSON with sorted keys.
fn sorted(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map
                .iter()
                .map(|(key, value)| format!("{key:?}:{}", sorted(value)))
                .collect();
            members.sort();
            format!("{{{}}}", members.join(","))
        }
        Value::Array(items) => format!(
            "[{}]",
            items.iter().map(sorted).collect::<Vec<_>>().join(",")
        ),
        other => other.to_string(),
    }
}
