//! Tools that come with the request: no other service is called.

use contracts::tavern::common::v1::{Dialect, ParsedText};
use contracts::tavern::gateway::v1::gateway_service_client::GatewayServiceClient;
use contracts::tavern::gateway::v1::stream_text_request::Part;
use contracts::tavern::gateway::v1::stream_text_response::Event;
use contracts::tavern::gateway::v1::{
    GrammarMode, ParseTextRequest, RenderCallRequest, RenderGrammarRequest, RenderToolsRequest,
    StreamTextEnd, StreamTextRequest, StreamTextStart, ToolCatalogue, ToolDeclaration,
};
use gateway::{GatewaySettings, Peers};
use grpc_kit::{Outbound, Services};
use serde_json::{Value, json};

const TEXT: &str = "I look. <ACTION><Look><at>shelf</at></Look></ACTION>";

/// A gateway behind which no service answers.
fn alone() -> GatewayServiceClient<Outbound> {
    let nothing = || grpc_kit::local(&Services::new());
    let peers = Peers::over(nothing(), nothing(), nothing());
    let gateway = gateway::build(GatewaySettings::default(), peers);
    GatewayServiceClient::new(grpc_kit::local(&gateway.services()).outermost())
}

fn catalogue() -> Option<ToolCatalogue> {
    let parameters = json!({"type": "object", "properties": {"at": {"type": "string"}}});
    let look = ToolDeclaration {
        tool_id: "Look".to_owned(),
        description: "Looks at a place.".to_owned(),
        parameters_json: parameters.to_string(),
        read_only: true,
        ..ToolDeclaration::default()
    };
    Some(ToolCatalogue { tools: vec![look] })
}

fn native() -> String {
    json!([{"type": "function", "function": {"name": "Look", "arguments": "{\"at\": \"desk\"}"}}])
        .to_string()
}

async fn parse(text: &str, tool_calls_json: String) -> ParsedText {
    let request = ParseTextRequest {
        text: text.to_owned(),
        catalogue: catalogue(),
        tool_calls_json,
        ..ParseTextRequest::default()
    };
    let answer = alone().parse_text(request).await.unwrap().into_inner();
    answer.parsed.unwrap()
}

async fn stream(text: &str, tool_calls_json: String) -> Vec<Event> {
    let start = StreamTextStart {
        catalogue: catalogue(),
        ..StreamTextStart::default()
    };
    let end = StreamTextEnd {
        tool_calls_json,
        ..StreamTextEnd::default()
    };
    let text = Part::Chunk(text.as_bytes().to_vec());
    let parts = [Part::Start(start), text, Part::End(end)];
    let requests = parts.map(|part| StreamTextRequest { part: Some(part) });
    let requests = futures::stream::iter(requests);
    let mut answers = alone().stream_text(requests).await.unwrap().into_inner();
    let mut events = Vec::new();
    while let Some(answer) = answers.message().await.unwrap() {
        events.extend(answer.event);
    }
    events
}

