//! The checks a schema passes before it is compiled.

use std::io;

use serde_json::Value;

use crate::compile_error::{CompileCode, CompileErrors, CompileProblem};
use crate::cost::{self, Cost};
use crate::graph::Graph;
use crate::limits::{CompileOptions, Limits};
use crate::pattern;

/// Problems listed in one answer.
const MOST_PROBLEMS: usize = 32;

/// Checks the schema and returns its graph and its cost for the later steps.
pub(crate) fn check(
    schema: &Value,
    options: &CompileOptions,
) -> Result<(Graph, Cost), CompileErrors> {
    let limits = &options.limits;
    // Depth before size: writing a value out recurses.
    check_depth(schema, limits)
        .and_then(|()| check_size(schema, limits))
        .map_err(one)?;
    let mut graph = Graph::build(schema);
    let mut problems = std::mem::take(&mut graph.problems);
    if options.closed_root {
        problems.extend(check_describes_object(schema));
    }
    problems.extend(check_patterns(&graph, limits));
    let cost = match cost::price(&graph, limits) {
        Ok(cost) => Some(cost),
        Err(problem) => {
            problems.push(problem);
            None
        }
    };
    match cost {
        Some(cost) if problems.is_empty() => Ok((graph, cost)),
        _ => {
            problems.truncate(MOST_PROBLEMS);
            Err(CompileErrors { problems })
        }
    }
}

pub(crate) fn one(problem: CompileProblem) -> CompileErrors {
    CompileErrors {
        problems: vec![problem],
    }
}

fn check_depth(schema: &Value, limits: &Limits) -> Result<(), CompileProblem> {
    match measure(schema, limits.schema_depth) {
        Some(_) => Ok(()),
        None => Err(CompileProblem::new(
            "",
            CompileCode::TooDeep,
            format!(
                "the schema is nested deeper than {} levels; move inner parts to `$defs`",
                limits.schema_depth
            ),
        )),
    }
}

fn check_size(schema: &Value, limits: &Limits) -> Result<(), CompileProblem> {
    let mut room = Room {
        left: limits.schema_bytes,
    };
    serde_json::to_writer(&mut room, schema).map_err(|_| {
        CompileProblem::new(
            "",
            CompileCode::TooLarge,
            format!("the schema is longer than {} bytes of compact JSON; split the tool or shorten descriptions", limits.schema_bytes),
        )
    })
}

fn check_describes_object(schema: &Value) -> Option<CompileProblem> {
    let fits = match schema {
        Value::Object(keywords) => match keywords.get("type") {
            None => true,
            Some(Value::Array(types)) => types.iter().any(|name| name == "object"),
            Some(name) => name == "object",
        },
        other => *other == Value::Bool(true),
    };
    (!fits).then(|| {
        CompileProblem::new(
            "",
            CompileCode::NotAnObject,
            "a parameter schema must describe an object; set \"type\": \"object\" and list the parameters under `properties`",
        )
    })
}

fn check_patterns(graph: &Graph, limits: &Limits) -> Vec<CompileProblem> {
    if graph.patterns.len() > limits.patterns {
        let message = format!(
            "the schema has {} patterns, more than {}; use fewer",
            graph.patterns.len(),
            limits.patterns
        );
        return vec![CompileProblem::new(
            "",
            CompileCode::TooManyPatterns,
            message,
        )];
    }
    graph
        .patterns
        .iter()
        .filter_map(|(text, pointer)| {
            pattern::refuse(text, limits)
                .map(|(code, message)| CompileProblem::new(pointer, code, message))
        })
        .collect()
}

/// Returns the depth and the number of values, or `None` where it is deeper than allowed.
pub(crate) fn measure(value: &Value, deepest: usize) -> Option<(usize, u64)> {
    let mut depth = 0;
    let mut values: u64 = 0;
    let mut stack = vec![(value, 0_usize)];
    while let Some((value, level)) = stack.pop() {
        values += 1;
        let nested = match value {
            Value::Array(items) => {
                stack.extend(items.iter().map(|item| (item, level + 1)));
                true
            }
            Value::Object(members) => {
                stack.extend(members.values().map(|member| (member, level + 1)));
                true
            }
            _ => false,
        };
        depth = depth.max(level + usize::from(nested));
        if depth > deepest {
            return None;
        }
    }
    Some((depth, values))
}

/// A writer that counts bytes and fails when they are too many.
struct Room {
    left: usize,
}

impl io::Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.left = self
            .left
            .checked_sub(bytes.len())
            .ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
