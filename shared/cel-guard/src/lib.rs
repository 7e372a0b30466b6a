//! Conditions and expressions in CEL (rule W3).
//!
//! Parsing and evaluating recurse, and a stack that overflows ends the process. So all of it happens
//! on one thread with a stack that no accepted source can fill. The cost of an expression is
//! bounded by its length and by refusing a comprehension inside another.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, mpsc};

use cel::common::ast::{EntryExpr, Expr, IdedEntryExpr};
use cel::extractors::This;
use cel::objects::{Key, Map as CelMap};
use cel::{Context, Program};
use serde_json::{Number, Value};

/// The longest source, in bytes.
pub const MAX_SOURCE_BYTES: usize = 2 * 1024;

/// The stack on which no accepted source overflows, in bytes. It is address space, not memory.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// The most programs that are kept; beyond it all are compiled again.
const MAX_PROGRAMS: usize = 1_024;

/// The longest message of a failed evaluation, in characters.
const MAX_MESSAGE: usize = 300;

type Job = Box<dyn FnOnce(&mut Programs) + Send>;

/// The thread on which expressions are compiled and evaluated; `None` if it could not be started.
static EVALUATOR: LazyLock<Option<mpsc::Sender<Job>>> = LazyLock::new(|| {
    let (jobs, queue) = mpsc::channel::<Job>();
    let work = move || {
        let mut programs = Programs::default();
        for job in queue {
            job(&mut programs);
        }
    };
    let thread = std::thread::Builder::new()
        .name("conditions".to_owned())
        .stack_size(STACK_BYTES);
    thread.spawn(work).ok().map(|_| jobs)
});

/// Programs that were compiled before, by their source.
#[derive(Default)]
struct Programs {
    kept: HashMap<Arc<str>, Program>,
}

impl Programs {
    fn get(&mut self, source: &Arc<str>) -> Result<&Program, String> {
        if !self.kept.contains_key(source) {
            let program = Program::compile(source).map_err(|error| shorten(&error.to_string()))?;
            if self.kept.len() >= MAX_PROGRAMS {
                self.kept.clear();
            }
            self.kept.insert(Arc::clone(source), program);
        }
        Ok(&self.kept[source])
    }
}

/// Compiles an expression and checks that it uses no variables but `known`.
///
/// # Errors
/// A sentence that names the problem.
pub fn check(source: &str, known: &'static [&'static str]) -> Result<(), String> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(format!(
            "the expression has {} bytes; at most {MAX_SOURCE_BYTES} are accepted",
            source.len()
        ));
    }
    let source: Arc<str> = source.into();
    on_thread(move |programs| {
        let program = programs.get(&source)?;
        let mut comprehensions = Comprehensions::default();
        comprehensions.scan(&program.expression().expr, 0);
        if comprehensions.nested {
            return Err("a comprehension must not be nested in another".to_owned());
        }
        let (references, bound) = (program.references(), &comprehensions.bound);
        let unknown = references
            .variables()
            .into_iter()
            .find(|name| !known.contains(name) && !bound.iter().any(|own| own == name));
        match unknown {
            Some(name) => Err(format!(
                "there is no variable `{name}`; use one of {}",
                known.join(", ")
            )),
            None => Ok(()),
        }
    })
}

