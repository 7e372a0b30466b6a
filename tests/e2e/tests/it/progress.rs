//! Progress reports of a script, as the followers of its run see them.

use contracts::tavern::{
    common::v1::{ProgressReported, RunEvent, run_event::Kind},
    workflow::v1::{StartRunRequest, start_run_request::Target},
};
use serde_json::json;
use testkit::{Followed, Stack, collect, invoke};

use crate::text::model_text;

const CODE: &str = "import os
with open(int(os.environ['TAVERN_PROGRESS_FD']), 'w') as progress:
    print('{\"progress\": 0.4, \"message\": \"reading\"}', file=progress)
    print('nonsense', file=progress)";

/// Returns the only report of a run, and whether it came before the work had ended.
fn report(run: &Followed, ended: fn(&Kind) -> bool) -> (ProgressReported, bool) {
    let kinds = || {
        run.events
            .iter()
            .filter_map(|event: &RunEvent| event.kind.as_ref())
    };
    let reports: Vec<_> = kinds()
        .filter_map(|kind| match kind {
            Kind::ProgressReported(report) => Some(report.clone()),
            _ => None,
        })
        .collect();
    let [report] = &*reports else {
        panic!("{:?}", run.events);
    };
    let place = kinds().position(|kind| matches!(kind, Kind::ProgressReported(_)));
    (report.clone(), place < kinds().position(ended))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_progress_of_a_tools_script_is_an_event_of_the_run() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let text = format!(
        "<ACTION><CodeInterpreter:execute><language>python</language><code><![CDATA[\n{CODE}\n]]></code>\
         </CodeInterpreter:execute></ACTION>"
    );
    let run = invoke(&stack.gateway(), model_text(&text)).await?;
    let (report, is_early) = report(&run, |kind| matches!(kind, Kind::CallSettled(_)));
    let expected = ProgressReported {
        effect_id: format!("{}/invocation/0", run.run.run_id),
        fraction: Some(0.4),
        message: "reading".to_owned(),
        ..ProgressReported::default()
    };
    assert_eq!((report, is_early), (expected, true));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_progress_of_a_nodes_script_names_the_node() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let definition = json!({
        "nodes": [{"id": "work", "type": "core:Script", "inputValues": {"code": CODE}}],
        "edges": [],
    });
    let request = StartRunRequest {
        target: Some(Target::DefinitionJson(definition.to_string())),
        inputs_json: "{}".to_owned(),
        ..StartRunRequest::default()
    };
    let started = stack.workflow().start_run(request).await?.into_inner();
    let run_id = started.run.unwrap_or_default().run_id;
    let run = collect(&stack.runs(), &run_id, 0).await?;
    let (report, is_early) = report(&run, |kind| matches!(kind, Kind::NodeFinished(_)));
    assert_eq!((&*report.node_id, report.fraction), ("work", Some(0.4)));
    assert_eq!((&*report.message, is_early), ("reading", true));
    Ok(())
}
