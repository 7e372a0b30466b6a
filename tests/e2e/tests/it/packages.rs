//! Package sets, from the command that builds them to the description that the model reads.

mod build;

use anyhow::Context;
use contracts::tavern::common::v1::CallResult;
use contracts::tavern::registry::v1::GetToolRequest;
use testkit::{Stack, StackBuilder, repository};

use crate::text::{output, result_of};

/// The programs of the system, so that each build has the same interpreter.
pub(crate) const PROGRAMS: &str = "/usr/local/bin:/usr/bin:/bin";

/// The directory of the sets that `make packages` has built.
fn sets() -> String {
    let named = std::env::var("TAVERN_TEST_SETS");
    let built = || repository().join("target/packages").display().to_string();
    named.unwrap_or_else(|_| built())
}

/// A stack whose sandbox has the small sets.
fn with_sets(builder: StackBuilder, variable: &str) -> StackBuilder {
    let defaults = "TAVERN_REGISTRY__CODE_INTERPRETER__PACKAGES";
    builder.env(variable, sets()).env(defaults, r#"["small"]"#)
}

/// Such a stack in one process.
fn in_one() -> StackBuilder {
    with_sets(Stack::builder(), "TAVERN__PACKAGES_DIR")
}

/// Such a stack in processes of their own.
fn in_five() -> StackBuilder {
    let variable = "TAVERN_SANDBOX__PACKAGES_DIRECTORY";
    with_sets(Stack::builder().separate(), variable)
}

/// Calls a tool as a model would, and returns the result.
async fn call(stack: &Stack, tool: &str, arguments: &[(&str, &str)]) -> anyhow::Result<CallResult> {
    let arguments = arguments.iter();
    let arguments = arguments.map(|(name, value)| format!("<{name}><![CDATA[{value}]]></{name}>"));
    let arguments: String = arguments.collect();
    let text = format!("<ACTION><{tool}>{arguments}</{tool}></ACTION>");
    result_of(stack, "one", text).await
}

/// The code and the message of the error of a call.
fn error(result: CallResult) -> anyhow::Result<(String, String)> {
    let error = result.error.context("the call failed")?;
    Ok((error.code, error.message))
}

#[tokio::test(flavor = "multi_thread")]
async fn code_imports_the_set_that_it_names_or_the_one_of_the_settings() -> anyhow::Result<()> {
    for builder in [in_one(), in_five()] {
        let stack = builder.start().await?;
        let python = [
            ("language", "python"),
            ("code", "import six, dateutil.parser\nprint(six.PY3)"),
        ];
        let default = call(&stack, EXECUTE, &python).await?;
        assert_eq!(output(&default)?["stdout"], "True\n");
        let named = [&python[..], &[("packages", "small")]].concat();
        assert_eq!(
            output(&call(&stack, EXECUTE, &named).await?)?["stdout"],
            "True\n"
        );
        let node = [
            ("language", "nodejs"),
            ("packages", "web"),
            ("code", "console.log(require('lodash').sum([1, 2]))"),
        ];
        assert_eq!(
            output(&call(&stack, EXECUTE, &node).await?)?["stdout"],
            "3\n"
        );
        let bash = [("language", "bash"), ("code", "echo $TAVERN_PACKAGES_PATH")];
        assert_eq!(
            output(&call(&stack, EXECUTE, &bash).await?)?["stdout"],
            "\n"
        );
        let cell = [("language", "python"), ("code", "import six\nsix.PY3")];
        let ran = call(&stack, CELL, &cell).await?;
        assert_eq!(output(&ran)?["value"], "True");
        let unknown = [&python[..], &[("packages", "small,web")]].concat();
        let (code, message) = error(call(&stack, EXECUTE, &unknown).await?)?;
        assert_eq!(code, "unknown_package_set");
        assert!(
            message.contains("there are: small, web") || message.contains("small"),
            "{message}"
        );
        let unfit = [&node[..1], &[("packages", "small")], &node[2..]].concat();
        let (code, _) = error(call(&stack, EXECUTE, &unfit).await?)?;
        assert_eq!(code, "package_set_unfit");
    }
    Ok(())
}

const EXECUTE: &str = "CodeInterpreter:execute";
const CELL: &str = "CodeInterpreter:run_cell";

/// Code that wants a package: the tool, the language, the set that it names, the code, a part of the answer.
const INSTALLING: [(&str, &str, &str, &str, &str); 11] = [
    (
        EXECUTE,
        "python",
        "",
        "import none_such.deep",
        "none_such is in no package set",
    ),
    (
        EXECUTE,
        "nodejs",
        "",
        "require('lodash')",
        "lodash is in the package set web",
    ),
    (
        EXECUTE,
        "nodejs",
        "",
        "import('date-fns')",
        "date-fns is in the package set web",
    ),
    (
        EXECUTE,
        "python",
        "small",
        "!pip install -q six",
        "six is in the package set small",
    ),
    (
        EXECUTE,
        "python",
        "",
        "pip install python-dateutil",
        "python-dateutil is in the package set small",
    ),
    (
        EXECUTE,
        "python",
        "",
        "import subprocess, sys\nsubprocess.check_call([sys.executable, '-m', 'pip', 'install', 'none-such'])",
        "Packages cannot be installed here",
    ),
    (
        EXECUTE,
        "bash",
        "",
        "pip install six",
        "Packages cannot be installed here",
    ),
    (
        EXECUTE,
        "bash",
        "",
        "npm install lodash",
        "Packages cannot be installed here",
    ),
    (
        CELL,
        "python",
        "",
        "import none_such",
        "none_such is in no package set",
    ),
    (
        CELL,
        "python",
        "",
        "%pip install six",
        "six is in the package set small",
    ),
    (
        CELL,
        "nodejs",
        "",
        "require('lodash')",
        "lodash is in the package set web",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_installed_and_the_set_that_has_it_is_named() -> anyhow::Result<()> {
    let stack = in_one().start().await?;
    for (tool, language, packages, source, expected) in INSTALLING {
        let mut arguments = vec![("language", language), ("code", source)];
        if !packages.is_empty() {
            arguments.push(("packages", packages));
        }
        let (code, message) = error(call(&stack, tool, &arguments).await?)?;
        assert_eq!(code, "no_package_install", "{source}: {message}");
        assert!(message.contains(expected), "{source}: {message}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn other_failures_keep_their_own_words() -> anyhow::Result<()> {
    let stack = in_one().start().await?;
    let caught = "try: import none_such\nexcept ImportError: {}['x']";
    for source in [
        "import dateutil.parsr",
        caught,
        "import six\nraise ValueError('six')",
    ] {
        let arguments = [("language", "python"), ("code", source)];
        let (code, message) = error(call(&stack, EXECUTE, &arguments).await?)?;
        assert_ne!(code, "no_package_install", "{source}: {message}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_reads_a_line_about_each_set() -> anyhow::Result<()> {
    let stack = in_one().start().await?;
    for tool_id in [EXECUTE, CELL] {
        let request = GetToolRequest {
            tool_id: tool_id.to_owned(),
        };
        let tool = stack.registry().get_tool(request).await?.into_inner();
        let tool = tool.tool.context("the tool")?;
        let said = &tool.description;
        assert!(
            said.contains("\nPackage set small (python): six, dateutil"),
            "{said}"
        );
        assert!(
            said.contains("\nPackage set web (javascript): lodash, date-fns."),
            "{said}"
        );
        assert!(
            tool.parameters_json.contains("\"packages\""),
            "{}",
            tool.parameters_json
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_tool_imports_the_set_of_its_definition() -> anyhow::Result<()> {
    let deploy = tempfile::tempdir()?;
    let plugin = deploy.path().join("plugins/demo");
    for directory in ["agents", "models", "workflows", "plugins/demo/tools"] {
        std::fs::create_dir_all(deploy.path().join(directory))?;
    }
    let write = |path: &str, text: String| std::fs::write(plugin.join(path), text);
    write(
        "plugin.yaml",
        "name: demo\ntools:\n  entry: tools\npermissions: {packages: [small]}\n".to_owned(),
    )?;
    for (name, packages) in [("with", r#", "packages": "small""#), ("without", "")] {
        let tool = format!(
            r#"{{"id": "demo:{name}", "displayName": "{name}", "description": "Imports six.",
                "implementation": {{"type": "script", "command": "python main.py"{packages}}},
                "parameters": {{"type": "object", "properties": {{}}}}, "idempotent": true}}"#
        );
        write(&format!("tools/{name}.tool.json"), tool)?;
    }
    let code = "import json, dateutil.parser as parser\nprint(json.dumps({'status': 'success', 'result': '/packages/' in parser.__file__}))";
    write("main.py", code.to_owned())?;
    let package = plugin_package::read_path(&plugin)?;
    let package = package.map_err(|violations| anyhow::anyhow!("{violations:?}"))?;
    let approved = serde_json::json!({
        "plugins": [{"name": "demo", "package_digest": package.digest()}],
    });
    let lock = deploy.path().join("plugins/plugins.lock");
    std::fs::write(lock, approved.to_string())?;
    let stack = in_one().deploy(deploy.path()).start().await?;
    let with = call(&stack, "demo:with", &[]).await?;
    assert_eq!(with.output_json, "true", "{with:?}");
    let without = call(&stack, "demo:without", &[]).await?;
    match without.error {
        Some(error) => assert_eq!(error.code, "no_package_install"),
        // The interpreter of this machine has the module itself.
        None => assert_eq!(without.output_json, "false"),
    }
    Ok(())
}
