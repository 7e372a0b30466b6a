//! Every limit that the contract declares is broken over the wire, one at a time.

mod breakage;

use anyhow::Context;
use contracts::tavern::access::v1::Permission;
use contracts::tavern::common::v1::ErrorReason;
use grpc_kit::{ClientSettings, Transport};
use prost_reflect::DescriptorPool;
use testkit::Stack;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};

use breakage::Breakage;

/// The largest message that is read, in bytes: a larger one is refused before its fields are.
const MAX_MESSAGE: usize = 4 << 20;

#[tokio::test(flavor = "multi_thread")]
async fn every_rule_of_every_field_of_a_request_is_enforced_and_named_by_its_path()
-> anyhow::Result<()> {
    let contract = DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET)?;
    let mut cases = breakage::of_all_methods(&contract);
    // The door refuses a client the methods of services before a message is read.
    let is_of_services = |method: &str| {
        let access = contracts::access::of(method.trim_start_matches('/'));
        access.is_some_and(|access| access.permission() == Permission::Peer)
    };
    cases.retain(|case| !is_of_services(&case.method));
    let rules: std::collections::BTreeSet<&str> =
        cases.iter().map(|case| case.rule.as_str()).collect();
    println!(
        "{} rules are broken in {} requests",
        rules.len(),
        cases.len()
    );
    assert!(!rules.is_empty(), "the contract declares no rules");

    let stack = Stack::all_in_one().await?;
    let transport = grpc_kit::remote(&ClientSettings::to(stack.address()))?;
    let mut wrong = Vec::new();
    for case in &cases {
        let Err(status) = send(&transport, case).await? else {
            wrong.push(format!("{case} was accepted"));
            continue;
        };
        if case.request.len() > MAX_MESSAGE && status.code() == Code::ResourceExhausted {
            continue;
        }
        let fields: Vec<String> = grpc_kit::violations(&status)
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        let refused = status.code() == Code::InvalidArgument
            && grpc_kit::reason(&status) == Some(ErrorReason::InvalidFields);
        if !refused || fields != [case.path.as_str()] {
            wrong.push(format!("{case} gave {fields:?}: {status}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// Sends one request as a stream, which on the wire a single request is too.
async fn send(transport: &Transport, case: &Breakage) -> anyhow::Result<Result<(), Status>> {
    let mut client = tonic::client::Grpc::new(transport.outermost());
    client.ready().await.context("the stack is ready")?;
    let path = PathAndQuery::try_from(case.method.as_str())?;
    let request = Request::new(tokio_stream::once(case.request.clone()));
    let mut answers = match client.streaming(request, path, RawCodec).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return Ok(Err(status)),
    };
    // One answer is enough to see that the request was accepted.
    Ok(answers.message().await.map(|_| ()))
}

/// Sends bytes as they are, and reads no answer.
#[derive(Clone, Copy, Default)]
pub(crate) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = ();
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        let bytes = bytes::Buf::remaining(buffer);
        bytes::Buf::advance(buffer, bytes);
        Ok(Some(()))
    }
}
