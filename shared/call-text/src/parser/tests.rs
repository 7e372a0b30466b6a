use call_catalogue::Tool;
use serde_json::json;

use super::*;

fn catalogue() -> Catalogue {
    Catalogue::new(
        vec![
            Tool::new(
                "write",
                "",
                json!({"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},"required":["path"]}),
            ),
            Tool::new("count", "", json!({"type":"object","properties":{"n":{"type":"integer"},"tags":{"type":"array","items":{"type":"string"}}}})),
        ],
        vec![],
    )
    .unwrap()
}

fn calls(text: &str) -> Vec<String> {
    let parsed = parse(text, &catalogue(), &Policy::default());
    parsed
        .ready_calls()
        .map(|call| {
            format!(
                "{} {}",
                call.tool_id,
                serde_json::to_string(&call.arguments).unwrap()
            )
        })
        .collect()
}

#[test]
fn dialects_give_the_same_call() {
    let expected = vec![r#"write {"path":"a.txt","content":"x < y"}"#.to_owned()];
    for text in [
        "<ACTION><write><path>a.txt</path><content>x < y</content></write></ACTION>",
        "<|[REQUEST_TOOL]|>\ncommand:「始」write「末」\npath:「始」a.txt「末」\ncontent:「始」x < y「末」\n<|[END_TOOL]|>",
        "<|[REQUEST_TOOL]|>\npath:»»»a.txt«««\ncontent:»»»x < y«««\ncommand:»»»write«««\n<|[END_TOOL]|>",
        "<<<[TOOL_REQUEST]>>>\ntool_name:「始」write「末」,\npath:「始」a.txt「末」,\ncontent:「始ESCAPE」x < y「末ESCAPE」\n<<<[END_TOOL_REQUEST]>>>",
        r#"<tool_call name="write"><param name="path">a.txt</param><param name="content">x < y</param></tool_call>"#,
        r#"<invoke name="write"><parameter name="path">a.txt</parameter><parameter name="content">x < y</parameter></invoke>"#,
        "<function=write><parameter=path>a.txt</parameter><parameter=content>x < y</parameter></function>",
        "<tool_call>\n<function=write>\n<parameter=path>\na.txt\n</parameter>\n<parameter=content>\nx < y\n</parameter>\n</function>\n</tool_call>",
        r#"<tool_call>{"name":"write","arguments":{"path":"a.txt","content":"x < y"}}</tool_call>"#,
        r#"<ACTION>{"tool":"write","parameters":{"path":"a.txt","content":"x < y"}}</ACTION>"#,
    ] {
        assert_eq!(
            calls(text),
            expected,
            "{text}\n{:#?}",
            parse(text, &catalogue(), &Policy::default())
        );
    }
}

#[test]
fn workflows_and_nodes_are_called_as_the_seeds_write_them() {
    let ids = [
        "workflow:greet_player",
        "workflow:skill_npc",
        "node:core:TextMerge",
    ];
    let tools = ids.map(|id| Tool::new(id, "", json!({})));
    let catalogue = Catalogue::new(tools.into(), vec![]).unwrap();
    for written in [
        "skill_greet_player",
        "workflows/skills/greet_player.json",
        "`workflows/skills/greet_player.json`",
        "skill_npc",
        "workflows/skills/skill_npc.json",
        "core:TextMerge",
        "core__TextMerge",
    ] {
        let message = format!("<ACTION><{written}></{written}></ACTION>");
        let parsed = parse(&message, &catalogue, &Policy::default());
        assert_eq!(parsed.ready_calls().count(), 1, "{written}: {parsed:?}");
    }
}

#[test]
fn fields_far_before_a_block_are_remarked_on() {
    for between in ["x\n".repeat(4096), "[]\n".repeat(2048), "{x}\n".repeat(64)] {
        let text = format!(
            "「末」\ncommand1:「始」write「末」\ncontent1:「始」\n{between}<|[REQUEST_TOOL]|>\n\
             command2:「始」count「末」\n<|[END_TOOL]|>"
        );
        let parsed = parse(&text, &catalogue(), &Policy::default());
        let codes: Vec<_> = parsed
            .diagnostics
            .iter()
            .map(|remark| &*remark.code)
            .collect();
        assert_eq!(codes, ["fields_outside_block"], "{}", &between[..4]);
    }
}
