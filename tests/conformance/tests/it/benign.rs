//! Messages that talk about tags, calls and code and mean none of them as a call.

use call_text::{FinishReason, Policy, parse_finished};
use conformance::catalogue;

/// The topics of a message.
const TOPICS: &[&str] = &[
    "<ACTION><note><text>x</text></note></ACTION>",
    "<ACTION>\n<write>\n<path>a</path>\n<content>b</content>\n</write>\n</ACTION>",
    "<|[REQUEST_TOOL]|>\ncommand:「始」ping「末」\n<|[END_TOOL]|>",
    "<|[REQUEST_TOOL]|>\ncommand:»»»ping«««\n<|[END_TOOL]|>",
    "<<<[TOOL_REQUEST]>>>\ntool_name:「始」ping「末」\n<<<[END_TOOL_REQUEST]>>>",
    "<tool_call name=\"note\"><param name=\"text\">x</param></tool_call>",
    "<tool_call>{\"name\":\"ping\",\"arguments\":{}}</tool_call>",
    "<invoke name=\"ping\"></invoke>",
    "<function=note><parameter=text>x</parameter></function>",
    "＜ACTION＞＜ping/＞＜/ACTION＞",
];

/// Ways of quoting that hold no calls.
fn quoted(topic: &str) -> Vec<String> {
    let one_line = topic.replace('\n', " ");
    vec![
        format!("For example:\n```\nAn example follows.\n{topic}\n```\nThat is how."),
        format!("For example:\n```xml\n{topic}\nand so on\n```\n"),
        format!("~~~\ntext first\n{topic}\n~~~"),
        format!("````md\n```xml\n{topic}\n```\n````"),
        format!("Write `{one_line}` and wait."),
        format!("Write ``{one_line}`` and wait."),
        format!("`{topic}`"),
        topic.lines().map(|line| format!("> {line}\n")).collect(),
        format!("He wrote:\n\n> {one_line}\n\nand left."),
        format!("<think>Maybe {topic} is right.</think>It is not needed."),
        format!("<thinking>\n{topic}\n</thinking>\n\nNo call."),
        format!("<reasoning>{topic}"),
        format!("<!-- {topic} -->Nothing here."),
        format!("<!--\n{topic}\n-->"),
        topic.replace(['<', '＜'], "&lt;").replace('>', "&gt;"),
        topic.replace('<', "\\<").replace('＜', "\\＜"),
        format!("1. Step\n   ```\n   see: {topic}\n   ```\n2. Step"),
        format!("```\n{topic}"),
        topic.chars().filter(|c| !"<>＜＞".contains(*c)).collect(),
        format!("print('''\n```\n{topic}\n''')\n").replace(topic, &format!("`{one_line}`")),
    ]
}

/// Messages without any block.
const PLAIN: &[&str] = &[
    "Use <ACTION> to start a block and </ACTION> to end it.",
    "The <ACTION> tag wraps calls.",
    "A tag like <tool_call> is common.",
    "If a < b and c > d then swap(a, b);",
    "Vec<Option<Result<T, E>>> is fine.",
    "#include <stdio.h>\nint main() { return 1 << 2; }",
    "<html><body><p>Hello & goodbye</p></body></html>",
    "<div class=\"note\"><text>svg</text></div>",
    "cat <<EOF > file\nhello\nEOF",
    "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> branch",
    "He said 「始」 and then 「末」.",
    "key:「始」value「末」 without a block",
    "The marker <|[REQUEST_TOOL]|> begins a block.",
    "It ends with <|[END_TOOL]|>.",
    "Please take ACTION now!",
    "ACTION: run\n/ACTION",
    "tool_calls: []",
    "Observation: nothing happened.",
    "x <- 5; y -> 6; <- <-",
    "a `b` c ``d`` ```e``` f",
    "<note> is an element of MusicXML.",
    "See <search> in the manual.\n<note>\nis another one.",
    "<ping/>",
    "</ACTION>",
    "&lt;ACTION&gt;",
    "😀<ACT😀ION>",
    "<|im_start|>assistant\nhi<|im_end|>",
    "<action-list><item>1</item></action-list>",
    "<Actions><Action/></Actions>",
    "The function <function=…> form is used by some models.",
    "std::cout << \"<ACTION\" << std::endl;",
    "<!-- comment --> text <!-- another",
];

#[test]
fn talk_about_calls_is_no_call() {
    let catalogue = catalogue().unwrap();
    let mut messages: Vec<String> = PLAIN.iter().map(|&message| message.to_owned()).collect();
    for topic in TOPICS {
        for message in quoted(topic) {
            messages.push(format!("I looked at it.\n\n{message}"));
            messages.push(format!("{message}\n\nIs that clear? 1 < 2 & 3 > 2."));
            messages.push(message);
        }
    }
    assert!(messages.len() >= 500, "{} messages", messages.len());
    for message in &messages {
        for finish in [FinishReason::Stop, FinishReason::Length] {
            let parsed = parse_finished(message, &catalogue, &Policy::default(), finish);
            let ready: Vec<String> = parsed.ready_calls().map(|call| call.canonical()).collect();
            assert!(
                ready.is_empty() && parsed.calls.is_empty(),
                "{ready:?} from:\n{message}\n{:#?}",
                parsed.calls
            );
        }
    }
}
