//! Registered servers that stand in for services of the platform.

use std::{sync::LazyLock, time::Duration};

use core_types::Tenant;
use prost::{DecodeError, Message};
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};
use prost_types::method_options::IdempotencyLevel;
use tonic::{
    Code, Status,
    client::Grpc,
    metadata::{BinaryMetadataKey, BinaryMetadataValue},
};

use super::{Backend, MAX_ANSWER_BYTES, TRIES, codec::DynamicCodec, path_of, timed};

/// The metadata key of the options of the plugin for the tenant, a JSON object.
const OPTIONS: &str = "tavern-options-bin";

/// The contract, as it was compiled.
static CONTRACT: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET).ok());

/// A request to a server that stands in.
#[derive(Clone, Debug)]
pub(crate) struct StandInRequest {
    method: MethodDescriptor,
    message: DynamicMessage,
    /// The tenant.
    tenant: Tenant,
    /// The options of the plugin for the tenant; none if it declares none.
    options: Option<String>,
}

impl StandInRequest {
    /// Reads an encoded message of a method, for a tenant with options of the plugin.
    ///
    /// # Errors
    /// The message is none of the method.
    pub(crate) fn read(
        method: MethodDescriptor,
        message: &[u8],
        (tenant, options): (Tenant, Option<String>),
    ) -> Result<Self, DecodeError> {
        let message = DynamicMessage::decode(method.input(), message)?;
        Ok(Self {
            method,
            message,
            tenant,
            options,
        })
    }

    /// Returns the whole name of the method.
    pub(crate) fn name(&self) -> &str {
        self.method.full_name()
    }

    /// Whether the contract calls the method idempotent.
    fn may_repeat(&self) -> bool {
        let proto = self.method.method_descriptor_proto();
        let level = proto.options.as_ref();
        let level = level.map(|options| options.idempotency_level());
        level.is_some_and(|level| level != IdempotencyLevel::IdempotencyUnknown)
    }
}

/// Returns the methods of a service of the contract, such as `tavern.plugin.v1.InteractionService`; none for a service
/// that the contract does not have.
pub(crate) fn methods_of_contract(service: &str) -> impl Iterator<Item = MethodDescriptor> + use<> {
    let pool = CONTRACT.as_ref();
    let service = pool.and_then(|pool| pool.get_service_by_name(service));
    service
        .into_iter()
        .flat_map(|service| service.methods().collect::<Vec<_>>())
}

impl Backend {
    /// Returns the methods of a service of the contract that the server does not have, in their order there.
    pub(crate) fn missing_methods(&self, service: &str) -> Vec<String> {
        let missing = methods_of_contract(service);
        let missing = missing.filter(|method| !self.has_method(&path_of(method)));
        missing.map(|method| method.name().to_owned()).collect()
    }

    /// Asks the server, which stands in for a service. Where the connection breaks, a method that the contract calls
    /// idempotent is tried again.
    ///
    /// # Errors
    /// The status of the server.
    pub(crate) async fn stand_in(
        &self,
        asked: &StandInRequest,
        limit: Duration,
    ) -> Result<Vec<u8>, Status> {
        let mut tries = if asked.may_repeat() { 1 } else { TRIES };
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
        let mut request = timed(asked.message.clone(), limit, asked.tenant);
        let metadata = request.metadata_mut();
        if let Some(options) = &asked.options {
            let value = BinaryMetadataValue::from_bytes(options.as_bytes());
            metadata.insert_bin(BinaryMetadataKey::from_static(OPTIONS), value);
        }
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_ANSWER_BYTES);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unavailable(error.to_string()))?;
        let path = http::uri::PathAndQuery::try_from(format!("/{}", path_of(&asked.method)));
        let path = path.map_err(|error| Status::internal(error.to_string()))?;
        let answer = grpc.unary(request, path, DynamicCodec::new(asked.method.output()));
        Ok(answer.await?.into_inner().encode_to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tool_domain::{
        manifest::{Fallback, StandIn},
        permissions::OVERRIDABLE_SERVICES,
    };

    #[test]
    fn each_service_that_manifests_override_has_methods_in_the_contract() {
        for service in OVERRIDABLE_SERVICES {
            let stand_in = StandIn {
                service: service.to_owned(),
                backend: String::new(),
                fallback: Fallback::Fail,
            };
            let methods = methods_of_contract(&stand_in.contract());
            assert!(methods.count() > 0, "{service}");
        }
    }
}
