//! The frames of an error, of which a bounded number is kept.

use std::{collections::VecDeque, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

use super::cut;

/// The most frames of a traceback that are passed on: half of them the outermost, half the
/// innermost.
pub const MAX_TRACEBACK_FRAMES: usize = 100;

/// The longest path, function or line of a frame that is passed on, in bytes. With all frames it is
/// well below the bound of a message.
pub(super) const MAX_FRAME_TEXT: usize = 2000;

/// The frames of an error. However many a cell has forged, reading them takes no more room than the
/// kept ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traceback {
    /// The outermost frame first.
    pub frames: Vec<Frame>,
    /// The number of frames left out in the middle here, in addition to those that the driver has
    /// left out.
    pub omitted: u32,
}

/// One frame of a traceback.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// The file.
    pub file: String,
    /// The cell; 0 if it is a file.
    pub cell: u64,
    /// The line, from 1; 0 if it is not known.
    pub line: u32,
    /// The column, from 1; 0 if it is not known.
    pub column: u32,
    /// The function.
    pub function: String,
    /// The line's text.
    pub source: String,
}

impl Traceback {
    /// Cuts the texts to their bounds.
    pub(super) fn cut(&mut self) {
        for frame in &mut self.frames {
            frame.cut();
        }
    }
}

impl Frame {
    fn cut(&mut self) {
        for text in [&mut self.file, &mut self.function, &mut self.source] {
            cut(text, MAX_FRAME_TEXT);
        }
    }
}

impl<'de> Deserialize<'de> for Traceback {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Ends)
    }
}

/// Reads a list of frames and keeps its two ends.
struct Ends;

impl<'de> Visitor<'de> for Ends {
    type Value = Traceback;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of frames")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Traceback, A::Error> {
        const HALF: usize = MAX_TRACEBACK_FRAMES / 2;
        let mut frames = Vec::new();
        let mut innermost = VecDeque::new();
        let mut omitted = 0_u32;
        while let Some(frame) = list.next_element::<Frame>()? {
            if frames.len() < HALF {
                frames.push(frame);
                continue;
            }
            if innermost.len() == HALF {
                innermost.pop_front();
                omitted = omitted.saturating_add(1);
            }
            innermost.push_back(frame);
        }
        frames.extend(innermost);
        Ok(Traceback { frames, omitted })
    }
}
