//! `tavern calls`: the calls with an effect id, and decisions about calls in doubt.

mod resolve;

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Subcommand;
use contracts::tavern::registry::v1::call_service_client::CallServiceClient;
use contracts::tavern::registry::v1::watch_call_response::Record;
use contracts::tavern::registry::v1::{
    Call, CallDecision, CallResolution, CallState, GetCallRequest, ListCallsRequest,
    WatchCallRequest,
};
use grpc_kit::Outbound;

use super::{Remote, json, print, print_fields, print_table, refusal, words};
use crate::program;
use crate::timeline::{Style, Timeline, cut, decide_by, name, output_text};

/// Commands for calls.
#[derive(Subcommand)]
pub enum Command {
    /// List calls with an effect id, the newest first. Each attempt at a call is listed by itself.
    #[command(after_help = format!("Example: {} calls list --state in-doubt", program::name()))]
    List {
        /// Only calls in this state.
        #[arg(long, value_parser = words::parser(CallState::as_str_name))]
        state: Option<CallState>,
        /// Only calls of the tool with this id.
        #[arg(long)]
        tool: Option<String>,
        /// Only calls of this conversation.
        #[arg(long)]
        conversation: Option<String>,
        /// Only calls that this run made.
        #[arg(long)]
        run: Option<String>,
        /// The number of calls to list, 1 to 500.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(i32).range(1..=500))]
        limit: i32,
    },
    /// Show a call: its arguments, its end and its decision. `--json` prints the output whole.
    Show {
        /// The effect id of the call.
        effect_id: String,
    },
    /// Follow a call to its end.
    Watch {
        /// The effect id of the call.
        effect_id: String,
        /// The sequence of the last event already seen.
        #[arg(long, default_value_t = 0)]
        after: u64,
    },
    /// Decide about a call in doubt; a run that waits for it continues.
    #[command(after_help = resolve::examples())]
    Resolve(resolve::Resolve),
}

type Calls = CallServiceClient<Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut calls = Calls::new(remote.connect()?);
        match self {
            Self::List {
                state,
                tool,
                conversation,
                run,
                limit,
            } => {
                let request = ListCallsRequest {
                    state: state.unwrap_or_default().into(),
                    tool_id: tool.unwrap_or_default(),
                    conversation_id: conversation.unwrap_or_default(),
                    run_id: run.unwrap_or_default(),
                    page_size: limit,
                    ..ListCallsRequest::default()
                };
                list(&mut calls, request, remote.json).await?;
            }
            Self::Show { effect_id } => {
                let found = calls.get_call(GetCallRequest { effect_id }).await;
                let found = found.map_err(|status| refusal(&status))?.into_inner();
                show(found.call, remote.json)?;
            }
            Self::Watch { effect_id, after } => {
                return watch(&mut calls, effect_id, after, remote.json).await;
            }
            Self::Resolve(resolve) => show(resolve.send(&mut calls).await?, remote.json)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(calls: &mut Calls, request: ListCallsRequest, as_json: bool) -> anyhow::Result<()> {
    let page = calls.list_calls(request).await;
    let page = page.map_err(|status| refusal(&status))?.into_inner();
    if as_json {
        return page.calls.iter().try_for_each(json::print_line);
    }
    let head = ["EFFECT", "STATE", "TOOL", "DISPATCHED", "ERROR"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    rows.extend(page.calls.iter().map(|call| {
        vec![
            call.effect_id.clone(),
            state_of(call),
            call.tool_id.clone(),
            dispatched(call),
            error(call),
        ]
    }));
    print_table(&rows, Some(3));
    Ok(())
}

fn show(call: Option<Call>, as_json: bool) -> anyhow::Result<()> {
    let call = call.context("the answer has no call")?;
    if as_json {
        return json::print_line(&call);
    }
    let decide = match call.state() {
        CallState::InDoubt => decide_by(&call.effect_id, false),
        _ => String::new(),
    };
    print_fields(&[
        ("effect", call.effect_id.clone()),
        ("state", state_of(&call)),
        ("tool", call.tool_id.clone()),
        ("principal", call.principal.clone()),
        ("run", call.run_id.clone()),
        ("conversation", call.conversation_id.clone()),
        ("attempt", call.attempt.to_string()),
        ("dispatched", dispatched(&call)),
        ("run below", call.child_run_id.clone()),
        ("arguments", call.arguments_json.clone()),
        ("output", output(&call)),
        ("error", error(&call)),
        (
            "decision",
            call.resolution.as_ref().map_or_else(String::new, decision),
        ),
        ("decide by", decide),
    ]);
    Ok(())
}

/// Follows a call to its end.
async fn watch(
    calls: &mut Calls,
    effect_id: String,
    mut after_sequence: u64,
    as_json: bool,
) -> anyhow::Result<ExitCode> {
    let request = WatchCallRequest {
        effect_id: effect_id.clone(),
        after_sequence,
        generation: 0,
    };
    let stream = calls.watch_call(request).await;
    let mut stream = stream.map_err(|status| refusal(&status))?.into_inner();
    let mut timeline = Timeline::new(Style::of_stdout());
    while let Some(response) = stream.message().await.map_err(|status| refusal(&status))? {
        if as_json {
            json::print_line(&response)?;
        }
        match response.record {
            Some(Record::Event(event)) => {
                after_sequence = event.sequence;
                if !as_json {
                    print(&timeline.event(&event));
                }
            }
            Some(Record::Terminal(call)) => {
                let succeeded = call.state() == CallState::Succeeded;
                if !as_json {
                    show(Some(call), false)?;
                }
                return Ok(match succeeded {
                    true => ExitCode::SUCCESS,
                    false => ExitCode::FAILURE,
                });
            }
            _ => {}
        }
    }
    bail!(
        "the server ended the stream; continue with `{} calls watch {effect_id} --after {after_sequence}`",
        program::name()
    )
}

fn state_of(call: &Call) -> String {
    name(call.state().as_str_name(), "CALL_STATE_")
}

fn dispatched(call: &Call) -> String {
    let time = call.dispatch_time.as_ref();
    time.map(ToString::to_string).unwrap_or_default()
}

/// Returns the error of a call that did not succeed.
fn error(call: &Call) -> String {
    let error = call
        .result
        .as_ref()
        .and_then(|result| result.error.as_ref());
    error.map_or_else(String::new, |error| {
        format!("{} ({})", error.message, error.code)
    })
}

/// Returns the output, on a terminal its beginning, or its size if the call has no output included.
fn output(call: &Call) -> String {
    let result = call.result.clone().unwrap_or_default();
    let text = output_text(&result);
    match (text.is_empty(), call.output_bytes) {
        (true, 0) => String::new(),
        (true, bytes) => format!("{bytes} bytes"),
        (false, _) => cut(&text, Style::of_stdout().width.unwrap_or(usize::MAX)),
    }
}

fn decision(resolution: &CallResolution) -> String {
    let decided = match resolution.decision() {
        CallDecision::TookEffect => "took effect",
        CallDecision::DidNot => "took no effect",
        CallDecision::Repeat => "repeated",
        CallDecision::Unspecified => "",
    };
    let time = resolution.time.as_ref().map(ToString::to_string);
    let reason = (!resolution.reason.is_empty()).then(|| resolution.reason.clone());
    let parts = [Some(decided.to_owned()), time, reason];
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}
