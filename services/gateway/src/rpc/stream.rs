//! Reading a text while the model is still writing it.

use std::sync::Arc;

use async_stream::try_stream;
use call_catalogue::Catalogue;
use call_prompt::echo::Echo;
use call_text::{Block, Call, Event, FinishReason, Parser, ToolState};
use contracts::tavern::gateway::v1::stream_text_request::Part;
use contracts::tavern::gateway::v1::stream_text_response::Event as Wire;
use contracts::tavern::gateway::v1::{
    ArgumentDelta, BlockClosed, BlockOpened, CallOpened, CallProblem, StreamTextRequest,
    StreamTextResponse, StreamedCall, TextReleased,
};
use futures::stream::BoxStream;
use grpc_kit::{CallContext, Failure};
use tonic::{Status, Streaming};

use super::GatewayRpc;
use super::parse::supplement;
use super::request::{check_end, check_stream};

type Answers = BoxStream<'static, Result<StreamTextResponse, Status>>;

impl GatewayRpc {
    /// Reads the start and returns the stream of the findings after it.
    pub(super) async fn stream(
        &self,
        context: &CallContext,
        mut requests: Streaming<StreamTextRequest>,
    ) -> Result<Answers, Status> {
        let first = requests.message().await?.and_then(|request| request.part);
        let Some(Part::Start(start)) = first else {
            return Err(misplaced("part", "must be the start in the first request"));
        };
        let reading = check_stream(start)?;
        let catalogue = self.load(context, reading.tools).await?.catalogue;
        let echo = Echo::new(reading.untrusted.iter().map(String::as_str));
        let mut parser = Parser::new(catalogue.clone(), reading.policy.clone());
        let most = self.max_text;
        Ok(Box::pin(try_stream! {
            let mut bytes = 0;
            let (mut finish_reason, mut native) = (FinishReason::Unknown, None);
            while let Some(request) = requests.message().await? {
                match request.part {
                    Some(Part::Chunk(chunk)) => {
                        bytes += chunk.len();
                        if bytes > most {
                            Err(misplaced("chunk", &format!("makes the text longer than {most} bytes")))?;
                        }
                        for event in parser.push_bytes(&chunk) {
                            yield response(event, &catalogue, &echo);
                        }
                    }
                    Some(Part::End(end)) => {
                        finish_reason = FinishReason::from_words(&end.finish_reason);
                        native = check_end(&end)?;
                        break;
                    }
                    Some(Part::Start(_)) => Err(misplaced("part", "is a second start"))?,
                    None => Err(misplaced("part", "is missing"))?,
                }
            }
            let (events, mut parsed) = parser.finish(finish_reason);
            for event in events {
                yield response(event, &catalogue, &echo);
            }
            if let Some(native) = &native {
                supplement(&mut parsed, native, &catalogue, &reading.policy);
            }
            let parsed = call_wire::parsed_to_proto(&parsed, &catalogue, &echo);
            yield StreamTextResponse { event: Some(Wire::Parsed(parsed)) };
        }))
    }
}

fn misplaced(field: &str, problem: &str) -> Status {
    let failure = Failure::invalid_fields();
    failure.violation(field, problem).into_status()
}

fn response(event: Event, catalogue: &Catalogue, echo: &Echo) -> StreamTextResponse {
    let event = match event {
        Event::Text {
            span,
            text,
            trailing,
        } => {
            let span = Some(call_wire::span_to_proto(span));
            Wire::Text(TextReleased {
                text,
                span,
                trailing,
                thought: false,
            })
        }
        Event::Thought { span, text, .. } => {
            let span = Some(call_wire::span_to_proto(span));
            Wire::Text(TextReleased {
                text,
                span,
                trailing: false,
                thought: true,
            })
        }
        Event::BlockOpened { block, dialect, at } => Wire::BlockOpened(BlockOpened {
            block: number(block),
            dialect: call_wire::dialect_to_proto(dialect).into(),
            start: number(at),
        }),
        Event::CallOpened {
            block,
            call,
            name,
            tool,
            ..
        } => Wire::CallOpened(call_opened(number(block), number(call), name, tool)),
        Event::ArgumentDelta {
            block,
            call,
            argument,
            name,
            text,
        } => Wire::ArgumentDelta(ArgumentDelta {
            block: number(block),
            call: number(call),
            argument: number(argument),
            written_name: name,
            text,
        }),
        Event::BlockClosed {
            block,
            state,
            calls,
        } => Wire::BlockClosed(block_closed(number(block), &state, &calls, catalogue, echo)),
        Event::Diagnostic(remark) => Wire::Diagnostic(call_wire::diagnostic_to_proto(&remark)),
    };
    StreamTextResponse { event: Some(event) }
}

fn call_opened(block: u32, call: u32, written_name: String, tool: ToolState) -> CallOpened {
    let (tool_id, problem, suggestions) = match tool {
        ToolState::Visible(tool_id) => (tool_id, CallProblem::Unspecified, Vec::new()),
        ToolState::NotAvailable => (String::new(), CallProblem::ToolNotAvailable, Vec::new()),
        ToolState::Removed => (String::new(), CallProblem::ToolRemoved, Vec::new()),
        ToolState::Unknown(suggestions) => (String::new(), CallProblem::UnknownTool, suggestions),
    };
    CallOpened {
        block,
        call,
        written_name,
        tool_id,
        stop_generating: problem != CallProblem::Unspecified,
        problem: problem.into(),
        suggestions,
    }
}

fn block_closed(
    block: u32,
    state: &Block,
    calls: &[Arc<Call>],
    catalogue: &Catalogue,
    echo: &Echo,
) -> BlockClosed {
    let calls = calls.iter().zip(0..).map(|(call, index)| {
        let written = call_wire::call_with_diagnostics_to_proto(index, call, catalogue, echo);
        let read_only = catalogue
            .tool(&call.tool_id)
            .is_some_and(|tool| tool.read_only);
        let may_start = call.is_ready() && written.problems.is_empty() && read_only;
        StreamedCall {
            call: Some(written),
            may_start,
        }
    });
    BlockClosed {
        block,
        runs: state.runs,
        problems: state
            .problems
            .iter()
            .map(call_wire::problem_to_proto)
            .collect(),
        calls: calls.collect(),
    }
}

/// A position in a text as 32 bits. A text is at most 1 MiB long, so it fits; larger ones saturate.
fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
