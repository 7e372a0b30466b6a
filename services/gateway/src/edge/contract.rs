//! The contract, as descriptors.

use std::sync::LazyLock;

use prost_reflect::prost_types::method_options::IdempotencyLevel;
use prost_reflect::{DescriptorPool, ExtensionDescriptor, MessageDescriptor, MethodDescriptor};

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET)
        .expect("the build wrote a valid descriptor set")
});

/// Returns the methods of the named services.
pub(super) fn methods(services: &[&str]) -> Vec<MethodDescriptor> {
    let named = services
        .iter()
        .filter_map(|name| POOL.get_service_by_name(name));
    named
        .flat_map(|service| service.methods().collect::<Vec<_>>())
        .collect()
}

/// Returns a method of a service by its name.
pub(super) fn method(service: &str, name: &str) -> Option<MethodDescriptor> {
    let service = POOL.get_service_by_name(service)?;
    let mut methods = service.methods();
    methods.find(|method| method.name() == name)
}

/// Returns an option of methods by its full name.
pub(super) fn option(name: &str) -> Option<ExtensionDescriptor> {
    POOL.get_extension_by_name(name)
}

/// Whether a request may have fields that its message does not have: A2A has servers ignore them.
pub(super) fn ignores_unknown_fields(message: &MessageDescriptor) -> bool {
    message.package_name() == "lf.a2a.v1"
}

/// Returns the path at which gRPC calls a method.
pub(super) fn path_of(method: &MethodDescriptor) -> String {
    format!("/{}/{}", method.parent_service().full_name(), method.name())
}

/// Whether a method has no side effects, by the contract.
pub(super) fn has_no_side_effects(method: &MethodDescriptor) -> bool {
    let options = method.method_descriptor_proto().options.as_ref();
    options.is_some_and(|options| options.idempotency_level() == IdempotencyLevel::NoSideEffects)
}

/// Returns a message of the contract or of the details of errors by its full name.
pub(super) fn message(name: &str) -> Option<MessageDescriptor> {
    static DETAILS: LazyLock<Option<DescriptorPool>> =
        LazyLock::new(|| DescriptorPool::decode(tonic_types::pb::FILE_DESCRIPTOR_SET).ok());
    let detail = || DETAILS.as_ref()?.get_message_by_name(name);
    POOL.get_message_by_name(name).or_else(detail)
}
