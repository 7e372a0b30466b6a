//! The output of `tavern` and the programs of the services without a Tavern that serves.

use std::process::{Command, Output, Stdio};

use testkit::binary;

use super::text;

/// An address at which no server listens.
const NO_SERVER: &str = "http://127.0.0.1:1";

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<Output> {
    let mut command = Command::new(binary(program)?);
    command.args(arguments).env("TAVERN_ADDRESS", NO_SERVER);
    Ok(command.output()?)
}

#[test]
fn the_settings_have_the_values_of_the_flags_however_they_are_printed() -> anyhow::Result<()> {
    let flags = ["--data-dir", "/x/data", "--listen", "127.0.0.1:9"];
    let print = |command: &[&str]| -> anyhow::Result<String> {
        let printed = run("tavern", &[command, &flags].concat())?;
        assert!(printed.status.success(), "{command:?}: {printed:?}");
        Ok(text(&printed.stdout))
    };
    let printed = print(&["settings"])?;
    for line in [
        "data_dir = \"/x/data\"  # command line, default \"data\"",
        "server.listen = \"127.0.0.1:9\"  # command line, default \"127.0.0.1:7401\"",
        "# tavern: environment variables TAVERN__…",
        "# tool-registry: environment variables TAVERN_REGISTRY__…",
        "# agent-runtime: environment variables TAVERN_AGENT__…",
    ] {
        assert!(printed.contains(line), "{line} is not in {printed}");
    }
    for command in [["serve", "--print-settings"], ["demo", "--print-settings"]] {
        assert_eq!(print(&command)?, printed, "{command:?}");
    }
    let without = print(&["serve", "--without-plugins", "--print-settings"])?;
    assert!(without.contains("\nwithout_plugins = true"), "{without}");
    Ok(())
}

#[test]
fn no_meaning_of_a_setting_contradicts_its_default() -> anyhow::Result<()> {
    for (program, line) in [
        ("gateway", "server.listen = \"127.0.0.1:7401\"  # default"),
        (
            "gateway",
            "# agent: The address of agent-runtime. Default: http://127.0.0.1:7405.",
        ),
        (
            "agent-runtime",
            "server.listen = \"127.0.0.1:7405\"  # default",
        ),
        (
            "agent-runtime",
            "# agent-runtime: environment variables TAVERN_AGENT__…",
        ),
    ] {
        let printed = text(&run(program, &["--print-settings"])?.stdout);
        assert!(printed.contains(line), "{line} is not in {printed}");
        for wrong in ["Default `127.0.0.1:0`", "Default: empty, which is refused"] {
            assert!(!printed.contains(wrong), "{program}: {printed}");
        }
    }
    Ok(())
}

#[test]
fn a_reader_that_has_gone_ends_every_program_quietly() -> anyhow::Result<()> {
    for (program, arguments) in [
        ("tavern", &["settings"][..]),
        ("tavern", &["demo", "--print-settings"]),
        ("tavern", &["approvals", "key", "mara"]),
        ("gateway", &["--print-settings"]),
        ("script-sandbox", &["--print-settings"]),
    ] {
        let mut command = Command::new(binary(program)?)
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        drop(command.stdout.take());
        let ended = command.wait_with_output()?;
        assert!(ended.status.success(), "{program} {arguments:?}: {ended:?}");
        assert_eq!(text(&ended.stderr), "", "{program} {arguments:?}");
    }
    Ok(())
}

/// Checks that each command fails with its exit code, and that standard error has each part, in one form.
fn check_failures(cases: &[(&[&str], i32, &[&str])]) -> anyhow::Result<()> {
    for (arguments, code, parts) in cases {
        let failed = run("tavern", arguments)?;
        let said = text(&failed.stderr);
        assert_eq!(failed.status.code(), Some(*code), "{arguments:?}: {said}");
        assert!(said.starts_with("error: "), "{arguments:?}: {said}");
        for part in *parts {
            assert!(
                said.contains(part),
                "{arguments:?}: {part} is not in {said}"
            );
        }
        for debug in ["code: '", "Caused by", "Error: "] {
            assert!(!said.contains(debug), "{arguments:?}: {said}");
        }
    }
    Ok(())
}

