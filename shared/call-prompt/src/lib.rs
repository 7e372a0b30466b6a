//! The texts for models that call tools, and checks of whether a model only copied them.
//!
//! All of it is made from the same [`Catalogue`](call_catalogue::Catalogue) that [`call_text`] reads
//! calls with, and its output is read back by that crate: [`prompt`] writes the section that
//! teaches a model to call tools, [`grammar`] keeps it to well-formed calls, [`render`] writes a
//! call, [`observation`] writes the text that a model reads about one.
//!
//! Two checks look at calls that were read: [`echo`] finds calls that occur in untrusted text which
//! the model was shown, [`lint`] finds words of the manual where real values belong.
//!
//! The crate does no I/O, reads no clock and starts no thread.

pub mod echo;
pub mod grammar;
pub mod lint;
pub mod observation;
pub mod prompt;
pub mod render;
