//! The least that a gRPC call can be: tonic's own server and client, no layers, no work.

use std::net::SocketAddr;
use std::pin::Pin;

use contracts::tavern::agent::v1::generate_response::Piece;
use contracts::tavern::agent::v1::model_service_client::ModelServiceClient;
use contracts::tavern::agent::v1::model_service_server::{ModelService, ModelServiceServer};
use contracts::tavern::agent::v1::{
    GenerateRequest, GenerateResponse, ListModelsRequest, ListModelsResponse,
};
use contracts::tavern::common::v1::{ChatMessage, ChatRole};
use futures::{Stream, StreamExt};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

/// A service of the contract that only answers; its purpose in the product does not matter here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Echo;

/// A call of the echo in this process, without anything in between.
pub(crate) type LocalEcho = ModelServiceClient<ModelServiceServer<Echo>>;

/// A call of the echo over a socket.
pub(crate) type SocketEcho = ModelServiceClient<Channel>;

#[tonic::async_trait]
impl ModelService for Echo {
    type GenerateStream = Pin<Box<dyn Stream<Item = Result<GenerateResponse, Status>> + Send>>;

    async fn list_models(
        &self,
        request: Request<ListModelsRequest>,
    ) -> Result<Response<ListModelsResponse>, Status> {
        let next_page_token = request.into_inner().page_token;
        Ok(Response::new(ListModelsResponse {
            next_page_token,
            ..ListModelsResponse::default()
        }))
    }

    async fn generate(
        &self,
        request: Request<GenerateRequest>,
    ) -> Result<Response<Self::GenerateStream>, Status> {
        let request = request.into_inner();
        let answers = (0..request.max_output_tokens).map(move |_| {
            Ok(GenerateResponse {
                piece: Some(Piece::Text(request.model.clone())),
            })
        });
        Ok(Response::new(Box::pin(tokio_stream::iter(answers))))
    }
}

/// Returns a client that calls the service in this process.
pub(crate) fn local() -> LocalEcho {
    ModelServiceClient::new(ModelServiceServer::new(Echo))
}

/// Serves on a loopback socket and returns a client of it.
///
/// # Errors
/// The socket cannot be had.
pub(crate) async fn over_socket() -> anyhow::Result<SocketEcho> {
    let incoming =
        TcpIncoming::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?.with_nodelay(Some(true));
    let address = incoming.local_addr()?;
    let server = Server::builder().add_service(ModelServiceServer::new(Echo));
    // It ends with the process.
    tokio::spawn(server.serve_with_incoming(incoming));
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    Ok(ModelServiceClient::new(endpoint.connect().await?))
}

/// Returns a message of `bytes` to be echoed.
pub(crate) fn message(bytes: usize) -> ListModelsRequest {
    ListModelsRequest {
        page_token: "e".repeat(bytes),
        ..ListModelsRequest::default()
    }
}

/// Returns a request that is answered with `count` messages of `bytes`.
pub(crate) fn messages(count: u32, bytes: usize) -> GenerateRequest {
    GenerateRequest {
        model: "e".repeat(bytes),
        // The contract requires one.
        messages: vec![ChatMessage {
            role: ChatRole::User.into(),
            ..ChatMessage::default()
        }],
        max_output_tokens: count,
        ..GenerateRequest::default()
    }
}

/// Reads a stream of answers to its end.
///
/// # Errors
/// The stream fails.
pub(crate) async fn drain(mut answers: tonic::Streaming<GenerateResponse>) -> anyhow::Result<()> {
    while let Some(answer) = answers.next().await {
        std::hint::black_box(answer?);
    }
    Ok(())
}
