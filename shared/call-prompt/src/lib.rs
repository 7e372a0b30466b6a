//! What is written for models that call tools, and whether they only copied it.
//!
//! All of it is made from the same [`Catalogue`](call_catalogue::Catalogue) that [`call_text`] reads
//! calls with, and what it writes is read back by that crate: [`prompt`] writes the section that teaches
//! a model to call tools, [`grammar`] keeps it to well-formed calls, [`render`] writes a call,
//! [`observation`] writes what a model reads about one.
//!
//! Two checks look at calls that were read: [`echo`] finds those that stand in untrusted text which the
//! model was shown, [`lint`] finds words of the manual where real values belong.
//!
//! Nothing here does I/O, asks the time or starts a thread.

pub mod echo;
pub mod grammar;
pub mod lint;
pub mod observation;
pub mod prompt;
pub mod render;
