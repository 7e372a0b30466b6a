//! Jupyter's outputs for the same cells, which `tests/python/jupyter.py` has recorded.

use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Recorded {
    cells: Vec<RecordedCell>,
}

#[derive(Deserialize)]
struct RecordedCell {
    set: String,
    source: Vec<String>,
    outputs: Vec<Output>,
}

#[derive(Clone, Deserialize)]
#[serde(untagged)]
enum Output {
    Error { error: String },
    Shown { is_value: bool, types: Vec<String> },
}

/// The types of Jupyter's outputs as a session has them: the value is the last, nothing is JavaScript, and everything
/// has a text.
fn expected(outputs: &[Output]) -> Vec<Vec<&str>> {
    let shown = |wanted: bool| {
        outputs.iter().filter_map(move |output| match output {
            Output::Shown { is_value, types } if *is_value == wanted => {
                let types = types.iter().map(String::as_str);
                Some(types.filter(|it| *it != "application/javascript").collect())
            }
            _ => None,
        })
    };
    shown(false).chain(shown(true)).map(with_text).collect()
}

fn with_text(mut types: Vec<&str>) -> Vec<&str> {
    types.push("text/plain");
    types.sort_unstable();
    types.dedup();
    types
}

/// The types of a result, without the table in Markdown, which Jupyter does not have.
fn types_of(result: &CellResult) -> Vec<&str> {
    let (_, mut types) = types(result);
    let text = result.data.iter().find_map(|part| match &part.content {
        Some(Content::Text(text)) if part.media_type == "text/markdown" => Some(text.as_str()),
        _ => None,
    });
    if text.is_some_and(|text| text.starts_with("| ")) {
        types.retain(|it| *it != "text/markdown");
    }
    with_text(types)
}

/// Runs the cells of a set in one session, and compares.
pub(super) async fn gives_the_outputs_of_jupyter(set: &str) {
    let recorded: Recorded =
        serde_json::from_str(include_str!("../../../golden/jupyter.json")).unwrap();
    let (host, session) = Host::with_set(set).await;
    let cells = recorded.cells.iter().filter(|cell| cell.set == set);
    for RecordedCell {
        source, outputs, ..
    } in cells
    {
        let source = source.join("\n");
        let ran = host.cell(&session, &source).await;
        let types: Vec<Vec<&str>> = ran.results.iter().map(types_of).collect();
        assert_eq!(types, expected(outputs), "{source}\n{:?}", ran.error);
        assert_eq!(ran.ended.dropped_results, 0, "{source}");
        if let Some(raised) = ran.error {
            let names =
                |it: &Output| matches!(it, Output::Error { error } if *error == raised.r#type);
            assert!(
                outputs.iter().any(names),
                "{source}: {}",
                raised.traceback_text
            );
        }
    }
}
