//! Methods of registered gRPC servers.
//!
//! The methods are read by server reflection when a server is registered, and kept: a call needs
//! no further question, and after a restart the server need not be up until it is called.

mod allowed;
mod codec;
mod exchange;
mod hooks;
mod overrides;
mod reflection;
mod refusal;
mod servers;
mod streaming;

use call_outcome::{CallOutcome, Category, Failure, Violation};
use std::{collections::HashMap, sync::Arc, time::Duration};

use core_types::Tenant;
use grpc_kit::tls::TlsError;
use prost_reflect::{DescriptorPool, DynamicMessage, MethodDescriptor};
use prost_types::method_options::IdempotencyLevel;
use sha2::{Digest, Sha256};
use tonic::{
    Request, Status,
    client::Grpc,
    metadata::{AsciiMetadataValue, BinaryMetadataKey, BinaryMetadataValue, MetadataMap},
    transport::{Channel, Endpoint},
};

use super::ResolvedCall;
use crate::store::StoreError;
pub use allowed::AllowedHosts;
use codec::DynamicCodec;
use exchange::Exchange;
pub use hooks::APPLY as APPLY_HOOK;
pub(crate) use overrides::{StandInRequest, methods_of_contract};
pub use servers::{Backends, Found, Servers};
use tool_domain::definition::Flags;

/// The metadata key of the effect id; an id that is not plain ASCII has `-bin` behind the key.
pub const EFFECT_ID: &str = "tavern-effect-id";
/// The metadata key of the conversation id; an id that is not plain ASCII has `-bin` behind the key.
pub const CONVERSATION_ID: &str = "tavern-conversation-id";
/// The metadata key of the tenant of a call, which the default one does not have. Equal effect and conversation ids of
/// two tenants are two things.
pub const TENANT: &str = "tavern-tenant";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ANSWER_BYTES: usize = 4 << 20;
/// The most times that a request is sent while connections drop it before any of it was taken.
const TRIES: u32 = 3;

/// The reason for which a server cannot be registered.
#[derive(Debug, thiserror::Error)]
pub enum BackendError {
    /// The address is not valid.
    #[error(
        "'{endpoint}' is not a valid address of a gRPC server; write it like http://127.0.0.1:50051 or \
         https://tools.example.com"
    )]
    Address {
        /// The address as it was given.
        endpoint: String,
    },
    /// The settings do not allow the address.
    #[error(
        "'{endpoint}' is neither on loopback nor on a host that the setting backend_hosts lists; add its host there"
    )]
    NotAllowed {
        /// The address as it was given.
        endpoint: String,
    },
    /// The settings do not allow the address to a tenant that is not the operator's own.
    #[error(
        "'{endpoint}' is not on a host that the setting backend_hosts lists, which this tenant needs for loopback too; \
         ask the operator of the installation to add its host there"
    )]
    NotListed {
        /// The address as it was given.
        endpoint: String,
    },
    /// The CAs of `https` addresses cannot be used.
    #[error("the CAs for '{endpoint}' cannot be used; the setting backend_ca names their file")]
    Tls {
        /// The address as it was given.
        endpoint: String,
        /// The fault of the CAs.
        source: TlsError,
    },
    /// The server does not answer, or not by reflection.
    #[error("the server at {endpoint} could not be read: {problem}")]
    Unreadable {
        /// The address.
        endpoint: String,
        /// The problem, and the remedy.
        problem: String,
    },
    /// Its description of itself is not valid.
    #[error("the server at {endpoint} returned an invalid description of itself: {problem}")]
    Descriptors {
        /// The address.
        endpoint: String,
        /// The defect of the description.
        problem: String,
    },
}

/// A registered server.
#[derive(Clone, Debug)]
pub struct Backend {
    /// The name by which tool definitions speak of it.
    pub name: String,
    /// The address of the server.
    pub endpoint: String,
    /// A serialised `FileDescriptorSet` of all services that it offers.
    pub descriptors: Vec<u8>,
    /// The principal as which the server calls Tavern; empty if it is not stated.
    pub principal: String,
    /// Changes with the address, the descriptors or the principal.
    pub etag: String,
    channel: Channel,
    methods: HashMap<String, MethodDescriptor>,
}

