//! A message that ends inside a block is reported to the model, and no part of the block is published
//! (G9).

use call_text::{FinishReason, Policy, parse_finished};
use conformance::catalogue;

const BLOCKS: &[&str] = &[
    "<ACTION>\n    <search>\n        <query>a</query>\n    </search>\n</ACTION>",
    "<ACTION><kb:Query><query><![CDATA[a]]></query></kb:Query></ACTION>",
    "<|[REQUEST_TOOL]|>\ncommand:「始」search「末」,\nquery:「始」a「末」\n<|[END_TOOL]|>",
    "<|[REQUEST_TOOL]|>\ncommand_1:»»»search«««\nquery_1:»»»a«««\n<|[END_TOOL]|>",
    "<<<[TOOL_REQUEST]>>>\ntool_name:「始」search「末」\nquery:「始」a「末」\n<<<[END_TOOL_REQUEST]>>>",
    "<tool_call>\n{\"name\": \"search\", \"arguments\": {\"query\": \"a\"}}\n</tool_call>",
    "<tool_call name=\"search\"><param name=\"query\">a</param></tool_call>",
    "<tool_call>\n<function=search>\n<parameter=query>a</parameter>\n</function>\n</tool_call>",
    "<function_calls>\n<invoke name=\"search\">\n<parameter name=\"query\">a</parameter>\n</invoke>\n</function_calls>",
    "<invoke name=\"search\"><parameter name=\"query\">a</parameter></invoke>",
];

const BEFORE: &str = "Let me look.";

/// A shorter beginning of a mark may be any other text.
const SHORTEST: usize = 4;

#[test]
fn a_cut_inside_a_block_is_reported_and_shows_no_part_of_it() {
    let catalogue = catalogue().unwrap();
    let mut failures = Vec::new();
    for block in BLOCKS {
        for end in (SHORTEST..block.len()).filter(|end| block.is_char_boundary(*end)) {
            let text = format!("{BEFORE}\n{}", &block[..end]);
            let policy = Policy::default();
            let parsed = parse_finished(&text, &catalogue, &policy, FinishReason::Length);
            let reported = call_prompt::observation::feedback(&parsed, &catalogue);
            let ready = parsed.ready_calls().count();
            if (reported.is_none() && ready == 0) || parsed.response_text != BEFORE {
                failures.push(format!("{reported:?} {:?}", parsed.response_text));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
