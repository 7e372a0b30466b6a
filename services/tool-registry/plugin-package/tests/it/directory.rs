//! Directories that are refused, and faults in tools by file.

use std::{fs, os::unix::fs::symlink, path::PathBuf};

use cap_std::{ambient_authority, fs::Dir};
use plugin_package::{Checked, check, open_plugin, plan_alone, read_directory};
use tool_domain::plan::render;

const TOOL: &str = r#"{"id": "demo:run", "implementation": {"type": "script", "command": "python scripts/run.py"},
    "parameters": {"type": "object"}}"#;

/// A directory of plugins with the plugin `demo`.
struct Plugins(tempfile::TempDir);

impl Plugins {
    fn new() -> Self {
        let plugins = Self(tempfile::tempdir().unwrap());
        plugins.put("demo/plugin.yaml", "name: demo\ntools:\n  entry: ./tools\n");
        plugins.put("demo/tools/run.tool.json", TOOL);
        plugins.put("demo/scripts/run.py", "print('{}')");
        plugins
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn put(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn open(&self) -> Dir {
        let root = Dir::open_ambient_dir(self.0.path(), ambient_authority()).unwrap();
        open_plugin(&root, "demo").unwrap().unwrap()
    }

    fn checked(&self) -> Checked {
        check(&read_directory(&self.open()).unwrap())
    }

    /// Compares the codes and places of all violations of the directory.
    fn check_refused(&self, expected: &[(&str, &str)]) {
        let wrong = read_directory(&self.open()).unwrap_err();
        let found = wrong.iter().map(|each| (&*each.code, &*each.pointer));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    /// Compares the codes and places of all violations of the manifest and the tools.
    fn check_faults(&self, expected: &[(&str, &str)]) {
        let wrong = self.checked().violations;
        let found = wrong.iter().map(|each| (&*each.code, &*each.pointer));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}

#[test]
fn links_and_special_files_are_refused_everywhere() {
    let plugins = Plugins::new();
    symlink("/etc/passwd", plugins.path("demo/scripts/passwd")).unwrap();
    symlink("run.py", plugins.path("demo/scripts/again.py")).unwrap();
    symlink("/nowhere", plugins.path("demo/web")).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(plugins.path("demo/socket"));
    assert!(socket.is_ok());
    plugins.check_refused(&[
        ("link", "scripts/again.py"),
        ("link", "scripts/passwd"),
        ("link", "socket"),
        ("link", "web"),
    ]);

    let plugins = Plugins::new();
    symlink(plugins.path("demo"), plugins.path("linked")).unwrap();
    let root = Dir::open_ambient_dir(plugins.0.path(), ambient_authority()).unwrap();
    assert_eq!(open_plugin(&root, "linked").unwrap_err()[0].code, "link");

    let plugins = Plugins::new();
    fs::remove_file(plugins.path("demo/plugin.yaml")).unwrap();
    symlink("scripts/run.py", plugins.path("demo/plugin.yaml")).unwrap();
    plugins.check_refused(&[("link", "plugin.yaml")]);
}

#[test]
fn names_are_held_to_the_rules_of_archives() {
    let plugins = Plugins::new();
    plugins.put("demo/scripts/RUN.py", "x");
    plugins.check_refused(&[("case_twins", "scripts/run.py")]);

    let plugins = Plugins::new();
    plugins.put("demo/web/e\u{301}", "x");
    plugins.put("demo/web/\u{e9}", "x");
    plugins.check_refused(&[("case_twins", "web/\u{e9}")]);

    let plugins = Plugins::new();
    plugins.put("demo/a\\b", "x");
    plugins.put("demo/ends.", "x");
    plugins.put("demo/other/plugin.yaml", "name: other");
    plugins.check_refused(&[("invalid_path", "a\\b"), ("invalid_path", "ends.")]);
    fs::remove_file(plugins.path("demo/a\\b")).unwrap();
    fs::remove_file(plugins.path("demo/ends.")).unwrap();
    plugins.check_refused(&[("two_manifests", "other/plugin.yaml")]);
}

#[test]
fn a_script_that_was_run_leaves_the_digest_as_it_was() {
    let plugins = Plugins::new();
    plugins.put("demo/plugin.yaml", "name: demo\n");
    plugins.put("demo/lib/a.py", "x = 1");
    let before = read_directory(&plugins.open()).unwrap();
    plugins.put("demo/lib/__pycache__/a.cpython-313.pyc", "x");
    plugins.put("demo/lib/a.pyc", "x");
    plugins.put("demo/.git/HEAD", "x");
    assert_eq!(read_directory(&plugins.open()).unwrap(), before);
}

#[test]
fn files_bytes_and_entries_are_bounded() {
    let plugins = Plugins::new();
    for index in 0..300 {
        plugins.put(&format!("demo/data/{index}"), "");
    }
    let wrong = read_directory(&plugins.open()).unwrap_err();
    assert_eq!(wrong[0].code, "too_large");

    let plugins = Plugins::new();
    plugins.put("demo/data", vec![0; (3 << 20) + 1]);
    plugins.check_refused(&[("too_large", "data")]);

    let plugins = Plugins::new();
    plugins.put("demo/dist/app.js", vec![0; 16 << 20]);
    assert_eq!(plugins.checked().violations, []);

    let plugins = Plugins::new();
    plugins.put("demo/plugin.yaml", vec![b'#'; (16 << 10) + 1]);
    plugins.check_refused(&[("too_large", "plugin.yaml")]);

    let plugins = Plugins::new();
    for index in 0..3_000 {
        fs::create_dir_all(plugins.path(&format!("demo/data/{index}"))).unwrap();
    }
    let wrong = read_directory(&plugins.open()).unwrap_err();
    assert_eq!((wrong.len(), &*wrong[0].code), (1, "too_many_entries"));
}

#[test]
fn faults_of_manifest_and_tools_are_named_at_once() {
    let plugins = Plugins::new();
    plugins.put("demo/tools/again.tool.json", TOOL);
    plugins.check_faults(&[("id_taken", "tools/run.tool.json")]);
    assert_eq!(plugins.checked().plugin.unwrap().tools.len(), 1);

    let plugins = Plugins::new();
    fs::remove_file(plugins.path("demo/scripts/run.py")).unwrap();
    plugins.put("demo/scripts/runs.py", "x");
    plugins.check_faults(&[("script_not_found", "tools/run.tool.json")]);
    let suggestions = &plugins.checked().violations[0].suggestions;
    assert_eq!(suggestions, &["scripts/runs.py"]);

    let plugins = Plugins::new();
    fs::remove_file(plugins.path("demo/tools/run.tool.json")).unwrap();
    plugins.check_faults(&[("no_tools", "plugin.yaml/tools/entry")]);

    let plugins = Plugins::new();
    plugins.put("demo/plugin.yaml", [0xff, 0x3a]);
    plugins.check_faults(&[("malformed_yaml", "plugin.yaml")]);

    let plugins = Plugins::new();
    plugins.put(
        "demo/plugin.yaml",
        "name: ''\npermissions: {files: [all]}\n",
    );
    plugins.put(
        "demo/other/bad.tool.json",
        r#"{"id": "demo:bad", "parameters": {}}"#,
    );
    plugins.check_faults(&[
        ("invalid_name", "plugin.yaml/name"),
        ("type_mismatch", "plugin.yaml/permissions/files"),
        ("missing_parameter", "other/bad.tool.json/implementation"),
    ]);
    assert!(plugins.checked().plugin.is_none());
}

#[test]
fn yaml_that_grows_or_has_tags_is_refused() {
    let plugins = Plugins::new();
    let grows = "name: demo\na: &a [x, x]\nb: [*a, *a, *a, *a, *a, *a, *a, *a, *a]\n";
    for (manifest, code) in [(grows, "limit_exceeded"), ("name: !!str demo\n", "tag")] {
        plugins.put("demo/plugin.yaml", manifest);
        plugins.check_faults(&[(code, "plugin.yaml")]);
    }
}

#[test]
fn the_libraries_of_a_lock_stand_in_the_plan_and_each_wrong_line_is_named() {
    let plugins = Plugins::new();
    let manifest = "name: demo\ntools: {entry: ./tools}\ndependencies: {runtime: python, lock: requirements.lock}\n";
    plugins.put("demo/plugin.yaml", manifest);
    plugins.check_faults(&[("lock_not_found", "plugin.yaml/dependencies/lock")]);
    let line = format!("--hash=sha256:{}", "0".repeat(64));
    plugins.put("demo/requirements.lock", "six\n# no more\nfrom http://x\n");
    plugins.check_faults(&[("lock_invalid", "requirements.lock"); 2]);
    plugins.put("demo/requirements.lock", [0xff]);
    plugins.check_faults(&[("lock_invalid", "plugin.yaml/dependencies/lock")]);
    let lock = format!("Six==1.17.0 {line}\nzope.interface==7.2 {line}\n");
    plugins.put("demo/requirements.lock", lock);
    let files = read_directory(&plugins.open()).unwrap();
    let plan = plan_alone(&files, &check(&files).plugin.unwrap());
    let text = render::text(&plan);
    let libraries = "Libraries that its scripts import\n  six 1.17.0\n  zope-interface 7.2\n";
    assert!(text.contains(libraries), "{text}");
}