#[test]
fn a_command_that_fails_says_why_in_one_form() -> anyhow::Result<()> {
    check_failures(&[
        // The environment names the server, and an option wins over it.
        (&["healthcheck"], 1, &["http://127.0.0.1:1 is not ready: "]),
        (
            &["healthcheck", "--address", "http://127.0.0.1:2"],
            1,
            &["http://127.0.0.1:2 is not ready: "],
        ),
        (
            &["--address", "nowhere", "healthcheck"],
            1,
            &["nowhere is not ready: `nowhere` is not a valid service address"],
        ),
        (&["play", "--examples", "/nowhere"], 1, &[]),
        (&["--json", "runs", "list"], 1, &["does not answer"]),
        (
            &["runs", "replay", "/nowhere"],
            1,
            &["/nowhere cannot be read: "],
        ),
        (
            &[
                "calls",
                "resolve",
                "e1",
                "--took-effect",
                "--output",
                "@/nowhere",
            ],
            1,
            &["/nowhere cannot be read: "],
        ),
        (
            &["serve", "--listen", "0.0.0.0:1"],
            78,
            &[
                "one setting is wrong",
                "server.listen is 0.0.0.0:1",
                "(command line)",
            ],
        ),
    ])
}

#[test]
fn a_command_line_that_is_refused_names_what_is_accepted() -> anyhow::Result<()> {
    check_failures(&[
        (
            &["--address", NO_SERVER, "serve"],
            2,
            &["`tavern serve` has no option `--address`"],
        ),
        (
            &["demo", "--json"],
            2,
            &["`tavern demo` has no option `--json`"],
        ),
        (
            &["runs", "list", "--state", "x"],
            2,
            &["'x'", "running", "paused", "waiting", "queued", "in_doubt"],
        ),
        (
            &["calls", "resolve", "e1"],
            2,
            &["<--took-effect|--did-not|--repeat>"],
        ),
        (
            &["calls", "resolve", "e1", "--did-not", "--repeat"],
            2,
            &["'--did-not' cannot be used with '--repeat'"],
        ),
        (
            &["calls", "resolve", "e1", "--did-not", "--output", "1"],
            2,
            &["'--output <JSON|@FILE>'", "cannot be used with"],
        ),
        (
            &["scenes", "publish", "scene_1", "a", "--priority", "foo"],
            2,
            &["low, normal, high, critical"],
        ),
        (
            &["tools", "grammar", "--dialect", "foo"],
            2,
            &["tam_v1, tam_v2, vcp"],
        ),
        (
            &["schedules", "put", "s", "w"],
            2,
            &["<--every <SECONDS>|--cron <CRON>>"],
        ),
        (
            &[
                "schedules",
                "put",
                "s",
                "w",
                "--every",
                "1",
                "--overlap",
                "foo",
            ],
            2,
            &["skip, buffer_one"],
        ),
    ])
}

#[test]
fn the_help_of_a_command_has_only_options_of_use_and_no_empty_default() -> anyhow::Result<()> {
    for (command, address, json) in [
        (&["serve"][..], false, false),
        (&["demo"], false, false),
        (&["play"], true, false),
        (&["healthcheck"], true, false),
        (&["runs", "list"], true, true),
        (&["invoke"], true, true),
        (&["schedules", "put"], true, true),
    ] {
        let help = text(&run("tavern", &[command, &["--help"]].concat())?.stdout);
        assert_eq!(help.contains("--address"), address, "{command:?}: {help}");
        assert_eq!(help.contains("--json"), json, "{command:?}: {help}");
        assert!(!help.contains("[default: \"\"]"), "{command:?}: {help}");
    }
    Ok(())
}

