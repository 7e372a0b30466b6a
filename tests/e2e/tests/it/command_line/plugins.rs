//! The commands about plugins, from a new one to its removal, as the guide shows them.

use std::path::Path;
use std::process::{Command, Output};

use testkit::{Stack, binary};

use super::text;

fn tavern(stack: &Stack, at: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(binary("tavern")?);
    command.args(arguments).current_dir(at);
    command.env("TAVERN_ADDRESS", stack.address());
    Ok(command.output()?)
}

fn printed(stack: &Stack, at: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = tavern(stack, at, arguments)?;
    anyhow::ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(text(&output.stdout))
}

/// Writes the archive of a plugin that is as the guide declares one.
fn write_dice(at: &Path) -> anyhow::Result<()> {
    let manifest = "name: dice\nversion: 1.0.0\ntools: {entry: tools}\nconfigOptions:\n  \
                    - {key: extensions.dice.sides, type: integer, minimum: 2, maximum: 100, required: true}\n  \
                    - {key: extensions.dice.motto, type: string, deprecated: true}\n\
                    permissions:\n  resources: {wall_seconds: 20}\n";
    let tool = r#"{"id": "dice:roll", "description": "Rolls a die with as many sides as are set.",
        "readOnly": true, "parameters": {"type": "object"},
        "implementation": {"type": "script", "command": "python3 roll.py"}}"#;
    let script = "import json, os, sys\n\
                  if 'fail' in json.load(sys.stdin): raise ValueError('no dice are left')\n\
                  options = json.load(open(os.environ['TAVERN_OPTIONS']))\n\
                  print(json.dumps({'sides': options['sides']}))\n";
    let code = "import json, sys, zipfile\n\
                files = json.load(sys.stdin)\n\
                with zipfile.ZipFile('dice.zip', 'w', zipfile.ZIP_DEFLATED) as archive:\n    \
                for path, content in files.items(): archive.writestr(path, content)\n";
    let files = serde_json::json!({
        "plugin.yaml": manifest,
        "tools/roll.tool.json": tool,
        "roll.py": script,
    });
    std::fs::write(at.join("files.json"), files.to_string())?;
    let mut python = Command::new("python3");
    python.args(["-c", code]).current_dir(at);
    python.stdin(std::fs::File::open(at.join("files.json"))?);
    anyhow::ensure!(python.status()?.success(), "the archive is not written");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_planned_installed_set_called_switched_and_removed() -> anyhow::Result<()> {
    let stack = Stack::all_in_one().await?;
    let directory = tempfile::tempdir()?;
    let at = directory.path();
    write_dice(at)?;
    let checked = printed(&stack, at, &["plugins", "check", "dice.zip"])?;
    assert!(checked.contains("dice:roll"), "{checked}");

    std::fs::create_dir(at.join("wordy"))?;
    for written in ["wordy", "./wordy", "wordy/"] {
        let refused = tavern(&stack, at, &["plugins", "plan", written])?;
        let reason = text(&refused.stderr);
        assert!(!refused.status.success());
        assert!(reason.contains("make a .zip of it"), "{written}: {reason}");
    }

    let plan = printed(&stack, at, &["plugins", "plan", "dice.zip"])?;
    for part in ["dice:roll", "wall_seconds 20", "sides"] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let mut words = plan.split_whitespace();
    let digest = words.rfind(|word| word.starts_with("sha256:"));
    let digest = anyhow::Context::context(digest, "the plan has a digest")?;
    let installed = printed(&stack, at, &["plugins", "install", digest])?;
    assert!(
        installed.contains("tavern plugins options dice sides="),
        "{installed}"
    );

    let call = ["invoke", "<ACTION><dice:roll></dice:roll></ACTION>"];
    let waiting = tavern(&stack, at, &call)?;
    let waiting = text(&waiting.stdout) + &text(&waiting.stderr);
    assert!(waiting.contains("plugin_not_configured"), "{waiting}");
    let set = printed(&stack, at, &["plugins", "options", "dice", "sides=20"])?;
    assert!(set.contains("extensions.dice.sides = 20"), "{set}");
    let called = printed(&stack, at, &call)?;
    assert!(called.contains("20"), "{called}");
    let wrong = tavern(&stack, at, &["plugins", "options", "dice", "sides=1"])?;
    assert!(!wrong.status.success());
    assert!(text(&wrong.stderr).contains("2"), "{wrong:?}");
    let failed = tavern(
        &stack,
        at,
        &["tools", "call", "dice:roll", r#"{"fail": 1}"#],
    )?;
    let failed = text(&failed.stdout);
    assert_eq!(failed.matches("Traceback").count(), 1, "{failed}");
    let end = "the script ended with the code 1: ValueError: no dice are left (script_exited)\n";
    assert!(failed.ends_with(end), "{failed}");
    let fail = "<ACTION><dice:roll><fail>1</fail></dice:roll></ACTION>";
    let failed = text(&tavern(&stack, at, &["invoke", fail])?.stdout);
    // As output, and as the model reads it.
    assert_eq!(failed.matches("Traceback").count(), 2, "{failed}");
    let motto = "extensions.dice.motto";
    let lucky = printed(&stack, at, &["plugins", "options", "dice", "motto=luck"])?;
    let line = format!("{motto} = \"luck\"  (string, set, deprecated)");
    assert!(lucky.contains(&line), "{lucky}");
    let unset = ["plugins", "options", "dice", "--unset", "motto"];
    let unset = printed(&stack, at, &unset)?;
    let line = format!("{motto}  (string, not set, deprecated)");
    assert!(unset.contains(&line), "{unset}");
    assert!(unset.contains("extensions.dice.sides = 20"), "{unset}");

    printed(&stack, at, &["plugins", "disable", "dice"])?;
    let shown = printed(&stack, at, &["plugins", "show", "dice"])?;
    assert!(shown.contains("switched off"), "{shown}");
    printed(&stack, at, &["plugins", "enable", "dice"])?;
    printed(&stack, at, &call)?;
    printed(&stack, at, &["plugins", "remove", "dice"])?;
    let gone = tavern(&stack, at, &["tools", "call", "dice:roll", "{}"])?;
    let gone = text(&gone.stdout) + &text(&gone.stderr);
    assert!(gone.contains("tool_removed"), "{gone}");
    let gone = text(&tavern(&stack, at, &["invoke", fail])?.stdout);
    assert!(gone.contains("the plugin dice, which brought it"), "{gone}");
    assert!(!gone.contains("did you mean"), "{gone}");
    Ok(())
}
