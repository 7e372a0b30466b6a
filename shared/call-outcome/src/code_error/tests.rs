use super::*;

fn check(language: &str, stderr: &str, headline: &str, trace: &[&str]) {
    let error = read(language, stderr).unwrap();
    assert_eq!(error.headline(), headline);
    assert_eq!(error.trace, trace.join("\n"));
}

#[test]
fn a_python_error_is_reported_with_the_line_of_the_code() {
    let stderr = "a warning\nTraceback (most recent call last):\n  \
        File \"/tmp/tavern-script-7-1/run/main.py\", line 9, in <module>\n    work()\n  \
        File \"/run/main.py\", line 4, in work\n    json.loads('{')\n    ~~~~~~~~~~^^^^^\n  \
        File \"/usr/lib/python3.11/json/decoder.py\", line 355, in raw_decode\n    raise JSONDecodeError\n\
        json.decoder.JSONDecodeError: Expecting property name: line 1\n";
    let trace = [
        "Traceback (most recent call last):",
        "  File \"main.py\", line 9, in <module>",
        "    work()",
        "  File \"main.py\", line 4, in work",
        "    json.loads('{')",
        "    ~~~~~~~~~~^^^^^",
        "  File \"/usr/lib/python3.11/json/decoder.py\", line 355, in raw_decode",
        "    raise JSONDecodeError",
        "json.decoder.JSONDecodeError: Expecting property name: line 1",
    ];
    let headline = "json.decoder.JSONDecodeError: Expecting property name: line 1 (line 4)";
    check("python", stderr, headline, &trace);
}

#[test]
fn a_python_error_of_syntax_has_no_head_and_one_without_words_no_message() {
    let stderr =
        "  File \"/run/main.py\", line 2\n    if x\n        ^\nSyntaxError: expected ':'\n";
    let trace = [
        "  File \"main.py\", line 2",
        "    if x",
        "        ^",
        "SyntaxError: expected ':'",
    ];
    check(
        "python",
        stderr,
        "SyntaxError: expected ':' (line 2)",
        &trace,
    );
    let stderr = "Traceback (most recent call last):\n  File \"/run/main-1.py\", line 1, in <module>\n    assert 0\nAssertionError\n";
    assert_eq!(
        read("python", stderr).unwrap().headline(),
        "AssertionError (line 1)"
    );
}

#[test]
fn of_several_python_errors_the_last_counts() {
    let stderr = "Traceback (most recent call last):\n  File \"/run/main.py\", line 2, in <module>\n    1/0\nZeroDivisionError: division by zero\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n  File \"/run/main.py\", line 4, in <module>\n    {}['a']\nKeyError: 'a'\n";
    assert_eq!(
        read("python", stderr).unwrap().headline(),
        "KeyError: 'a' (line 4)"
    );
}

#[test]
fn a_node_error_is_reported_without_the_frames_of_node() {
    let stderr = "/run/main.js:3\n  throw new TypeError('no number');\n  ^\n\nTypeError: no number\n    at half (/run/main.js:3:9)\n    at Object.<anonymous> (/run/main.js:6:1)\n    at Module._compile (node:internal/modules/cjs/loader:1554:14)\n\nNode.js v20.19.0\n";
    let trace = [
        "main.js:3",
        "  throw new TypeError('no number');",
        "  ^",
        "",
        "TypeError: no number",
        "    at half (main.js:3:9)",
        "    at Object.<anonymous> (main.js:6:1)",
    ];
    check("nodejs", stderr, "TypeError: no number (line 3)", &trace);
}

#[test]
fn a_bash_error_is_reported_with_its_line() {
    let stderr = "/run/main.sh: line 2: fro: command not found\n";
    let trace = ["main.sh: line 2: fro: command not found"];
    check("bash", stderr, "fro: command not found (line 2)", &trace);
}

#[test]
fn what_is_no_error_of_the_language_is_none() {
    for (language, stderr) in [
        ("python", ""),
        ("python", "just words"),
        ("python", "Traceback (most recent call last):"),
        (
            "python",
            "Traceback (most recent call last):\n  File \"/run/main.py\", line 1",
        ),
        ("nodejs", "done"),
        ("bash", "main.sh: line x: y"),
        ("cobol", "Error: 1"),
    ] {
        assert_eq!(read(language, stderr), None, "{stderr}");
    }
}

#[test]
fn a_long_trace_is_shortened_in_the_middle() {
    let frames = "  File \"/run/main.py\", line 1, in f\n    f()\n".repeat(500);
    let stderr =
        format!("Traceback (most recent call last):\n{frames}RecursionError: maximum depth\n");
    let error = read("python", &stderr).unwrap();
    assert!(error.trace.chars().count() < 2_100);
    assert!(error.trace.starts_with("Traceback") && error.trace.ends_with("maximum depth"));
}
