//! Any strings as arguments: rendered and read back as the same call, or refused.
#![no_main]

use call_catalogue::Dialect;
use call_prompt::render;
use call_text::{Policy, parse};
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|input: (String, String)| {
    let (path, content) = input;
    let arguments: Map<String, Value> =
        [("path".to_owned(), Value::String(path)), ("content".to_owned(), Value::String(content))].into_iter().collect();
    for dialect in [Dialect::Action, Dialect::TamV1, Dialect::TamV2, Dialect::Vcp, Dialect::ToolTag, Dialect::ToolJson] {
        let Ok(block) = render::render_call("write", &arguments, dialect, fuzz::catalogue()) else { continue };
        let parsed = parse(&format!("Words.\n{block}\n"), fuzz::catalogue(), &Policy::default());
        assert_eq!(parsed.calls.len(), 1, "{block}");
        assert_eq!(parsed.calls[0].arguments, arguments, "{block}");
    }
});
