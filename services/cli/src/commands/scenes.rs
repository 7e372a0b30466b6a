//! `tavern scenes`.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use contracts::tavern::agent::v1::scene_service_client::SceneServiceClient;
use contracts::tavern::agent::v1::{
    EndSceneRequest, GetSceneStatusRequest, ListScenesRequest, PublishEventRequest,
    StartSceneRequest, publish_event_request::Scene,
};
use contracts::tavern::common::v1::EventPriority;

use super::{Remote, json, list, print, print_table, refusal, runs, words};
use crate::timeline::name;

/// The commands about scenes.
#[derive(Subcommand)]
pub enum Command {
    /// List scenes by id.
    List,
    /// Start a scene, and print its run.
    Start {
        /// The id of the scene.
        scene_id: String,
        /// The request id; the same id returns the same run.
        #[arg(long)]
        request_id: Option<String>,
        /// Follow the scene to its end.
        #[arg(long)]
        follow: bool,
    },
    /// Show the agents of a scene and the events that wait for them.
    Status {
        /// The run of the scene.
        run_id: String,
    },
    /// Publish an event in a scene.
    Publish(Publish),
    /// End a scene.
    End {
        /// The run of the scene.
        run_id: String,
        /// A human-readable reason.
        #[arg(long)]
        reason: Option<String>,
    },
}

/// An event to publish.
#[derive(Args)]
pub struct Publish {
    /// The run of the scene.
    run_id: String,
    /// The type of the event, such as `player.action.speak`.
    event_type: String,
    /// The data: a JSON object.
    #[arg(default_value = "{}")]
    payload: String,
    /// The publisher of the event.
    #[arg(long)]
    from: Option<String>,
    /// A target instance; may be given several times. Default: all that subscribe to its type.
    #[arg(long)]
    to: Vec<String>,
    /// The priority.
    #[arg(long, default_value = "normal", value_parser = words::parser(EventPriority::as_str_name))]
    priority: EventPriority,
    /// The request id; the same id publishes once.
    #[arg(long)]
    request_id: Option<String>,
}

type Scenes = SceneServiceClient<grpc_kit::Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut scenes = Scenes::new(remote.connect()?);
        let refused = |status: tonic::Status| refusal(&status);
        match self {
            Self::List => list(&mut scenes, remote.json).await?,
            Self::Start {
                scene_id,
                request_id,
                follow,
            } => {
                let request = StartSceneRequest {
                    request_id: request_id.unwrap_or_default(),
                    scene_id,
                    timeout: None,
                };
                let started = scenes.start_scene(request).await.map_err(refused)?;
                return runs::started(remote, started.into_inner().run, follow).await;
            }
            Self::Status { run_id } => status(&mut scenes, run_id, remote.json).await?,
            Self::Publish(publish) => {
                let published = scenes.publish_event(publish.request()).await;
                let published = published.map_err(refused)?.into_inner();
                if remote.json {
                    json::print_line(&published)?;
                } else {
                    let to = match published.delivered_to.as_slice() {
                        [] => "no agent".to_owned(),
                        instances => instances.join(", "),
                    };
                    print(&format!("{} for {to}\n", published.event_id));
                }
            }
            Self::End { run_id, reason } => {
                let reason = reason.unwrap_or_default();
                let request = EndSceneRequest { run_id, reason };
                scenes.end_scene(request).await.map_err(refused)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Publish {
    fn request(self) -> PublishEventRequest {
        PublishEventRequest {
            scene: Some(Scene::RunId(self.run_id)),
            request_id: self.request_id.unwrap_or_default(),
            r#type: self.event_type,
            payload_json: self.payload,
            target_instance_ids: self.to,
            priority: self.priority.into(),
            source_id: self.from.unwrap_or_default(),
            ..PublishEventRequest::default()
        }
    }
}

async fn list(scenes: &mut Scenes, as_json: bool) -> anyhow::Result<()> {
    let row = |scene: &contracts::tavern::agent::v1::Scene| {
        let agents = scene.agents.iter().map(|agent| agent.instance_id.as_str());
        let agents = agents.collect::<Vec<_>>().join(", ");
        [scene.scene_id.clone(), scene.name.clone(), agents]
    };
    list::print_all(
        as_json,
        ["SCENE", "NAME", "AGENTS"],
        row,
        async |page_token| {
            let request = ListScenesRequest {
                page_token,
                ..ListScenesRequest::default()
            };
            let page = scenes.list_scenes(request).await?.into_inner();
            Ok((page.scenes, page.next_page_token))
        },
    )
    .await
}

async fn status(scenes: &mut Scenes, run_id: String, as_json: bool) -> anyhow::Result<()> {
    let head = ["AGENT", "PROFILE", "STATE", "WAITING", "CONVERSATION"].map(str::to_owned);
    let mut rows = vec![head.to_vec()];
    let request = GetSceneStatusRequest { run_id };
    let found = scenes.get_scene_status(request).await;
    let found = found.map_err(|status| refusal(&status))?.into_inner();
    for instance in found.instances {
        if as_json {
            json::print_line(&instance)?;
            continue;
        }
        let state = name(instance.state().as_str_name(), "INSTANCE_STATE_");
        let waiting = instance.waiting.len() + instance.queued_run_ids.len();
        rows.push(vec![
            instance.instance_id,
            instance.profile_id,
            state,
            waiting.to_string(),
            instance.conversation_id,
        ]);
    }
    if !as_json {
        print_table(&rows, None);
    }
    Ok(())
}
