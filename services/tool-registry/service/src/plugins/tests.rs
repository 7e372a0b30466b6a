use std::{fs, os::unix::fs::symlink};

use super::*;

const TOOL: &str = r#"{"id": "demo:run", "implementation": {"type": "script", "command": "python scripts/run.py"},
    "parameters": {"type": "object"}}"#;

struct Directory(tempfile::TempDir);

impl Directory {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn plugin(&self, name: &str) {
        self.put(
            &format!("{name}/plugin.yaml"),
            format!("name: {name}\ntools:\n  entry: ./tools\n"),
        );
        self.put(&format!("{name}/tools/run.tool.json"), TOOL);
        self.put(&format!("{name}/scripts/run.py"), "print('{}')");
    }

    fn load(&self) -> Plugins {
        load(self.0.path()).unwrap()
    }

    /// Loads and compares the codes of the one plugin that is skipped.
    fn check_skipped(&self, codes: &[&str]) {
        let plugins = self.load();
        assert!(plugins.loaded.is_empty(), "{:?}", plugins.loaded);
        let found: Vec<&str> = plugins.skipped[0]
            .violations
            .iter()
            .map(|each| &*each.code)
            .collect();
        assert_eq!(found, codes, "{}", plugins.skipped[0]);
    }
}

#[test]
fn a_plugin_is_loaded_with_its_tools_and_files_and_other_entries_are_passed_over() {
    let directory = Directory::new();
    directory.plugin("demo");
    directory.put("demo/web/app.js", "alert(1)");
    directory.put("demo/.git/HEAD", "x");
    directory.put("README.md", "x");
    directory.put("no-plugin/file", "x");
    let plugins = directory.load();
    assert!(plugins.skipped.is_empty(), "{:?}", plugins.skipped);
    let plugin = &plugins.loaded[0].plugin;
    assert_eq!(plugin.tools[0].id.as_str(), "demo:run");
    let files = plugin.tools[0].package.as_ref().unwrap().files();
    let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(
        paths,
        ["plugin.yaml", "scripts/run.py", "tools/run.tool.json"]
    );
}

#[test]
fn one_bad_tool_is_left_out_and_its_plugin_is_loaded() {
    let directory = Directory::new();
    directory.plugin("good");
    directory.plugin("mixed");
    directory.put("mixed/tools/second.tool.json", "{");
    let plugins = directory.load();
    let tools: Vec<usize> = plugins
        .loaded
        .iter()
        .map(|each| each.plugin.tools.len())
        .collect();
    assert_eq!(tools, [1, 1]);
    assert_eq!(plugins.skipped.len(), 1);
    assert_eq!(plugins.skipped[0].directory, "mixed");
    assert!(
        plugins.skipped[0].violations[0]
            .pointer
            .starts_with("tools/second.tool.json")
    );
}

#[test]
fn a_plugin_that_cannot_be_read_or_has_no_manifest_that_counts_is_skipped() {
    let directory = Directory::new();
    directory.plugin("demo");
    symlink(
        "/etc/passwd",
        directory.0.path().join("demo/scripts/passwd"),
    )
    .unwrap();
    directory.check_skipped(&["link"]);

    let directory = Directory::new();
    let outside = Directory::new();
    outside.plugin("demo");
    symlink(
        outside.0.path().join("demo"),
        directory.0.path().join("demo"),
    )
    .unwrap();
    directory.check_skipped(&["link"]);

    let directory = Directory::new();
    directory.put("demo/plugin.yaml", [0xff, 0x3a]);
    directory.check_skipped(&["malformed_yaml"]);
}

#[test]
fn the_first_of_two_plugins_of_one_name_stays() {
    let directory = Directory::new();
    directory.plugin("a");
    directory.put("b/plugin.yaml", "name: a\n");
    let plugins = directory.load();
    assert_eq!(plugins.loaded[0].directory, "a");
    assert_eq!(plugins.skipped[0].violations[0].code, "name_taken");
}
