//! The record in a response to a watch, which stays encoded until it is needed: the gateway passes
//! it on unread.

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tonic::Status;

use crate::tavern::common::v1::{OutputReset, WatchRecord, watch_record::Record};

/// The numbers of `WatchRecord.event`, `WatchRecord.terminal` and `RunEvent.sequence`.
const EVENT: u32 = 1;
const TERMINAL: u32 = 5;
const SEQUENCE: u32 = 1;

/// Encodes a record.
pub fn encode(record: Record) -> Bytes {
    let record = WatchRecord {
        record: Some(record),
    };
    record.encode_to_vec().into()
}

/// Makes a record of an encoded event and its sequence in the log, without reading the event. The
/// sequence counts even where the event states another: of a field that appears twice, the last one
/// is valid.
pub fn encode_event(event: &[u8], sequence: u64) -> Bytes {
    let length = event.len() + key_len(SEQUENCE) + encoded_len_varint(sequence);
    let capacity = key_len(EVENT) + encoded_len_varint(length as u64) + length;
    let mut record = BytesMut::with_capacity(capacity);
    encode_key(EVENT, WireType::LengthDelimited, &mut record);
    encode_varint(length as u64, &mut record);
    record.put_slice(event);
    encode_key(SEQUENCE, WireType::Varint, &mut record);
    encode_varint(sequence, &mut record);
    record.freeze()
}

/// Whether a reset voids the partial answer of an agent's model: its text and thoughts since the
/// request.
pub fn voids_answer(reset: &OutputReset) -> bool {
    reset.effect_id.is_empty() && reset.node_id.is_empty() && reset.interface_key.is_empty()
}

/// Whether a record is an event.
pub fn is_event(record: &[u8]) -> bool {
    is_of(record, EVENT)
}

/// Whether a record is the end of a run.
pub fn is_terminal(record: &[u8]) -> bool {
    is_of(record, TERMINAL)
}

fn is_of(record: &[u8], field: u32) -> bool {
    record.first() == Some(&((field << 3 | WireType::LengthDelimited as u32) as u8))
}

/// Reads a record; `None` if this version does not know its kind.
///
/// # Errors
/// INTERNAL if the bytes are no record.
pub fn decode(record: Bytes) -> Result<Option<Record>, Status> {
    let read = WatchRecord::decode(record);
    let read = read.map_err(|error| Status::internal(format!("not a watch record: {error}")))?;
    Ok(read.record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tavern::common::v1::{RunEvent, WatchHeartbeat};

    #[test]
    fn an_encoded_event_gets_its_place_in_the_log() {
        for (stated, sequence) in [(0, 1), (0, 300), (7, 9)] {
            let event = RunEvent {
                sequence: stated,
                run_id: "flow_1".to_owned(),
                ..RunEvent::default()
            };
            let record = encode_event(&event.encode_to_vec(), sequence);
            let placed = RunEvent { sequence, ..event };
            assert!(is_event(&record));
            assert_eq!(decode(record).unwrap(), Some(Record::Event(placed)));
        }
    }

    #[test]
    fn a_record_is_read_back_and_other_bytes_are_refused() {
        let record = Record::Heartbeat(WatchHeartbeat::default());
        assert!(!is_event(&encode(record.clone())));
        assert_eq!(decode(encode(record.clone())).unwrap(), Some(record));
        assert_eq!(decode(Bytes::new()).unwrap(), None);
        let refused = decode(Bytes::from_static(b"\xff")).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Internal);
    }
}