impl Backend {
    /// Takes a server whose descriptors are known.
    fn known(
        name: &str,
        endpoint: &str,
        descriptors: Vec<u8>,
        channel: Channel,
    ) -> Result<Self, BackendError> {
        let pool = DescriptorPool::decode(descriptors.as_slice()).map_err(|error| {
            BackendError::Descriptors {
                endpoint: endpoint.to_owned(),
                problem: error.to_string(),
            }
        })?;
        let methods = pool
            .services()
            .filter(|service| !service.full_name().starts_with("grpc."))
            .flat_map(|service| service.methods().collect::<Vec<_>>())
            .filter(|method| !method.is_client_streaming())
            .map(|method| (path_of(&method), method))
            .collect();
        Ok(Self {
            name: name.to_owned(),
            endpoint: endpoint.to_owned(),
            principal: String::new(),
            etag: etag_of(endpoint, &descriptors),
            descriptors,
            channel,
            methods,
        })
    }

    /// Sets the principal as which the server calls Tavern.
    #[must_use]
    pub fn calling_as(mut self, principal: &str) -> Self {
        principal.clone_into(&mut self.principal);
        if !principal.is_empty() {
            self.etag = etag_of(&self.etag, principal.as_bytes());
        }
        self
    }

    /// Returns the effects that a method declares by its `idempotency_level`; none if the method is
    /// not known or declares none.
    pub fn flags_of(&self, method: &str) -> Option<Flags> {
        let descriptor = self.methods.get(method)?.method_descriptor_proto();
        let level = descriptor.options.as_ref()?.idempotency_level();
        let read_only = match level {
            IdempotencyLevel::IdempotencyUnknown => return None,
            IdempotencyLevel::NoSideEffects => true,
            IdempotencyLevel::Idempotent => false,
        };
        Some(Flags {
            read_only,
            idempotent: true,
            // Whether calls may be in flight together is not said, and no matter of effects.
            parallel_safe: true,
            ..Flags::default()
        })
    }

    /// Whether it has a method that takes one message, `package.Service/Method`.
    pub fn has_method(&self, method: &str) -> bool {
        self.methods.contains_key(method)
    }

    /// Returns the methods that take one message as `package.Service/Method`, sorted.
    pub fn methods(&self) -> Vec<String> {
        let mut methods: Vec<String> = self.methods.keys().cloned().collect();
        methods.sort();
        methods
    }
}

impl Backends {
    /// Reads the services of a server of a tenant by reflection.
    ///
    /// # Errors
    /// [`BackendError`] when the address is not allowed or not valid, or the server does not answer.
    pub async fn discover(
        &self,
        tenant: Tenant,
        name: &str,
        endpoint: &str,
    ) -> Result<Backend, BackendError> {
        let channel = channel_to(endpoint, tenant, self.allowed())?;
        let descriptors = reflection::read(channel.clone()).await.map_err(|problem| {
            BackendError::Unreadable {
                endpoint: endpoint.to_owned(),
                problem,
            }
        })?;
        Backend::known(name, endpoint, descriptors, channel)
    }

