//! Reading the services of a server, by server reflection.
//!
//! Version 1 of the protocol is tried first, then v1alpha; the messages are the same on the wire.

use std::{collections::BTreeMap, time::Duration};

use futures::StreamExt;
use http::uri::PathAndQuery;
use prost::Message;
use prost_reflect::DescriptorPool;
use prost_types::{FileDescriptorProto, FileDescriptorSet};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;
use tonic_reflection::pb::v1::{
    ServerReflectionRequest, ServerReflectionResponse, server_reflection_request::MessageRequest,
    server_reflection_response::MessageResponse,
};

use super::refusal::distrust;

const METHODS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];
const TIME_LIMIT: Duration = Duration::from_secs(15);
const MAX_FILES: usize = 512;
const MAX_BYTES: usize = 4 << 20;

/// Returns a serialised `FileDescriptorSet` of all services that a server offers. The error is the
/// failure and the remedy.
pub(super) async fn read(channel: Channel) -> Result<Vec<u8>, String> {
    let reading = async {
        let mut last = String::new();
        for method in METHODS {
            match read_by(channel.clone(), method).await {
                Ok(descriptors) => return Ok(descriptors),
                Err(Problem::NotOffered) => {
                    last = "it has no server reflection; switch reflection on".to_owned();
                }
                Err(Problem::Other(problem)) => return Err(problem),
            }
        }
        Err(last)
    };
    match tokio::time::timeout(TIME_LIMIT, reading).await {
        Ok(read) => read,
        Err(_) => Err(format!(
            "it did not answer within {} s",
            TIME_LIMIT.as_secs()
        )),
    }
}

enum Problem {
    NotOffered,
    Other(String),
}

impl From<Status> for Problem {
    fn from(status: Status) -> Self {
        match status.code() {
            Code::Unimplemented => Self::NotOffered,
            code => {
                let said = || format!("{}: {}", code.description(), status.message());
                Self::Other(distrust(&status).unwrap_or_else(said))
            }
        }
    }
}

async fn read_by(channel: Channel, method: &'static str) -> Result<Vec<u8>, Problem> {
    let mut session = Session::open(channel, method).await?;
    let services = session.services().await?;
    for service in services
        .iter()
        .filter(|service| !service.starts_with("grpc."))
    {
        session
            .ask(MessageRequest::FileContainingSymbol(service.clone()))
            .await?;
    }
    while let Some(missing) = session.missing_dependency() {
        let before = session.files.len();
        session
            .ask(MessageRequest::FileByFilename(missing.clone()))
            .await?;
        if session.files.len() == before && !session.take_well_known(&missing) {
            return Err(Problem::Other(format!(
                "it does not give the file '{missing}' that it imports"
            )));
        }
    }
    if services.is_empty() {
        return Err(Problem::Other("it lists no services".to_owned()));
    }
    let file = session.files.into_values();
    let file = file.map(|file| only_served(file, &services)).collect();
    Ok(FileDescriptorSet { file }.encode_to_vec())
}

/// Removes the services of a file that the server does not list: it describes them for their messages.
fn only_served(mut file: FileDescriptorProto, services: &[String]) -> FileDescriptorProto {
    let package = file.package().to_owned();
    file.service.retain(|service| {
        let name = match package.as_str() {
            "" => service.name().to_owned(),
            package => format!("{package}.{}", service.name()),
        };
        services.contains(&name)
    });
    file
}

/// One conversation with a server.
struct Session {
    requests: mpsc::Sender<ServerReflectionRequest>,
    answers: Streaming<ServerReflectionResponse>,
    /// By name, so that the same files are always described in the same order.
    files: BTreeMap<String, FileDescriptorProto>,
    bytes: usize,
}

impl Session {
    async fn open(channel: Channel, method: &'static str) -> Result<Self, Problem> {
        let mut grpc = Grpc::new(channel).max_decoding_message_size(MAX_BYTES);
        grpc.ready()
            .await
            .map_err(|error| Problem::Other(format!("it cannot be reached: {error}")))?;
        let (requests, receiver) = mpsc::channel(1);
        // A server may wait for the first request before it answers at all.
        let first = request(MessageRequest::ListServices(String::new()));
        let opening = async {
            let codec = ProstCodec::<ServerReflectionRequest, ServerReflectionResponse>::default();
            let stream = Request::new(ReceiverStream::new(receiver));
            grpc.streaming(stream, PathAndQuery::from_static(method), codec)
                .await
        };
        let (sent, opened) = tokio::join!(requests.send(first), opening);
        let answers = opened?.into_inner();
        sent.map_err(|_| Problem::Other("it closed the stream".to_owned()))?;
        Ok(Self {
            requests,
            answers,
            files: BTreeMap::new(),
            bytes: 0,
        })
    }

    /// Reads the answer to the question that the session was opened with.
    async fn services(&mut self) -> Result<Vec<String>, Problem> {
        match self.answer().await? {
            Some(MessageResponse::ListServicesResponse(list)) => Ok(list
                .service
                .into_iter()
                .map(|service| service.name)
                .collect()),
            _ => Err(Problem::Other("it does not list its services".to_owned())),
        }
    }

    async fn ask(&mut self, question: MessageRequest) -> Result<(), Problem> {
        let closed = || Problem::Other("it closed the stream".to_owned());
        self.requests
            .send(request(question))
            .await
            .map_err(|_| closed())?;
        let Some(MessageResponse::FileDescriptorResponse(answer)) = self.answer().await? else {
            return Ok(());
        };
        for bytes in answer.file_descriptor_proto {
            self.bytes += bytes.len();
            let file = FileDescriptorProto::decode(bytes.as_slice())
                .map_err(|error| Problem::Other(format!("a file is not a descriptor: {error}")))?;
            self.files.insert(file.name().to_owned(), file);
            if self.files.len() > MAX_FILES || self.bytes > MAX_BYTES {
                let message =
                    format!("it describes more than {MAX_FILES} files or {MAX_BYTES} bytes");
                return Err(Problem::Other(message));
            }
        }
        Ok(())
    }

    async fn answer(&mut self) -> Result<Option<MessageResponse>, Problem> {
        match self.answers.next().await {
            Some(answer) => Ok(answer?.message_response),
            None => Err(Problem::Other("it closed the stream".to_owned())),
        }
    }

    /// Takes one of the files that come with protobuf, which some servers leave out.
    fn take_well_known(&mut self, name: &str) -> bool {
        let Some(file) = DescriptorPool::global().get_file_by_name(name) else {
            return false;
        };
        self.files
            .insert(name.to_owned(), file.file_descriptor_proto().clone());
        true
    }

    /// Returns a file that another one imports and that did not come yet.
    fn missing_dependency(&self) -> Option<String> {
        self.files
            .values()
            .flat_map(|file| &file.dependency)
            .find(|name| !self.files.contains_key(*name))
            .cloned()
    }
}

fn request(question: MessageRequest) -> ServerReflectionRequest {
    ServerReflectionRequest {
        host: String::new(),
        message_request: Some(question),
    }
}
