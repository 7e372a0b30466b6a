use super::*;
use crate::domain::path::MAX_PATH_BYTES;

fn script() -> ScriptSpec {
    let source = Program::Source("print(1)".to_owned());
    ScriptSpec::of("python3".to_owned(), source, Limits::DEFAULT)
}

fn sound(spec: ScriptSpec) -> Script {
    Script::new(spec, Vec::new()).unwrap()
}

fn problems(spec: ScriptSpec) -> Vec<Violation> {
    Script::new(spec, Vec::new()).err().unwrap_or_default()
}

fn file(path: &str) -> InputFile {
    InputFile {
        path: path.to_owned(),
        content: Content::Bytes(Vec::new()),
        executable: false,
    }
}

fn check(script: ScriptSpec, expected: &[&str]) {
    let fields = problems(script).into_iter().map(|problem| problem.field);
    let fields: Vec<String> = fields.collect();
    assert_eq!(fields, expected);
}

#[test]
fn a_plain_script_is_sound() {
    check(script(), &[]);
    let files = vec![file("main.py"), file("lib/a.py"), file("lib/b.py")];
    check(
        ScriptSpec {
            program: Program::Entry("main.py".to_owned()),
            files,
            ..script()
        },
        &[],
    );
}

#[test]
fn e23_what_is_too_large_together_is_refused() {
    let long = || "a".repeat(MAX_STRING_BYTES / 2 + 1);
    let arguments = vec![long(), long()];
    let environment = vec![("V".to_owned(), long()), ("W".to_owned(), long())];
    let half = MAX_FILE_BYTES / 2 + 1;
    let files = vec![bytes("a", half), bytes("b", half)];
    let large = ScriptSpec {
        arguments,
        environment,
        files,
        ..script()
    };
    check(large, &["files", "arguments", "environment"]);
}

#[test]
fn e98_a_nul_in_the_source_is_refused() {
    check(
        ScriptSpec {
            program: Program::Source("a\0b".to_owned()),
            ..script()
        },
        &["source_text"],
    );
    check(
        ScriptSpec {
            program: Program::Source("\u{feff}print(1)\r\n".to_owned()),
            ..script()
        },
        &[],
    );
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for path in [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        ".",
        "a/.",
        "a\0b",
    ] {
        check(
            ScriptSpec {
                files: vec![file(path)],
                ..script()
            },
            &["files[0].path"],
        );
    }
    check(
        ScriptSpec {
            files: vec![file("a"), file("a")],
            ..script()
        },
        &["files[1].path"],
    );
    check(
        ScriptSpec {
            files: vec![file("a"), file("a/b")],
            ..script()
        },
        &["files[0].path"],
    );
    let deep = "d/".repeat(40) + "x";
    check(
        ScriptSpec {
            files: vec![file(&deep)],
            ..script()
        },
        &["files[0].path"],
    );
}

#[test]
fn reserved_and_malformed_variables_are_refused() {
    for name in [
        "",
        "1A",
        "A B",
        "A=B",
        "TAVERN_RESULT_FD",
        "TRACEPARENT",
        "Ä",
    ] {
        let environment = vec![(name.to_owned(), String::new())];
        let wrong = ScriptSpec {
            environment,
            ..script()
        };
        assert_eq!(problems(wrong).len(), 1, "{name}");
    }
}

#[test]
fn e23_deep_input_is_looked_at_without_a_deep_stack() {
    let deep = "[".repeat(500_000);
    let input_json = deep.clone() + &"]".repeat(500_000);
    check(
        ScriptSpec {
            input_json,
            ..script()
        },
        &[],
    );
    check(
        ScriptSpec {
            input_json: deep,
            ..script()
        },
        &["input_json"],
    );
}

#[test]
fn everything_wrong_is_named_at_once() {
    let wrong = ScriptSpec {
        program: Program::Entry("gone".to_owned()),
        files: vec![file("/x")],
        effect_id: "with blank".to_owned(),
        conversation_id: "c\n".to_owned(),
        input_json: "{".to_owned(),
        ..script()
    };
    check(
        wrong,
        &[
            "entry_path",
            "files[0].path",
            "effect_id",
            "conversation_id",
            "input_json",
        ],
    );
}

