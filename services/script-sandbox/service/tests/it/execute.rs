//! Scripts that behave.

use contracts::tavern::sandbox::v1::{
    ExecuteRequest, InputFile, Limits, ResultState, execute_request::Program,
};

use crate::{
    rounds::{as_every_user, everywhere},
    support::{
        Host, class, expect_class, expect_output, limited, memory_of, patient, python, request,
        seconds, stderr, stdout,
    },
};

#[test]
fn every_runtime_prints_on_every_level() {
    everywhere(async |host| {
        for (runtime, source) in [
            ("python3", "print('hello')"),
            ("node", "console.log('hello')"),
            ("bash", "echo hello"),
            ("python", "print('hello')"),
            ("javascript", "console.log('hello')"),
        ] {
            let response = host.run(request(runtime, source)).await;
            assert_eq!(
                (class(&response).as_str(), stdout(&response).as_str()),
                ("exited 0", "hello\n"),
                "{runtime}: {}",
                stderr(&response)
            );
        }
    });
}

/// Programs in Python that end without a last word of their interpreter: the lines that end them,
/// their limits, and the verdict.
pub(crate) fn sudden_ends() -> Vec<(&'static str, Limits, &'static str)> {
    let wall = Limits {
        wall_time: seconds(3.0),
        ..patient()
    };
    let cpu = Limits {
        cpu_time: seconds(1.0),
        ..patient()
    };
    vec![
        ("import time; time.sleep(300)", wall, "wall"),
        ("while True: pass", cpu, "cpu"),
        (
            "held = []\nwhile True: held.append(b'x' * (1 << 20))",
            memory_of(64),
            "memory",
        ),
        ("os._exit(7)", patient(), "exited 7"),
        ("os.kill(os.getpid(), 9)", patient(), "signalled SIGKILL"),
        ("os.abort()", patient(), "signalled SIGABRT"),
        (
            "import ctypes; ctypes.string_at(0)",
            patient(),
            "signalled SIGSEGV",
        ),
    ]
}

/// Prints a line, half a line, and the output of a child of the same interpreter before its sudden
/// end.
pub(crate) const PRINTS: &str = "import os, subprocess, sys
print('a line')
print('half', 'a line', end='')
subprocess.run([sys.executable, '-c', 'import os; print(\" of a child\"); os._exit(0)'])
";

#[test]
fn prints_of_python_arrive_however_it_ends() {
    everywhere(async |host| {
        for (end, limits, verdict) in sudden_ends() {
            let script = limited(python(&format!("{PRINTS}{end}")), limits);
            let response = host.run(script).await;
            assert_eq!(
                (class(&response).as_str(), stdout(&response).as_str()),
                (verdict, "a line\nhalf a line of a child\n"),
                "{end}: {}",
                stderr(&response)
            );
        }
    });
}

#[test]
fn json_goes_in_and_comes_out_apart_from_standard_output() {
    as_every_user(async || {
        let host = Host::full().await;
        let input = r#"{"n": 12345678901234567890.5}"#;
        let sources = [
            (
                "python3",
                "import os\nprint('{\"forged\": 1}')\nos.write(int(os.environ['TAVERN_RESULT_FD']), open(os.environ['TAVERN_INPUT_PATH'], 'rb').read())",
            ),
            (
                "node",
                "const fs = require('fs'); console.log('{\"forged\": 1}'); fs.writeSync(3, fs.readFileSync(process.env.TAVERN_INPUT_PATH));",
            ),
            (
                "bash",
                "echo '{\"forged\": 1}'; cat \"$TAVERN_INPUT_PATH\" >&3",
            ),
        ];
        for (runtime, source) in sources {
            let mut request = request(runtime, source);
            request.input_json = input.to_owned();
            let response = host.run(request).await;
            expect_output(&response, "{\"forged\": 1}\n");
            assert_eq!(response.result_state(), ResultState::Json);
            assert_eq!(response.result_json, input);
        }
    });
}

#[test]
fn files_arguments_input_and_variables_reach_the_script() {
    as_every_user(async || {
        let host = Host::full().await;
        let file = |path: &str, content: &str, executable| InputFile {
            path: path.to_owned(),
            content: content.as_bytes().to_vec(),
            executable,
            ..InputFile::default()
        };
        let request = ExecuteRequest {
            runtime: "python3".to_owned(),
            program: Some(Program::EntryPath("app/main.py".to_owned())),
            files: vec![
                file(
                    "app/main.py",
                    "import sys, os, helper, subprocess\nprint(helper.word, sys.argv[1:], sys.stdin.read(), os.environ['COLOUR'], os.getcwd())\nprint(subprocess.check_output(['../tool.sh'], cwd='/work/app').decode())",
                    false,
                ),
                file("app/helper.py", "word = 'helped'", false),
                file("tool.sh", "#!/bin/bash\necho tool", true),
            ],
            arguments: vec!["a b".to_owned(), "-c".to_owned()],
            stdin: b"typed".to_vec(),
            environment: [("COLOUR".to_owned(), "blue".to_owned())].into(),
            ..ExecuteRequest::default()
        };
        let response = host.run(request).await;
        expect_output(&response, "helped ['a b', '-c'] typed blue /work\ntool\n\n");
    });
}

