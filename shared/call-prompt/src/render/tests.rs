use call_catalogue::Tool;
use call_text::{native, parse};
use proptest::prelude::*;
use serde_json::json;

use super::*;

fn catalogue() -> Catalogue {
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "content": {"type": "string", "contentMediaType": "text/plain"},
            "count": {"type": "integer"},
            "ratio": {"type": "number"},
            "force": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "meta": {"type": "object"},
            "command": {"type": "string"}
        }
    });
    Catalogue::new(vec![Tool::new("files:write", "", parameters)], vec![]).unwrap()
}

fn nasty() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        "[a-zA-Z0-9 ]{0,8}",
        Just("\n".to_owned()),
        Just("\r\n".to_owned()),
        Just("</content>".to_owned()),
        Just("<path>".to_owned()),
        Just("</files__write></ACTION>".to_owned()),
        Just("]]>".to_owned()),
        Just("<![CDATA[".to_owned()),
        Just("&lt;&amp;".to_owned()),
        Just("「末」".to_owned()),
        Just("「始」".to_owned()),
        Just("<|[END_TOOL]|>".to_owned()),
        Just("\npath:「始」".to_owned()),
        Just("«««".to_owned()),
        Just("```".to_owned()),
        Just("```\n<ACTION>".to_owned()),
        Just("<!-- ".to_owned()),
        Just("  ".to_owned()),
        Just("ESCAPE".to_owned()),
        "\\PC{0,4}",
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// `render_call` reads back its output, so a value that is not carried is an error here;
    /// the elements and JSON must carry every string.
    #[test]
    fn every_string_is_carried_or_refused(path in nasty(), content in nasty(), count in any::<i64>()) {
        let arguments = json!({"path": path, "content": content, "count": count, "tags": [path, content], "meta": {"k": content}});
        let Value::Object(arguments) = arguments else { unreachable!() };
        for &dialect in Dialect::IN_TEXT {
            let rendered = render_call("files:write", &arguments, dialect, &catalogue());
            if matches!(dialect, Dialect::Action | Dialect::ToolTag | Dialect::ToolJson) {
                prop_assert!(rendered.is_ok(), "{dialect}: {:?}", rendered);
            }
            if let Ok(block) = rendered {
                let text = format!("Some words first.\n{block}\nand after");
                let parsed = parse(&text, &catalogue(), &Policy::default());
                prop_assert_eq!(parsed.calls.len(), 1, "{}", text);
                prop_assert_eq!(parsed.calls[0].canonical(), canonical::call("files:write", &arguments), "{}", text);
            }
        }
    }
}

#[test]
fn what_cannot_be_carried_is_refused_by_name() {
    let arguments = json!({"path": " outer white space "});
    let Value::Object(arguments) = arguments else {
        unreachable!()
    };
    let error = render_call("files:write", &arguments, Dialect::TamV1, &catalogue()).unwrap_err();
    assert_eq!(error.path, "/path");
    assert!(render_call("files:write", &arguments, Dialect::Action, &catalogue()).is_ok());
    assert!(render_call("nothing", &arguments, Dialect::Action, &catalogue()).is_err());
}

#[test]
fn a_parameter_called_command_has_a_spelling_in_tam() {
    let arguments = json!({"command": "ls"});
    let Value::Object(arguments) = arguments else {
        unreachable!()
    };
    let block = render_call("files:write", &arguments, Dialect::TamV1, &catalogue()).unwrap();
    assert_eq!(
        block,
        "<|[REQUEST_TOOL]|>\ncommand:「始」files:write「末」\narg_command:「始」ls「末」\n<|[END_TOOL]|>"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Every dialect carries white space unchanged where all of it belongs to the value.
    #[test]
    fn white_space_that_is_kept_is_carried_in_every_dialect(keep in "[a-z \\t\\n]{0,12}\\r?\\n?") {
        let parameters = json!({
            "type": "object",
            "properties": {"keep": {"type": "string", "x-preserve-whitespace": true}}
        });
        let catalogue = Catalogue::new(vec![Tool::new("keep", "", parameters)], vec![]).unwrap();
        let arguments = Map::from_iter([("keep".to_owned(), json!(keep))]);
        for &dialect in Dialect::IN_TEXT {
            let block = render_call("keep", &arguments, dialect, &catalogue);
            prop_assert!(block.is_ok(), "{dialect}: {:?}", block);
        }
    }

    /// A text of several lines, or with a line break at its end, arrives byte for byte.
    #[test]
    fn line_breaks_are_carried_in_every_dialect(content in "[a-z ]{0,6}\\n[a-z \\n]{0,12}") {
        let arguments = Map::from_iter([("content".to_owned(), json!(content))]);
        for &dialect in Dialect::IN_TEXT {
            let block = render_call("files:write", &arguments, dialect, &catalogue());
            prop_assert!(block.is_ok(), "{dialect}: {:?}", block);
        }
    }
}

#[test]
fn a_native_call_is_read_back() {
    let arguments = json!({"path": "a.txt", "count": 3});
    let Value::Object(arguments) = arguments else {
        unreachable!()
    };
    let rendered = render_call("files:write", &arguments, Dialect::Native, &catalogue()).unwrap();
    let read = native::read(&serde_json::from_str(&rendered).unwrap());
    assert_eq!(read.remarks, [], "{rendered}");
    let typed = native::typed(&read.calls, &catalogue(), &Policy::default());
    assert_eq!(typed.len(), 1, "{rendered}");
    let expected = canonical::call("files:write", &arguments);
    assert_eq!(typed[0].canonical(), expected, "{rendered}");
}
