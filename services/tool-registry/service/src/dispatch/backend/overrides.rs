//! Registered servers that stand in for services of the platform.

use std::{sync::LazyLock, time::Duration};

use bytes::Bytes;
use core_types::Tenant;
use prost::Message;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};
use prost_types::method_options::IdempotencyLevel;
use tonic::{
    Code, Request, Status,
    client::Grpc,
    metadata::{BinaryMetadataKey, BinaryMetadataValue},
};

use super::{Backend, MAX_ANSWER_BYTES, TENANT, TRIES, codec::DynamicCodec, insert, path_of};

/// The metadata key of the options of the plugin for the tenant, a JSON object.
const OPTIONS: &str = "tavern-options-bin";

static CONTRACT: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET).ok());

/// A request to a server that stands in.
#[derive(Clone, Debug)]
pub(crate) struct StandInRequest {
    /// The method of the contract.
    pub(crate) method: MethodDescriptor,
    /// The encoded message.
    pub(crate) message: Bytes,
    /// The tenant.
    pub(crate) tenant: Tenant,
    /// The options of the plugin for the tenant; none if it declares none.
    pub(crate) options: Option<String>,
}

/// Returns the methods of a service of the contract, such as `tavern.plugin.v1.InteractionService`; none for a service
/// that the contract does not have.
pub(crate) fn methods_of_contract(service: &str) -> Vec<MethodDescriptor> {
    let pool = CONTRACT.as_ref();
    let service = pool.and_then(|pool| pool.get_service_by_name(service));
    service
        .map(|service| service.methods().collect())
        .unwrap_or_default()
}

impl Backend {
    /// Returns the methods of a service of the contract that the server does not have, sorted by their place there.
    pub(crate) fn missing_methods(&self, service: &str) -> Vec<String> {
        let methods = methods_of_contract(service).into_iter();
        let missing = methods.filter(|method| !self.has_method(&path_of(method)));
        missing.map(|method| method.name().to_owned()).collect()
    }

    /// Asks the server, which stands in for a service. Where the connection breaks, a method that the contract calls
    /// idempotent is tried again.
    ///
    /// # Errors
    /// The status of the server; INVALID_ARGUMENT without its message for a request that is none of the method.
    pub(crate) async fn stand_in(
        &self,
        asked: &StandInRequest,
        limit: Duration,
    ) -> Result<Vec<u8>, Status> {
        let level = asked.method.method_descriptor_proto().options.as_ref();
        let level = level.map(|options| options.idempotency_level());
        let may_repeat = level.is_some_and(|level| level != IdempotencyLevel::IdempotencyUnknown);
        let mut tries = if may_repeat { 1 } else { TRIES };
        let asking = async {
            loop {
                match self.stand_in_once(asked, limit).await {
                    Err(status) if status.code() == Code::Unavailable && tries < TRIES => {
                        tries += 1;
                    }
                    answered => return answered,
                }
            }
        };
        let in_time = tokio::time::timeout(limit, asking).await;
        in_time.unwrap_or_else(|_| Err(Status::deadline_exceeded("")))
    }

    async fn stand_in_once(
        &self,
        asked: &StandInRequest,
        limit: Duration,
    ) -> Result<Vec<u8>, Status> {
        let malformed = |_| Status::internal("the request is none of the contract");
        let method = &asked.method;
        let message =
            DynamicMessage::decode(method.input(), asked.message.clone()).map_err(malformed)?;
        let mut request = Request::new(message);
        request.set_timeout(limit);
        let metadata = request.metadata_mut();
        telemetry::context::inject(metadata.as_mut());
        if !asked.tenant.is_default() {
            insert(metadata, TENANT, asked.tenant.as_str());
        }
        if let Some(options) = &asked.options {
            let value = BinaryMetadataValue::from_bytes(options.as_bytes());
            metadata.insert_bin(BinaryMetadataKey::from_static(OPTIONS), value);
        }
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::try_from(format!("/{}", path_of(method)));
        let path = path.map_err(|error| Status::internal(error.to_string()))?;
        let answer = grpc.unary(request, path, DynamicCodec::new(method.output()));
        Ok(answer.await?.into_inner().encode_to_vec())
    }
}
