//! Any text as any argument: a value of the declared type, or a problem.
#![no_main]

use call_text::{FinishReason, Policy, parse_finished};
use libfuzzer_sys::fuzz_target;

const PARAMETERS: &[&str] =
    &["s", "i", "n", "b", "z", "iz", "o", "a", "ai", "e", "en", "k", "u", "ub", "os", "any", "xy", "objs", "r", "keep", "raw"];

fuzz_target!(|input: (u8, String)| {
    let (which, text) = input;
    let name = PARAMETERS[usize::from(which) % PARAMETERS.len()];
    for message in [
        format!("<ACTION><types><{name}>{text}</{name}></types></ACTION>"),
        format!("<|[REQUEST_TOOL]|>\ncommand:「始」types「末」\n{name}:「始ESCAPE」{text}「末ESCAPE」\n<|[END_TOOL]|>"),
    ] {
        let parsed = parse_finished(&message, fuzz::catalogue(), &Policy::default(), FinishReason::Stop);
        // A text can close the block and call another tool, whose parameters have other types.
        for call in parsed.calls.iter().filter(|call| call.tool_id == "types" && call.problems.is_empty()) {
            match (name, call.arguments.get(name)) {
                ("i" | "r", Some(value)) => assert!(value.to_string().bytes().all(|byte| byte.is_ascii_digit() || byte == b'-')),
                ("n", Some(value)) => assert!(value.is_number()),
                ("b", Some(value)) => assert!(value.is_boolean()),
                ("s" | "keep" | "raw" | "e" | "k", Some(value)) => assert!(value.is_string()),
                ("a" | "ai" | "objs", Some(value)) => assert!(value.is_array()),
                ("o" | "xy", Some(value)) => assert!(value.is_object()),
                _ => {}
            }
        }
    }
});