#[test]
fn a_new_plugin_passes_the_check_and_faults_are_printed_one_per_line() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let run = |arguments: &[&str]| -> anyhow::Result<Output> {
        let mut command = Command::new(binary("tavern")?);
        command.args(arguments).current_dir(directory.path());
        Ok(command.env("TAVERN_ADDRESS", NO_SERVER).output()?)
    };
    let made = run(&["plugins", "new", "demo"])?;
    assert!(made.status.success(), "{made:?}");
    let checked = run(&["plugins", "check", "demo"])?;
    assert!(checked.status.success(), "{checked:?}");
    let printed = text(&checked.stdout);
    for line in [
        "demo 0.1.0, a first install\nPackage sha256:",
        "\n  demo:greet (new)\n    It declares that it changes nothing.\n",
        "\nFiles: 4, ",
    ] {
        assert!(printed.contains(line), "{line} is not in {printed}");
    }
    // No server holds this plan.
    assert!(!printed.contains("Plan "), "{printed}");
    assert!(!run(&["plugins", "new", "demo"])?.status.success());
    assert!(!run(&["plugins", "new", "../other"])?.status.success());
    for reserved in ["system", "core"] {
        let refused = run(&["plugins", "new", reserved])?;
        assert!(!refused.status.success(), "{refused:?}");
        let reason = text(&refused.stderr);
        assert!(reason.contains("reserved to the platform"), "{reason}");
        assert!(!directory.path().join(reserved).exists());
    }

    let plugin = directory.path().join("demo");
    std::fs::write(plugin.join("plugin.yaml"), "name: ''\n")?;
    std::fs::remove_file(plugin.join("scripts/greet.py"))?;
    let checked = run(&["plugins", "check", "demo"])?;
    assert_eq!(checked.status.code(), Some(1));
    let printed = text(&checked.stdout);
    let places: Vec<&str> = printed
        .lines()
        .filter_map(|line| line.split(": ").next())
        .collect();
    let expected = ["demo plugin.yaml/name", "demo tools/greet.tool.json"];
    assert_eq!(places, expected, "{printed}");
    Ok(())
}

#[test]
fn a_check_says_what_each_plan_of_the_plugin_says() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let run = |arguments: &[&str]| -> anyhow::Result<Output> {
        let mut command = Command::new(binary("tavern")?);
        command.args(arguments).current_dir(directory.path());
        Ok(command.env("TAVERN_ADDRESS", NO_SERVER).output()?)
    };
    run(&["plugins", "new", "demo"])?;
    let at = |path: &str| directory.path().join("demo").join(path);
    let manifest = std::fs::read_to_string(at("plugin.yaml"))?;
    std::fs::write(at("plugin.yaml"), format!("{manifest}icon: star\n"))?;
    let remarked = run(&["plugins", "check", "demo"])?;
    assert!(remarked.status.success(), "{remarked:?}");
    let printed = text(&remarked.stdout);
    assert!(printed.contains("\nRemarks\n  - /icon: "), "{printed}");

    let wrong =
        "icon: star\nrequires: {tavern: '>=9'}\npermissions: {network: [{host: example.org}]}\n";
    std::fs::write(at("plugin.yaml"), format!("{manifest}{wrong}"))?;
    let tool = std::fs::read_to_string(at("tools/greet.tool.json"))?;
    let tool = tool.replace("demo:greet", "system:env");
    std::fs::write(at("tools/greet.tool.json"), tool)?;
    let refused = run(&["plugins", "check", "demo"])?;
    assert_eq!(refused.status.code(), Some(1));
    let printed = text(&refused.stdout);
    for line in [
        "demo plugin.yaml/requires/tavern: ",
        "demo plugin.yaml/permissions/network",
        "demo: 'system:env' is taken by platform: ids that begin with 'system:'",
        "demo plugin.yaml/icon: (a remark) ",
    ] {
        let named = printed.lines().any(|printed| printed.starts_with(line));
        assert!(named, "{line} begins no line of {printed}");
    }
    Ok(())
}
