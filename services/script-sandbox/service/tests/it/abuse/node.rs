//! The programs that Node.js can express, where its way differs from Python's.

mod host;
mod limits;

use crate::support::{Host, expect_output, request};

/// A program that prints its successes, and a text that it prints outside.
struct Probe {
    source: &'static str,
    outside: &'static str,
}

impl Probe {
    /// The program with the values that are only known when it runs.
    fn with(&self, replaced: &[(&str, &str)]) -> String {
        let with = |source: String, (name, value): &(&str, &str)| source.replace(name, value);
        replaced.iter().fold(self.source.to_owned(), with)
    }

    /// The control: without a sandbox it succeeds.
    #[track_caller]
    fn succeeds_outside(&self, replaced: &[(&str, &str)]) {
        let said = crate::control::unconfined("node", &["-e", &self.with(replaced)]);
        assert!(said.contains(self.outside), "{said}");
    }

    /// Inside, it prints nothing.
    async fn tells_nothing(&self, host: &Host, replaced: &[(&str, &str)]) {
        let response = host.run(request("node", &self.with(replaced))).await;
        expect_output(&response, "");
    }
}