    /// Calls a method with JSON arguments.
    pub async fn execute(
        &self,
        service: &str,
        method: &str,
        resolved: &ResolvedCall,
    ) -> CallOutcome {
        let backend = self.of_tool(resolved.context.tenant(), &resolved.tool, service);
        let backend = backend.await.map_err(|error| unreadable(&error));
        let found = backend.and_then(|backend| find(backend, service, method));
        let (backend, descriptor) = match found {
            Ok(found) => found,
            Err(failure) => return CallOutcome::Rejected(failure),
        };
        let message = match proto_json::to_message(&descriptor.input(), &resolved.arguments) {
            Ok(message) => message,
            Err(violations) => {
                return CallOutcome::Rejected(Failure::invalid_arguments(
                    resolved.tool.id(),
                    violations,
                ));
            }
        };
        let path = http::uri::PathAndQuery::try_from(format!("/{method}"));
        let Ok(path) = path else {
            return CallOutcome::Rejected(unknown_method(&backend, method));
        };
        let exchange = Exchange::default();
        let asking = async {
            let mut tries = 1;
            loop {
                let request = request_for(message.clone(), resolved);
                let asked = ask(
                    &backend,
                    &descriptor,
                    path.clone(),
                    request,
                    resolved,
                    &exchange,
                );
                match asked.await {
                    Ok(outcome) => return outcome,
                    // The connection was about to close; the next one takes the request.
                    Err(status) if tries < TRIES && was_dropped(&status, &exchange) => tries += 1,
                    Err(status) => {
                        return refusal::of_status(service, resolved, &status, &exchange);
                    }
                }
            }
        };
        let in_time = tokio::time::timeout_at(resolved.deadline, asking).await;
        in_time.unwrap_or_else(|_| refusal::out_of_time(service, resolved, &exchange))
    }

    /// Returns the violation of a tool that a tenant puts and that names an unknown `service` or `method`.
    ///
    /// # Errors
    /// The store's failure.
    pub async fn check(
        &self,
        tenant: Tenant,
        service: &str,
        method: &str,
    ) -> Result<Option<Violation>, StoreError> {
        let found = self.get(tenant, service).await?;
        let found = found.map(|found| found.backend);
        let Err(failure) = find(found, service, method) else {
            return Ok(None);
        };
        let pointer = if failure.code == "unknown_backend" {
            "service"
        } else {
            "method"
        };
        Ok(Some(Violation::new(
            format!("/implementation/{pointer}"),
            failure.code.clone(),
            failure.message.clone(),
        )))
    }
}

/// Returns the method of a server that was looked for under the name `service`.
fn find(
    backend: Option<Arc<Backend>>,
    service: &str,
    method: &str,
) -> Result<(Arc<Backend>, MethodDescriptor), Failure> {
    let Some(backend) = backend else {
        let message = format!(
            "no gRPC server is registered under the name '{service}'; add it by PutBackend"
        );
        return Err(Failure::new(
            Category::Dependency,
            "unknown_backend",
            message,
        ));
    };
    let descriptor = backend.methods.get(method).cloned();
    let descriptor = descriptor.ok_or_else(|| unknown_method(&backend, method))?;
    Ok((backend, descriptor))
}

/// Makes the failure of a call whose server cannot be looked up.
fn unreadable(error: &StoreError) -> Failure {
    tracing::error!(
        error = grpc_kit::failure::chain(error),
        "the gRPC servers cannot be read"
    );
    let message = "the registered gRPC servers cannot be read now; call the tool again later";
    Failure::new(Category::Dependency, "backends_unavailable", message).retryable()
}

/// Sends one request. Returns the outcome of the call, or the status of a request without an
/// answer.
async fn ask(
    backend: &Backend,
    descriptor: &MethodDescriptor,
    path: http::uri::PathAndQuery,
    request: Request<DynamicMessage>,
    resolved: &ResolvedCall,
    exchange: &Exchange,
) -> Result<CallOutcome, Status> {
    let mut grpc = Grpc::new(exchange.over(backend.channel.clone()))
        .max_decoding_message_size(MAX_ANSWER_BYTES);
    if let Err(error) = grpc.ready().await {
        let failure = refusal::unreachable(&backend.name, &error.to_string());
        return Ok(CallOutcome::Failed(failure));
    }
    let codec = DynamicCodec::new(descriptor.output());
    if descriptor.is_server_streaming() {
        let answer = grpc.server_streaming(request, path, codec).await?;
        return Ok(streaming::read(&backend.name, resolved, exchange, answer.into_inner()).await);
    }
    let answer = grpc.unary(request, path, codec).await?;
    Ok(outcome_of(answer.get_ref()))
}

