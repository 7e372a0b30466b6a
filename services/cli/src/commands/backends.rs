//! `tavern backends`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use contracts::tavern::registry::v1::tool_registry_service_client::ToolRegistryServiceClient;
use contracts::tavern::registry::v1::{
    Backend, DeleteBackendRequest, GetBackendRequest, ListBackendsRequest, PutBackendRequest,
};

use super::{Remote, documents, json, list, print_fields, refusal};

/// The commands about backends.
#[derive(Subcommand)]
pub enum Command {
    /// List backends by name.
    List,
    /// Show a backend with the methods that tools can name.
    Show {
        /// The name of the backend.
        name: String,
    },
    /// Query the gRPC server of a file for its methods and store it, in place of the backend of the
    /// same name.
    #[command(after_help = r#"Example of a file:
  {"name": "crm", "endpoint": "http://127.0.0.1:50051"}

The fields are those of PutBackendRequest: with "validate_only": true nothing is stored, and with an "etag"
only the backend that has it is replaced."#)]
    Put {
        /// A backend file.
        file: PathBuf,
    },
    /// Delete a backend. Calls of tools that are bound to it are rejected until it is stored again.
    Delete {
        /// The name of the backend.
        name: String,
    },
}

type Registry = ToolRegistryServiceClient<grpc_kit::Outbound>;

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut registry = Registry::new(remote.connect()?);
        let refused = |status: tonic::Status| refusal(&status);
        match self {
            Self::List => list(&mut registry, remote.json).await?,
            Self::Show { name } => {
                let found = registry.get_backend(GetBackendRequest { name }).await;
                show(found.map_err(refused)?.into_inner().backend, remote.json)?;
            }
            Self::Put { file } => {
                let request: PutBackendRequest = json::read(&documents::read(&file)?)
                    .with_context(|| format!("{} is not a backend file", file.display()))?;
                let stored = registry.put_backend(request).await;
                show(stored.map_err(refused)?.into_inner().backend, remote.json)?;
            }
            Self::Delete { name } => {
                let request = DeleteBackendRequest {
                    name,
                    ..DeleteBackendRequest::default()
                };
                registry.delete_backend(request).await.map_err(refused)?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

async fn list(registry: &mut Registry, as_json: bool) -> anyhow::Result<()> {
    let row = |backend: &Backend| {
        [
            backend.name.clone(),
            backend.endpoint.clone(),
            backend.methods.len().to_string(),
        ]
    };
    list::print_all(
        as_json,
        ["BACKEND", "ENDPOINT", "METHODS"],
        row,
        async |page_token| {
            let request = ListBackendsRequest {
                page_token,
                ..ListBackendsRequest::default()
            };
            let page = registry.list_backends(request).await?.into_inner();
            Ok((page.backends, page.next_page_token))
        },
    )
    .await
}

fn show(backend: Option<Backend>, as_json: bool) -> anyhow::Result<()> {
    let backend = backend.context("the answer has no backend")?;
    if as_json {
        return json::print_line(&backend);
    }
    print_fields(&[
        ("backend", backend.name),
        ("endpoint", backend.endpoint),
        ("methods", backend.methods.join("\n")),
        ("etag", backend.etag),
    ]);
    Ok(())
}
