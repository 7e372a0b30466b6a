//! The common part of the fuzz targets: the tools of the conformance cases.
//!
//! Run one with `cargo +nightly fuzz run syntax --fuzz-dir tests/fuzz` from the repository root;
//! `tests/fuzz/seed` fills its corpus from the conformance cases.

use std::sync::OnceLock;

use call_catalogue::{Catalogue, Tool};

/// The tools that fuzzed messages may call.
pub fn catalogue() -> &'static Catalogue {
    static CATALOGUE: OnceLock<Catalogue> = OnceLock::new();
    CATALOGUE.get_or_init(|| {
        let text = include_str!("../../conformance/fixtures/calls/catalogue.json");
        let file: serde_json::Value = serde_json::from_str(text).expect("the catalogue of the cases is JSON");
        let tools: Vec<Tool> = serde_json::from_value(file["tools"].clone()).expect("its tools are tools");
        Catalogue::new(tools, vec!["admin:Shutdown".to_owned()]).expect("its ids are valid")
    })
}