#[tokio::test]
async fn a_text_is_read_by_the_schemas_of_its_caller() {
    let parsed = parse(TEXT, String::new()).await;
    assert_eq!(parsed.calls.len(), 1);
    assert_eq!(parsed.calls[0].arguments_json, r#"{"at":"shelf"}"#);
    assert!(parsed.calls[0].problems.is_empty());
    let wrong = parse("<ACTION><Look><on>x</on></Look></ACTION>", String::new()).await;
    assert_eq!(wrong.calls[0].problems[0].code, "unknown_parameter");
}

/// A schema as pydantic writes it for
/// `list[Annotated[Circle | Square, Field(discriminator="kind")]]`.
fn shapes() -> Value {
    let shape = |kind: &str, id: &str| {
        json!({
            "type": "object",
            "properties": {
                "kind": {"const": kind, "title": "Kind", "type": "string"},
                "id": {"title": "Id", "type": id}
            },
            "required": ["kind", "id"]
        })
    };
    json!({
        "$defs": {"Circle": shape("circle", "integer"), "Square": shape("square", "string")},
        "type": "object",
        "properties": {"shapes": {"type": "array", "items": {
            "discriminator": {"mapping": {"circle": "#/$defs/Circle", "square": "#/$defs/Square"}, "propertyName": "kind"},
            "oneOf": [{"$ref": "#/$defs/Circle"}, {"$ref": "#/$defs/Square"}]
        }}},
        "required": ["shapes"]
    })
}

#[tokio::test]
async fn a_union_of_the_callers_schema_is_read_alike_in_text_and_native_calls() {
    let arguments =
        json!({"shapes": [{"kind": "circle", "id": 7}, {"kind": "square", "id": "007"}]});
    let native = json!([{"type": "function", "function": {"name": "Look", "arguments": arguments.to_string()}}]);
    let elements =
        "<item><kind>circle</kind><id>7</id></item><item><kind>square</kind><id>007</id></item>";
    for (text, calls) in [
        (
            format!("<ACTION><Look><shapes>{elements}</shapes></Look></ACTION>"),
            String::new(),
        ),
        (
            format!("<function=Look>{arguments}</function>"),
            String::new(),
        ),
        (String::new(), native.to_string()),
    ] {
        let mut tools = catalogue().unwrap();
        tools.tools[0].parameters_json = shapes().to_string();
        let request = ParseTextRequest {
            text: text.clone(),
            catalogue: Some(tools),
            tool_calls_json: calls,
            ..ParseTextRequest::default()
        };
        let answer = alone().parse_text(request).await.unwrap().into_inner();
        let call = &answer.parsed.unwrap().calls[0];
        assert!(call.problems.is_empty(), "{text}: {:?}", call.problems);
        let read: Value = serde_json::from_str(&call.arguments_json).unwrap();
        assert_eq!(read, arguments, "{text}");
    }
}

#[tokio::test]
async fn a_stream_ends_as_the_whole_text_with_its_native_calls() {
    for text in [TEXT, "I look.", ""] {
        let events = stream(text, native()).await;
        let Some(Event::Parsed(parsed)) = events.last() else {
            unreachable!("the stream ended without its result: {events:?}")
        };
        assert_eq!(parsed, &parse(text, native()).await, "{text}");
        assert!(!parsed.calls.is_empty(), "{text}");
    }
}

#[tokio::test]
async fn a_read_only_tool_of_the_caller_may_start_early() {
    let closed = stream(TEXT, String::new()).await;
    let closed = closed.iter().find_map(|event| match event {
        Event::BlockClosed(closed) => Some(closed),
        _ => None,
    });
    assert!(closed.unwrap().calls[0].may_start);
}

#[tokio::test]
async fn a_prompt_and_a_call_are_written_from_the_catalogue() {
    let prompt = RenderToolsRequest {
        catalogue: catalogue(),
        language: "zh-CN".to_owned(),
        ..RenderToolsRequest::default()
    };
    let prompt = alone().render_tools(prompt).await.unwrap().into_inner();
    assert_eq!(prompt.tool_ids, ["Look"]);
    assert!(prompt.text.contains("Looks at a place."));
    let call = RenderCallRequest {
        tool_id: "Look".to_owned(),
        arguments_json: json!({"at": "shelf"}).to_string(),
        dialect: Dialect::TamV1.into(),
        catalogue: catalogue(),
        ..RenderCallRequest::default()
    };
    let call = alone().render_call(call).await.unwrap().into_inner();
    let read = parse(&call.text, String::new()).await;
    assert_eq!(read.calls[0].arguments_json, r#"{"at":"shelf"}"#);
}

#[tokio::test]
async fn what_is_wrong_with_native_calls_of_a_stream_is_named_by_its_path() {
    let start = Part::Start(StreamTextStart {
        catalogue: catalogue(),
        ..StreamTextStart::default()
    });
    let end = Part::End(StreamTextEnd {
        tool_calls_json: "{".to_owned(),
        ..StreamTextEnd::default()
    });
    let requests = [start, end].map(|part| StreamTextRequest { part: Some(part) });
    let requests = futures::stream::iter(requests);
    let mut answers = alone().stream_text(requests).await.unwrap().into_inner();
    let status = loop {
        match answers.message().await {
            Ok(answer) => assert!(answer.is_some(), "the stream ended without a failure"),
            Err(status) => break status,
        }
    };
    let violations = grpc_kit::violations(&status);
    assert_eq!(violations[0].0, "end.tool_calls_json");
}

#[tokio::test]
async fn a_grammar_is_written_for_the_schemas_of_its_caller() {
    let request = RenderGrammarRequest {
        catalogue: catalogue(),
        mode: GrammarMode::Call as i32,
        ..RenderGrammarRequest::default()
    };
    let answer = alone().render_grammar(request.clone()).await.unwrap();
    let text = answer.into_inner().text;
    assert!(text.starts_with("root ::= prose block\n"), "{text}");
    assert!(text.contains("\"<Look>\\n\""), "{text}");
    let with_nonce = RenderGrammarRequest {
        nonce: "k7m2q9xd".to_owned(),
        ..request.clone()
    };
    let answer = alone().render_grammar(with_nonce).await.unwrap();
    let text = answer.into_inner().text;
    assert!(text.contains(r#"<ACTION n=\"k7m2q9xd\">"#), "{text}");
    let unspellable = RenderGrammarRequest {
        nonce: "k7\"".to_owned(),
        ..request.clone()
    };
    let refused = alone().render_grammar(unspellable).await.unwrap_err();
    assert_eq!(grpc_kit::violations(&refused)[0].0, "nonce");
    let without_tools = RenderGrammarRequest {
        catalogue: Some(ToolCatalogue::default()),
        ..request
    };
    let refused = alone().render_grammar(without_tools).await.unwrap_err();
    let violations = grpc_kit::violations(&refused).into_iter();
    let violations: Vec<_> = violations.map(|(field, _)| field).collect();
    assert_eq!(violations, ["scope"]);
}
