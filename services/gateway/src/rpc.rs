//! The methods of the gateway, one file per family.

mod catalogue;
mod invoke;
mod parse;
mod policy;
mod problems;
mod prompt;
mod request;
mod runs;
mod stream;

use contracts::tavern::gateway::v1 as wire;
use contracts::tavern::gateway::v1::gateway_service_server::GatewayService;
use futures::stream::BoxStream;
use grpc_kit::{CallContext, Drain};
use tonic::{Request, Response, Status};

use crate::catalogues::Catalogues;
use crate::peers::Peers;

/// Bytes that a request may have in addition to its text: untrusted texts, native calls and a
/// catalogue, or the messages from before a turn.
pub(crate) const REQUEST_HEADROOM: usize = (2 << 20) + catalogue::MAX_BYTES + (256 << 10);

/// The methods of the gateway.
#[derive(Clone, Debug)]
pub(crate) struct GatewayRpc {
    peers: Peers,
    catalogues: Catalogues,
    max_text: usize,
}

impl GatewayRpc {
    pub(crate) fn new(peers: Peers, max_text: usize) -> Self {
        let catalogues = Catalogues::new(&peers);
        Self {
            peers,
            catalogues,
            max_text,
        }
    }
}

#[tonic::async_trait]
impl GatewayService for GatewayRpc {
    async fn parse_text(
        &self,
        request: Request<wire::ParseTextRequest>,
    ) -> Result<Response<wire::ParseTextResponse>, Status> {
        let context = CallContext::of(&request);
        let parsed = self.parse(&context, request.into_inner()).await;
        parsed.map(Response::new)
    }

    type StreamTextStream = BoxStream<'static, Result<wire::StreamTextResponse, Status>>;

    async fn stream_text(
        &self,
        request: Request<tonic::Streaming<wire::StreamTextRequest>>,
    ) -> Result<Response<Self::StreamTextStream>, Status> {
        let context = CallContext::of(&request);
        let streamed = self.stream(&context, request.into_inner()).await;
        streamed.map(Response::new)
    }

    async fn render_call(
        &self,
        request: Request<wire::RenderCallRequest>,
    ) -> Result<Response<wire::RenderCallResponse>, Status> {
        let context = CallContext::of(&request);
        let written = self.write_call(&context, request.into_inner()).await;
        written.map(Response::new)
    }

    type InvokeTextStream = BoxStream<'static, Result<wire::InvokeTextResponse, Status>>;

    async fn invoke_text(
        &self,
        request: Request<wire::InvokeTextRequest>,
    ) -> Result<Response<Self::InvokeTextStream>, Status> {
        let (context, drain) = (CallContext::of(&request), Drain::of(&request));
        self.invoke(&context, request.into_inner(), drain)
            .await
            .map(Response::new)
    }

    async fn start_text(
        &self,
        request: Request<wire::StartTextRequest>,
    ) -> Result<Response<wire::StartTextResponse>, Status> {
        let context = CallContext::of(&request);
        let started = self.start(&context, request.into_inner().into()).await?;
        Ok(Response::new(started))
    }

    async fn render_tools(
        &self,
        request: Request<wire::RenderToolsRequest>,
    ) -> Result<Response<wire::RenderToolsResponse>, Status> {
        let context = CallContext::of(&request);
        let rendered = self.render(&context, request.into_inner()).await;
        rendered.map(Response::new)
    }

    async fn render_grammar(
        &self,
        request: Request<wire::RenderGrammarRequest>,
    ) -> Result<Response<wire::RenderGrammarResponse>, Status> {
        let context = CallContext::of(&request);
        let written = self.write_grammar(&context, request.into_inner()).await;
        written.map(Response::new)
    }
}