fn bytes(path: &str, size: usize) -> InputFile {
    InputFile {
        content: Content::Bytes(vec![b'x'; size]),
        ..file(path)
    }
}

#[test]
fn the_script_gets_a_name_that_no_file_and_no_directory_has() {
    for (files, expected) in [
        (&[][..], "main.py"),
        (&["other.py"][..], "main.py"),
        (&["main.py"][..], "main-1.py"),
        (&["main.py/inner"][..], "main-1.py"),
        (&["main.py/inner", "main-1.py/a/b"][..], "main-2.py"),
        (&["main.pyx/inner", "Main.py"][..], "main.py"),
    ] {
        let files = files.iter().map(|path| file(path)).collect();
        let script = sound(ScriptSpec { files, ..script() });
        assert_eq!(script.path(".py"), expected);
    }
}

#[test]
fn what_is_placed_takes_blocks_and_names() {
    let disk = |bytes, files| Limits {
        disk: bytes,
        disk_files: files,
        ..Limits::DEFAULT
    };
    let small: Vec<InputFile> = (0..7).map(|number| bytes(&number.to_string(), 1)).collect();
    // With the source eight blocks of sixteen.
    let fits = ScriptSpec {
        files: small.clone(),
        limits: disk(64 << 10, 16),
        ..script()
    };
    check(fits.clone(), &[]);
    let one_more = [small.clone(), vec![bytes("more", 1)]].concat();
    check(
        ScriptSpec {
            files: one_more,
            ..fits.clone()
        },
        &["limits.disk_bytes", "limits.disk_files"],
    );
    let in_a_directory = [small[1..].to_vec(), vec![bytes("deep/er", 1)]].concat();
    check(
        ScriptSpec {
            files: in_a_directory,
            ..fits.clone()
        },
        &["limits.disk_bytes", "limits.disk_files"],
    );
    check(
        ScriptSpec {
            input_json: "1".to_owned(),
            limits: disk(128 << 10, 16),
            ..fits
        },
        &["limits.disk_files"],
    );
}

#[test]
fn the_directories_of_paths_without_measure_are_not_counted() {
    let endless = "/".repeat(3 << 20);
    for path in [
        endless.clone(),
        format!("a{endless}b"),
        "a/".repeat(1 << 20),
    ] {
        let files = vec![file(&path)];
        check(ScriptSpec { files, ..script() }, &["files[0].path"]);
    }
}

#[test]
fn blobs_take_what_they_are_large() {
    let blob = |path: &str| InputFile {
        content: Content::Blob(BlobDigest::of(b"x")),
        ..file(path)
    };
    let script = ScriptSpec {
        files: vec![blob("a"), blob("b")],
        limits: Limits {
            disk: 64 << 10,
            ..Limits::DEFAULT
        },
        ..script()
    };
    let script = sound(script);
    assert!(script.problems_with_blobs(|_| 12 << 10).is_empty());
    for size in [(12 << 10) + 1, u64::MAX] {
        let problems = script.problems_with_blobs(|_| size);
        let fields: Vec<&str> = problems.iter().map(|each| each.field.as_str()).collect();
        assert_eq!(fields, ["limits.disk_bytes"], "{size}");
    }
}

#[test]
fn e23_the_longest_strings_fit_into_one_start_of_a_program() {
    // The kernel takes strings of 128 KiB, and a quarter of the stack for all together.
    const LONGEST: usize = 128 << 10;
    const ALL: usize = (8 << 20) / 4;
    const { assert!(MAX_STRING_BYTES + MAX_PATH_BYTES < LONGEST) };
    // As many arguments and variables as the contract allows, and our own.
    const POINTERS: usize = (256 + 2 * 128) * 8;
    const { assert!(3 * MAX_STRING_BYTES + POINTERS < ALL) };
    check(
        ScriptSpec {
            arguments: vec!["a".repeat(MAX_STRING_BYTES)],
            environment: vec![("V".to_owned(), "v".repeat(MAX_STRING_BYTES - 1))],
            ..script()
        },
        &[],
    );
}
