//! Upper bounds.

use serde::{Deserialize, Serialize};

/// Upper bounds of the text that is read (V13). Zero means zero, never unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of one message; the rest is kept as text and not scanned. Default 1 MiB.
    pub message_bytes: usize,
    /// Bytes of one block. Default 256 KiB + 64 KiB of markup.
    pub block_bytes: usize,
    /// Bytes of one value. Default 256 KiB.
    pub value_bytes: usize,
    /// Nesting of one value. Default 32.
    pub depth: usize,
    /// Calls in one message. Default 64.
    pub calls: usize,
    /// Parameters of one call. Default 256.
    pub parameters: usize,
    /// Bytes of one tag, attributes included. Default 1024.
    pub tag_bytes: usize,
    /// Bytes of one name. Default 128.
    pub name_bytes: usize,
    /// Diagnostics kept; later ones are counted in one last remark. Default 256.
    pub diagnostics: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes: 1 << 20,
            block_bytes: 320 << 10,
            value_bytes: 256 << 10,
            depth: 32,
            calls: 64,
            parameters: 256,
            tag_bytes: 1024,
            name_bytes: 128,
            diagnostics: 256,
        }
    }
}
