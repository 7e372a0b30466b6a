//! Messages of the contract as JSON, by their descriptors.

use std::sync::LazyLock;

use anyhow::Context;
use prost_reflect::prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage};

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET).ok());

/// Prints a message as one line of JSON.
///
/// # Errors
/// A message that is not part of the contract.
pub(super) fn print_line<T: Message + Name>(message: &T) -> anyhow::Result<()> {
    let name = T::full_name();
    let pool = POOL.as_ref().context("the contract cannot be read")?;
    let descriptor = pool
        .get_message_by_name(&name)
        .with_context(|| format!("the contract has no message {name}"))?;
    let dynamic = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice())?;
    super::print(&format!("{}\n", serde_json::to_string(&dynamic)?));
    Ok(())
}
