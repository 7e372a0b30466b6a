//! Typed settings from defaults, file, environment and command line, every error at once.
//!
//! A program has one settings struct that implements [`Settings`]. [`load`] fills it from its
//! `Default`, then from a TOML file, then from the environment, then from flags of the command line,
//! each overriding the layers before. The variable for the key `server.listen` of a program with
//! the prefix `TAVERN_GATEWAY` is `TAVERN_GATEWAY__SERVER__LISTEN`; the file is named by the caller
//! or by `TAVERN_GATEWAY_CONFIG`.
//!
//! All problems are collected: unknown keys, wrong types, values out of range and the program's own
//! checks arrive as one [`SettingsError`], each [`Problem`] with its key, its source and a remedy.
//! So does an environment variable of the family that no program reads, such as a variable with a
//! misspelt prefix. The conventional end of such a program is [`report_and_exit_code`].
//!
//! - [`load`]: the layers and the collecting.
//! - [`problem`]: the problems of settings.
//! - [`effective`]: printing the settings in force, secrets redacted.
//! - [`secret`], [`duration`], [`size`]: value types for settings structs.
//! - [`text_file`]: reading this file and every other that people write.
//!
//! A settings struct derives `Serialize` and `Deserialize`, and its serialised form must be
//! readable again: its `Default` is laid below the other layers in that form, field by field, and
//! unknown keys are found by comparing with it. So it skips and flattens no fields, and its
//! `Default` holds no secret. A list that is set replaces the default list; a table is merged.

pub mod duration;
pub mod effective;
mod layers;
pub mod load;
mod meanings;
mod names;
pub mod problem;
pub mod secret;
pub mod size;
pub mod text_file;

pub use duration::DurationText;
pub use load::{Loaded, Settings, load, load_from};
pub use problem::{EXIT_CONFIG, Problem, Problems, SettingsError, Source, report_and_exit_code};
pub use secret::Secret;
pub use size::SizeText;