/// Evaluates an expression that [`check`] accepted.
///
/// # Errors
/// A sentence with the reason why there is no result.
pub fn evaluate(source: &str, bindings: &[(&'static str, &Value)]) -> Result<Value, String> {
    let source: Arc<str> = source.into();
    let bound: Vec<(&'static str, cel::Value)> = bindings
        .iter()
        .map(|(name, value)| (*name, to_cel(value)))
        .collect();
    on_thread(move |programs| {
        let program = programs.get(&source)?;
        let mut context = Context::default();
        let added = context.add_function("includes", includes);
        added.map_err(|error| shorten(&error.to_string()))?;
        for (name, value) in bound {
            context.add_variable_from_value(name, value);
        }
        let result = program
            .execute(&context)
            .map_err(|error| shorten(&error.to_string()))?;
        result.json().map_err(|error| shorten(&error.to_string()))
    })
}

/// `includes` of texts and lists, which the conditions of ComfyTavern use.
fn includes(This(this): This<cel::Value>, wanted: cel::Value) -> cel::ResolveResult {
    let is_there = match (&this, &wanted) {
        (cel::Value::String(text), cel::Value::String(part)) => text.contains(part.as_str()),
        (cel::Value::List(items), wanted) => items.contains(wanted),
        _ => false,
    };
    Ok(is_there.into())
}

/// Evaluates an expression that must be true or false.
///
/// # Errors
/// A sentence with the reason why it is neither.
pub fn holds(source: &str, bindings: &[(&'static str, &Value)]) -> Result<bool, String> {
    match evaluate(source, bindings)? {
        Value::Bool(truth) => Ok(truth),
        other => Err(format!(
            "it gave {}, expected true or false",
            kind_of(&other)
        )),
    }
}

fn on_thread<T: Send + 'static>(
    work: impl FnOnce(&mut Programs) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let stopped = || "expressions cannot be evaluated at the moment".to_owned();
    let evaluator = EVALUATOR.as_ref().ok_or_else(stopped)?;
    let (answer, answered) = mpsc::sync_channel(1);
    let job: Job = Box::new(move |programs| {
        let contained = std::panic::AssertUnwindSafe(|| work(programs));
        if let Ok(result) = std::panic::catch_unwind(contained) {
            // The caller waits for the answer.
            drop(answer.send(result));
        }
    });
    evaluator.send(job).map_err(|_| stopped())?;
    answered.recv().unwrap_or_else(|_| {
        Err("internal error: the expression panicked; please report this".into())
    })
}

/// The comprehensions of an expression, such as `all` and `map`.
#[derive(Default)]
struct Comprehensions {
    /// The variables that they bind.
    bound: Vec<String>,
    /// Whether one is inside another.
    nested: bool,
}

impl Comprehensions {
    fn scan(&mut self, expression: &Expr, around: usize) {
        match expression {
            Expr::Unspecified | Expr::Ident(_) | Expr::Literal(_) => {}
            Expr::Call(call) => {
                let target = call.target.iter().map(|target| &target.expr);
                let arguments = call.args.iter().map(|argument| &argument.expr);
                target
                    .chain(arguments)
                    .for_each(|part| self.scan(part, around));
            }
            Expr::Comprehension(comprehension) => {
                self.nested |= around > 0;
                self.bound.push(comprehension.iter_var.clone());
                self.bound.extend(comprehension.iter_var2.clone());
                self.bound.push(comprehension.accu_var.clone());
                self.scan(&comprehension.iter_range.expr, around);
                for part in [
                    &comprehension.accu_init,
                    &comprehension.loop_cond,
                    &comprehension.loop_step,
                    &comprehension.result,
                ] {
                    self.scan(&part.expr, around + 1);
                }
            }
            Expr::List(list) => {
                let elements = list.elements.iter();
                elements.for_each(|element| self.scan(&element.expr, around));
            }
            Expr::Map(map) => self.scan_entries(&map.entries, around),
            Expr::Struct(fields) => self.scan_entries(&fields.entries, around),
            Expr::Select(select) => self.scan(&select.operand.expr, around),
        }
    }

    fn scan_entries(&mut self, entries: &[IdedEntryExpr], around: usize) {
        for entry in entries {
            match &entry.expr {
                EntryExpr::StructField(field) => self.scan(&field.value.expr, around),
                EntryExpr::MapEntry(entry) => {
                    self.scan(&entry.key.expr, around);
                    self.scan(&entry.value.expr, around);
                }
            }
        }
    }
}

/// Converts a value so that whole numbers become `int`, as far as they fit.
fn to_cel(value: &Value) -> cel::Value {
    match value {
        Value::Null => cel::Value::Null,
        Value::Bool(truth) => cel::Value::Bool(*truth),
        Value::Number(number) => number_to_cel(number),
        Value::String(text) => cel::Value::String(Arc::new(text.clone())),
        Value::Array(items) => cel::Value::List(Arc::new(items.iter().map(to_cel).collect())),
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(key, value)| (Key::String(Arc::new(key.clone())), to_cel(value)));
            cel::Value::Map(CelMap {
                map: Arc::new(fields.collect()),
            })
        }
    }
}

fn number_to_cel(number: &Number) -> cel::Value {
    if let Some(whole) = number.as_i64() {
        return cel::Value::Int(whole);
    }
    cel::Value::Float(number.as_f64().unwrap_or(f64::NAN))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

fn shorten(message: &str) -> String {
    message.chars().take(MAX_MESSAGE).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_value(source: &str, inputs: Value, expected: Result<Value, &str>) {
        let found =
            check(source, &["inputs"]).and_then(|()| evaluate(source, &[("inputs", &inputs)]));
        match expected {
            Ok(expected) => assert_eq!(found, Ok(expected), "{source}"),
            Err(words) => {
                let message = found.unwrap_err();
                assert!(message.contains(words), "{source}: {message}");
            }
        }
    }

    #[test]
    fn includes_finds_a_part_of_a_text_and_an_item_of_a_list() {
        let inputs = json!({"t": "a herb", "l": [1, "x"]});
        for (source, expected) in [
            ("inputs.t.includes('herb')", true),
            ("inputs.t.includes(1)", false),
            ("inputs.l.includes('x') && inputs.l.includes(1)", true),
            ("inputs.l.includes('y')", false),
        ] {
            check_value(source, inputs.clone(), Ok(json!(expected)));
        }
    }

    #[test]
    fn w3_whole_numbers_are_int_and_every_kind_of_value_is_bound() {
        check_value("inputs.n + 1", json!({"n": 2}), Ok(json!(3)));
        check_value("inputs.n / 2.0", json!({"n": 2.5}), Ok(json!(1.25)));
        check_value(
            "inputs.t == 'a' && !inputs.b",
            json!({"t": "a", "b": false}),
            Ok(json!(true)),
        );
        check_value(
            "inputs.l[1].x",
            json!({"l": [0, {"x": null}]}),
            Ok(json!(null)),
        );
        check_value(
            "inputs.l.exists(n, n > 2)",
            json!({"l": [1, 3]}),
            Ok(json!(true)),
        );
        check_value(
            "inputs.t.matches('^a+$')",
            json!({"t": "aa"}),
            Ok(json!(true)),
        );
        check_value("size(inputs.l)", json!({"l": [1, 3]}), Ok(json!(2)));
    }

    #[test]
    fn w3_an_error_is_no_result() {
        check_value("inputs.missing", json!({}), Err("missing"));
        check_value("inputs.a +", json!({}), Err("yntax"));
        check_value(
            "other > 1",
            json!({}),
            Err("no variable `other`; use one of inputs"),
        );
        check_value(&"1+".repeat(1_500), json!({}), Err("at most 2048"));
        check_value(
            "inputs.l.all(a, inputs.l.all(b, a == b))",
            json!({"l": []}),
            Err("nested in another"),
        );
        assert!(
            holds("1", &[])
                .unwrap_err()
                .contains("expected true or false")
        );
    }

    #[test]
    fn a_deeply_nested_source_does_not_end_the_process() {
        for (open, close) in [("(", ")"), ("[", "]"), ("!", ""), ("-", "")] {
            let depth = (MAX_SOURCE_BYTES - 8) / (open.len() + close.len());
            let source = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            // Whether it is accepted does not matter.
            drop(check(&source, &[]).and_then(|()| evaluate(&source, &[])));
        }
        assert_eq!(holds("1 < 2", &[]), Ok(true));
    }
}