/// Whether a connection was there and has taken nothing of the request.
fn was_dropped(status: &Status, exchange: &Exchange) -> bool {
    !exchange.has_left() && !refusal::found_no_peer(status) && !refusal::has_timed_out(status)
}

/// Returns the outcome of a call from a method's answer.
fn outcome_of(answer: &DynamicMessage) -> CallOutcome {
    match proto_json::to_value(answer) {
        Ok(value) => CallOutcome::Succeeded(value),
        Err(error) => CallOutcome::Failed(Failure::new(
            Category::Dependency,
            "backend_answer_malformed",
            grpc_kit::failure::chain(&error),
        )),
    }
}

fn unknown_method(backend: &Backend, method: &str) -> Failure {
    let methods = backend.methods();
    let near = json_schema::nearest_names(method, methods.iter().map(String::as_str));
    let hint = if near.is_empty() {
        String::new()
    } else {
        format!(", did you mean {}?", near.join(" or "))
    };
    let message = format!(
        "the server '{}' has no method '{method}' that takes one message{hint}",
        backend.name
    );
    Failure::new(Category::Dependency, "unknown_method", message)
}

/// Makes a request with its time limit, its trace and its tenant.
fn timed<T>(message: T, limit: Duration, tenant: Tenant) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(limit);
    let metadata = request.metadata_mut();
    telemetry::context::inject(metadata.as_mut());
    if !tenant.is_default() {
        insert(metadata, TENANT, tenant.as_str());
    }
    request
}

fn request_for(message: DynamicMessage, resolved: &ResolvedCall) -> Request<DynamicMessage> {
    let mut request = timed(message, resolved.remaining(), resolved.context.tenant());
    let metadata = request.metadata_mut();
    if let Some(effect) = &resolved.effect_id {
        insert(metadata, EFFECT_ID, effect.as_str());
    }
    if let Some(conversation) = &resolved.conversation {
        insert(metadata, CONVERSATION_ID, conversation.as_str());
    }
    request
}

fn insert(metadata: &mut MetadataMap, key: &'static str, id: &str) {
    match AsciiMetadataValue::try_from(id) {
        Ok(value) => drop(metadata.insert(key, value)),
        Err(_) => {
            let value = BinaryMetadataValue::from_bytes(id.as_bytes());
            let key = BinaryMetadataKey::from_bytes(format!("{key}-bin").as_bytes());
            if let Ok(key) = key {
                metadata.insert_bin(key, value);
            }
        }
    }
}

fn channel_to(
    endpoint: &str,
    tenant: Tenant,
    allowed: &AllowedHosts,
) -> Result<Channel, BackendError> {
    let shown = || endpoint.chars().take(200).collect();
    let wrong = || BackendError::Address { endpoint: shown() };
    // Read before tonic does, which takes other schemes, such as unix:, for addresses of its own.
    let uri: http::Uri = endpoint.parse().map_err(|_| wrong())?;
    let (is_encrypted, usual) = match uri.scheme_str() {
        Some("http") => (false, 80),
        Some("https") => (true, 443),
        _ => return Err(wrong()),
    };
    let host = uri
        .host()
        .filter(|host| !host.is_empty())
        .ok_or_else(wrong)?;
    if !allowed.allow(tenant, host, uri.port_u16().unwrap_or(usual)) {
        let endpoint = shown();
        return Err(match AllowedHosts::has_loopback(tenant) {
            true => BackendError::NotAllowed { endpoint },
            false => BackendError::NotListed { endpoint },
        });
    }
    let address = Endpoint::from(uri).connect_timeout(CONNECT_TIMEOUT);
    if !is_encrypted {
        return Ok(address.connect_lazy());
    }
    let connector = allowed.connector().map_err(|source| BackendError::Tls {
        endpoint: shown(),
        source,
    })?;
    Ok(address.connect_with_connector_lazy(connector))
}

fn etag_of(endpoint: &str, descriptors: &[u8]) -> String {
    let mut digest = Sha256::new();
    digest.update(endpoint);
    digest.update([0]);
    digest.update(descriptors);
    digest.finalize()[..16]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn path_of(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}
