//! The results of code, as a model reads them.

use serde_json::{Map, Value};

/// The types that a model reads as they are, the preferred ones first.
const READ: [&str; 3] = ["text/markdown", "text/plain", "text/latex"];

/// Takes the results out of the output of a tool and returns them as text, each beginning on a line of its own. A result
/// is an object with its representations by media type in `data`; an output without such results stays as it is.
///
/// The value of a cell is left out where it is one of the results.
pub fn take_results(output: &mut Value) -> String {
    let Some(object) = output.as_object_mut() else {
        return String::new();
    };
    let is_result = |result: &Value| result.get("data").is_some_and(Value::is_object);
    let results = object.get("results").and_then(Value::as_array);
    if !results.is_some_and(|results| !results.is_empty() && results.iter().all(is_result)) {
        return String::new();
    }
    let Some(Value::Array(results)) = object.shift_remove("results") else {
        return String::new();
    };
    let is_main = |result: &Value| result.get("main") == Some(&Value::Bool(true));
    if results.iter().any(is_main) {
        object.shift_remove("value");
    }
    let mut text = String::new();
    for (number, result) in (1..).zip(&results) {
        let origin = result.get("origin").and_then(Value::as_str);
        let origin = origin.unwrap_or("result");
        text += &format!("\nResult {number} ({origin}): {}", read(result));
    }
    text
}

fn read(result: &Value) -> String {
    let data = result.get("data").and_then(Value::as_object);
    let Some(data) = data.filter(|data| !data.is_empty()) else {
        return "nothing that can be shown".to_owned();
    };
    let picture = data.iter().find(|(kind, _)| kind.starts_with("image/"));
    if let Some((kind, picture)) = picture {
        return line(kind, picture, result);
    }
    let text = |kind: &&str| data.get(*kind).and_then(Value::as_str);
    let readable = READ.iter().find_map(text);
    if let Some(readable) = readable {
        return match readable.contains('\n') {
            true => format!("\n{readable}"),
            false => readable.to_owned(),
        };
    }
    let lines: Vec<String> = data
        .iter()
        .map(|(kind, value)| line(kind, value, result))
        .collect();
    lines.join("; ")
}

/// Describes a representation that a model cannot read: `image/png 640×480, 23 KiB, results/1a2b.png`.
fn line(kind: &str, value: &Value, result: &Value) -> String {
    let metadata = result.get("metadata").and_then(|all| all.get(kind));
    let side = |name: &str| metadata?.get(name)?.as_u64();
    let mut line = kind.to_owned();
    if let (Some(width), Some(height)) = (side("width"), side("height")) {
        line += &format!(" {width}×{height}");
    }
    let kept: Option<&Map<String, Value>> = value.as_object().filter(|it| it.contains_key("$blob"));
    let bytes = match kept {
        Some(kept) => kept.get("bytes").and_then(Value::as_u64),
        None => None,
    };
    if let Some(bytes) = bytes {
        line += &match bytes {
            0..1024 => format!(", {bytes} bytes"),
            _ => format!(", {} KiB", bytes.div_ceil(1024)),
        };
    }
    if let Some(path) = kept.and_then(|kept| kept.get("path")?.as_str()) {
        line += &format!(", {path}");
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_model_reads_markdown_else_plain_text_else_a_line() {
        let mut output = json!({
            "stdout": "12\n",
            "cell": 3,
            "value": "  month  sum",
            "results": [
                {
                    "index": 0, "origin": "figure", "main": false,
                    "data": {
                        "image/png": {"$blob": "sha256:9f86", "bytes": 23_100, "path": "results/9f86.png"},
                        "text/plain": "<Figure size 640x480 with 1 Axes>",
                    },
                    "metadata": {"image/png": {"width": 640, "height": 480}},
                },
                {
                    "index": 1, "origin": "display", "main": false,
                    "data": {"text/html": "<b>x</b>", "text/plain": "x"}, "metadata": {},
                },
                {
                    "index": 2, "origin": "display", "main": false,
                    "data": {"application/vnd.plotly.v1+json": {"data": []}}, "metadata": {},
                },
                {
                    "index": 3, "origin": "expression", "main": true,
                    "data": {"text/plain": "a", "text/markdown": "| a |\n|---|\n| 1 |"}, "metadata": {},
                },
            ],
        });
        let shown = take_results(&mut output);
        assert_eq!(output, json!({"stdout": "12\n", "cell": 3}));
        let expected = "\nResult 1 (figure): image/png 640×480, 23 KiB, results/9f86.png\
                        \nResult 2 (display): x\
                        \nResult 3 (display): application/vnd.plotly.v1+json\
                        \nResult 4 (expression): \n| a |\n|---|\n| 1 |";
        assert_eq!(shown, expected);
    }

    #[test]
    fn an_output_of_another_kind_stays_as_it_is() {
        for output in [
            json!({"results": [1, 2]}),
            json!({"results": []}),
            json!({"results": [{"data": 1}]}),
            json!("results"),
        ] {
            let mut same = output.clone();
            assert_eq!(take_results(&mut same), "");
            assert_eq!(same, output);
        }
    }
}
