//! Messages of the contract as JSON, by their descriptors.

use std::sync::LazyLock;

use anyhow::Context;
use prost_reflect::prost::{Message, Name};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use serde_json::Deserializer;

static POOL: LazyLock<Option<DescriptorPool>> =
    LazyLock::new(|| DescriptorPool::decode(contracts::FILE_DESCRIPTOR_SET).ok());

fn descriptor<T: Name>() -> anyhow::Result<MessageDescriptor> {
    let name = T::full_name();
    let pool = POOL.as_ref().context("the contract cannot be read")?;
    pool.get_message_by_name(&name)
        .with_context(|| format!("the contract has no message {name}"))
}

/// Prints a message as one line of JSON.
///
/// # Errors
/// A message that is not part of the contract.
pub(super) fn print_line<T: Message + Name>(message: &T) -> anyhow::Result<()> {
    super::print(&line(message)?);
    Ok(())
}

/// Returns a message as one line of JSON.
///
/// # Errors
/// A message that is not part of the contract.
pub(super) fn line<T: Message + Name>(message: &T) -> anyhow::Result<String> {
    let dynamic = DynamicMessage::decode(descriptor::<T>()?, message.encode_to_vec().as_slice())?;
    Ok(format!("{}\n", serde_json::to_string(&dynamic)?))
}

/// Reads a message from JSON.
///
/// # Errors
/// Text that is not the JSON of the message, such as one with a field that the message does not have.
pub(super) fn read<T: Message + Name + Default>(text: &str) -> anyhow::Result<T> {
    let mut json = Deserializer::from_str(text);
    let dynamic = DynamicMessage::deserialize(descriptor::<T>()?, &mut json)?;
    json.end()?;
    Ok(dynamic.transcode_to()?)
}