#[test]
fn the_environment_is_built_from_nothing() {
    as_every_user(async || {
        let host = Host::full().await;
        let mut request = request("bash", "env | sed 's/=.*//' | sort | tr '\\n' ' '");
        request.effect_id = "effect-1".to_owned();
        request.conversation_id = "conv-1".to_owned();
        let response = host.run(request).await;
        let names = stdout(&response).replace("TRACEPARENT ", "");
        assert_eq!(
            names,
            "HOME LANG OPENSSL_CONF PATH PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INDEX PWD SHLVL \
             TAVERN_CONVERSATION_ID TAVERN_EFFECT_ID TAVERN_PROGRESS_FD TAVERN_RESULT_FD TMPDIR _ \
             npm_config_offline "
        );
    });
}

#[test]
fn the_trace_of_the_call_reaches_the_script() {
    as_every_user(async || {
        let host = Host::full().await;
        let response = host.run(request("bash", "echo -n $TRACEPARENT")).await;
        let traceparent = stdout(&response);
        assert!(
            telemetry::context::parse_traceparent(&traceparent).is_some(),
            "{traceparent:?}"
        );
    });
}

#[test]
fn what_is_no_json_is_no_result() {
    as_every_user(async || {
        let host = Host::full().await;
        let response = host.python("import os; os.write(3, b'{\"a\": ')").await;
        expect_class(&response, &["exited 0"]);
        assert_eq!(response.result_state(), ResultState::Malformed);
        assert_eq!(response.result_json, "");
    });
}

#[test]
fn a_wrong_request_is_refused_with_every_field() {
    as_every_user(async || {
        let host = Host::full().await;
        let against_rules = ExecuteRequest {
            limits: Some(contracts::tavern::sandbox::v1::Limits {
                processes: Some(0),
                ..Default::default()
            }),
            ..ExecuteRequest::default()
        };
        let against_settings = ExecuteRequest {
            effect_id: "a b".to_owned(),
            input_json: "{".to_owned(),
            limits: Some(contracts::tavern::sandbox::v1::Limits {
                memory_bytes: Some(1 << 63),
                ..Default::default()
            }),
            ..python("1")
        };
        for (request, expected) in [
            (against_rules, ["limits.processes", "program", "runtime"]),
            (
                against_settings,
                ["effect_id", "input_json", "limits.memory_bytes"],
            ),
        ] {
            let status = host.client.clone().execute(request).await.unwrap_err();
            let mut fields: Vec<String> = grpc_kit::violations(&status)
                .into_iter()
                .map(|(field, _)| field)
                .collect();
            fields.sort();
            assert_eq!(fields, expected);
        }

        let status = host
            .client
            .clone()
            .execute(crate::support::request("cobol", "x"))
            .await
            .unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition);
    });
}

#[test]
fn a_failing_script_tells_its_error() {
    as_every_user(async || {
        let host = Host::full().await;
        let response = host.python("x = 1\nraise ValueError('wrong')").await;
        expect_class(&response, &["exited 1"]);
        let said = stderr(&response);
        assert!(
            said.contains("main.py\", line 2") && said.contains("ValueError: wrong"),
            "{said}"
        );
        let usage = response.usage.unwrap();
        assert!(
            usage.max_memory_bytes > 1 << 20 && usage.wall_time.unwrap().nanos > 0,
            "{usage:?}"
        );
    });
}

#[test]
fn e98_odd_sources_run_exactly() {
    as_every_user(async || {
        let host = Host::full().await;
        let response = host
            .run(python("\u{feff}print('é\u{1F600}')\r\nprint(2)\r\n"))
            .await;
        expect_output(&response, "é\u{1F600}\n2\n");
        let status = host
            .client
            .clone()
            .execute(python("print(1)\0"))
            .await
            .unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument);
    });
}

#[test]
fn standard_streams_can_be_opened_by_their_names() {
    as_every_user(async || {
        let python_source = "
open('/dev/stderr', 'w').write('problem\\n')
open('/proc/self/fd/1', 'w').write(open('/dev/stdin').read())
";
        let bash_source = "cat /dev/stdin; echo problem > /dev/stderr; true > /proc/self/fd/1";
        for host in [Host::full().await, Host::sampled().await] {
            for (runtime, source) in [("python3", python_source), ("bash", bash_source)] {
                let mut asked = request(runtime, source);
                asked.stdin = b"given\n".to_vec();
                let response = host.run(asked).await;
                expect_output(&response, "given\n");
                assert_eq!(stderr(&response), "problem\n");
            }
        }
    });
}
