//! Files that scripts leave, and the files of hostile ones.

use std::{os::unix::fs::MetadataExt, path::Path};

use contracts::tavern::sandbox::v1::{
    Collect, CollectedFiles, ExecuteRequest, ExecuteResponse, InputFile, Limits, RefusedReason,
};

use crate::rounds::everywhere;
use crate::support::{Host, eventually, expect_class, limited, patient, python, request, seconds};

pub(crate) fn collecting(request: ExecuteRequest) -> ExecuteRequest {
    ExecuteRequest {
        collect: Some(Collect::default()),
        ..request
    }
}

fn collected(response: &ExecuteResponse) -> &CollectedFiles {
    response.collected.as_ref().unwrap()
}

pub(crate) fn taken(response: &ExecuteResponse) -> Vec<(&str, &[u8])> {
    let files = collected(response).files.iter();
    files
        .map(|file| (file.path.as_str(), file.content.as_slice()))
        .collect()
}

pub(crate) fn refused(response: &ExecuteResponse) -> Vec<(&str, RefusedReason)> {
    let files = collected(response).refused.iter();
    files
        .map(|file| (file.path.as_str(), file.reason()))
        .collect()
}

#[test]
fn new_and_changed_files_come_back_on_every_level() {
    let file = |path: &str| InputFile {
        path: path.to_owned(),
        content: b"given".to_vec(),
        ..InputFile::default()
    };
    let source = "
import os
os.makedirs('out'); open('out/new.txt', 'w').write('new')
open('changed.txt', 'w').write('other')
os.write(os.open('tool', os.O_WRONLY | os.O_CREAT, 0o755), b'#!')
try: os.chmod('tool', 0o4755)
except OSError: pass
";
    everywhere(async |host| {
        let name = host.kind;
        let mut asked = collecting(python(source));
        asked.files = vec![file("same.txt"), file("changed.txt")];
        asked.input_json = "{}".to_owned();
        let response = host.run(asked).await;
        expect_class(&response, &["exited 0"]);
        let expected: [(&str, &[u8]); 3] = [
            ("changed.txt", b"other"),
            ("out/new.txt", b"new"),
            ("tool", b"#!"),
        ];
        assert_eq!(taken(&response), expected, "{name}");
        assert!(!collected(&response).partial, "{name}");
        let executable: Vec<bool> = collected(&response)
            .files
            .iter()
            .map(|file| file.executable)
            .collect();
        assert_eq!(executable, [false, false, true]);
        // A caller that does not request files gets none.
        let response = host.python("open('file', 'w').write('x')").await;
        assert_eq!(response.collected, None);
    });
}

#[test]
fn declared_files_are_taken_before_a_crowd_and_named_where_they_are_missing() {
    let source = "
import os
os.mkdir('aaa')
for number in range(1500): open(f'aaa/{number}', 'w').write('x')
open('result.json', 'w').write('{}')
";
    everywhere(async |host| {
        let asked = |patterns: &[&str]| ExecuteRequest {
            collect: Some(Collect {
                patterns: patterns.iter().map(|&each| each.to_owned()).collect(),
                ..Collect::default()
            }),
            ..python(source)
        };
        let response = host.run(asked(&["aaa/**", "result.json"])).await;
        assert!(taken(&response).contains(&("result.json", b"{}")));
        assert!(collected(&response).partial);
        let response = host.run(asked(&["result.json", "summary.md"])).await;
        assert_eq!(taken(&response), [("result.json", &b"{}"[..])]);
        let expected = [("summary.md", RefusedReason::NotFound)];
        assert_eq!(refused(&response), expected);
        assert!(collected(&response).partial);
    });
}

#[test]
fn files_come_back_whatever_the_verdict() {
    everywhere(async |host| {
        let name = host.kind;
        for (end, class) in [
            ("os._exit(3)", "exited 3"),
            ("os.kill(os.getpid(), 9)", "signalled SIGKILL"),
            ("while True: print('x' * 1000)", "output"),
            ("raise ValueError()", "exited 1"),
        ] {
            let source = format!("import os\nopen('kept', 'w').write('half')\n{end}");
            let response = host.run(collecting(python(&source))).await;
            expect_class(&response, &[class]);
            assert_eq!(taken(&response), [("kept", &b"half"[..])], "{name} {end}");
        }
    });
}

/// Everything but plain files.
pub(crate) const LINKS_AND_PIPES: &str = "
import os, socket
os.symlink('SECRET', 'absolute'); os.symlink('../../../../etc/shadow', 'relative')
os.symlink('/', 'root'); os.symlink('/proc/self/fd', 'fds'); os.symlink('loop', 'loop')
os.mkfifo('pipe')
open('one', 'w').write('x'); os.link('one', 'two')
try: s = socket.socket(socket.AF_UNIX); s.bind('socket')
except OSError: pass
for number in range(100): os.symlink('one', f'many{number:02}')
";

#[test]
fn e29_e33_links_pipes_and_sockets_are_refused_by_kind() {
    let canary = tempfile::tempdir().unwrap();
    let secret = canary.path().join("secret");
    std::fs::write(&secret, "canary-29").unwrap();
    let before = std::fs::metadata(&secret).unwrap();
    let source = LINKS_AND_PIPES.replace("SECRET", secret.to_str().unwrap());
    everywhere(async |host| {
        let name = host.kind;
        let response = host.run(collecting(python(&source))).await;
        expect_class(&response, &["exited 0"]);
        assert_eq!(taken(&response), [], "{name}");
        let reported = collected(&response);
        assert!(
            reported.refused_count >= 108 && reported.partial,
            "{name} {reported:?}"
        );
        let kinds = refused(&response);
        for expected in [
            ("absolute", RefusedReason::SymbolicLink),
            ("fds", RefusedReason::SymbolicLink),
            ("loop", RefusedReason::SymbolicLink),
            ("many50", RefusedReason::SymbolicLink),
        ] {
            assert!(kinds.contains(&expected), "{name} {kinds:?}");
        }
        let mut asked = collecting(python(&source));
        asked.collect.as_mut().unwrap().patterns =
            ["one", "two", "pipe", "socket", "relative", "root"]
                .map(str::to_owned)
                .to_vec();
        let response = host.run(asked).await;
        let expected = [
            ("one", RefusedReason::HardLink),
            ("two", RefusedReason::HardLink),
            ("pipe", RefusedReason::Fifo),
            // No script can make one.
            ("socket", RefusedReason::NotFound),
            ("relative", RefusedReason::SymbolicLink),
            ("root", RefusedReason::SymbolicLink),
        ];
        assert_eq!(refused(&response), expected, "{name}");
        let after = std::fs::metadata(&secret).unwrap();
        let look = |stat: &std::fs::Metadata| (stat.mode(), stat.mtime_nsec(), stat.atime_nsec());
        assert_eq!(look(&before), look(&after));
    });
}

#[test]
fn e29_who_keeps_swapping_a_file_for_a_link_is_dead_before_anything_is_looked_at() {
    // A daemon that outlives the script, ignores every signal and swaps as fast as it can.
    let source = "
import os, signal, sys
if os.fork() == 0:
    os.setsid()
    for number in range(1, 65):
        try: signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError): pass
    if os.fork() == 0:
        os.close(1); os.close(2)
        open('ready', 'w').close()
        open('good', 'w').write('good')
        while True:
            os.symlink('/etc/passwd', 'link'); os.rename('link', 'out')
            os.link('good', 'file'); os.rename('file', 'out'); os.unlink('good')
            open('good', 'w').write('good')
    os._exit(0)
while not os.path.lexists('ready') or not os.path.lexists('out'): pass
";
    everywhere(async |host| {
        let name = host.kind;
        for _ in 0..5 {
            let response = host.run(collecting(python(source))).await;
            expect_class(&response, &["exited 0"]);
            // Whatever the final file: a link is refused, and no other content is ever read.
            for (path, content) in taken(&response) {
                let expected: &[&[u8]] = match path {
                    "ready" => &[b""],
                    _ => &[b"good", b""],
                };
                assert!(expected.contains(&content), "{name} {path}");
            }
            for (path, reason) in refused(&response) {
                let kinds = [RefusedReason::SymbolicLink, RefusedReason::HardLink];
                assert!(kinds.contains(&reason), "{name} {path} {reason:?}");
            }
        }
    });
}

#[test]
fn e12_a_sparse_terabyte_is_refused_unread() {
    let limits = Limits {
        file_bytes: Some(1 << 30),
        ..patient()
    };
    let source = "
import os
for name, size in (('tera', 1 << 40), ('half', 1 << 29), ('half2', 1 << 29)):
    try: os.truncate(os.open(name, os.O_CREAT | os.O_RDWR), size)
    except OSError: pass
print(sum(os.stat(name).st_size > 0 for name in os.listdir('.')))
";
    everywhere(async |host| {
        let name = host.kind;
        let response = host.run(limited(collecting(python(source)), limits)).await;
        let reported = collected(&response);
        let large: Vec<_> = reported
            .refused
            .iter()
            .filter(|file| file.path.starts_with("half"))
            .map(|file| (file.reason(), file.size_bytes))
            .collect();
        let expected = (RefusedReason::TooLarge, 1 << 29);
        assert_eq!(large, [expected; 2], "{name} {reported:?}");
        assert!(
            reported.files.iter().all(|file| file.size_bytes == 0),
            "{name}"
        );
    });
}

/// Names that deceive a reader.
pub(crate) const ODD_NAMES: &str = "
import os
for name in (b'\\xff', b'a\\nb', b'-rf', b'x' * 255, '\\u202egnp'.encode(), b'Twin', b'twin', b'\\x1b[2J'):
    open(name, 'w').close()
";

#[test]
fn e34_names_are_reported_escaped() {
    everywhere(async |host| {
        let name = host.kind;
        let response = host.run(collecting(python(ODD_NAMES))).await;
        expect_class(&response, &["exited 0"]);
        let long = "x".repeat(255);
        let mut expected = vec![
            ("-rf", false),
            ("Twin", false),
            ("\\x1b[2J", true),
            ("\\xff", true),
            ("a\\x0ab", true),
            ("twin", false),
            (&long, false),
            ("\\u{202e}gnp", true),
        ];
        expected.sort();
        let reported: Vec<(&str, bool)> = collected(&response)
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.path_escaped))
            .collect();
        assert_eq!(reported, expected, "{name}");
    });
}

/// Ten thousand files.
pub(crate) const MANY_RESULTS: &str = "
import os
for top in range(100):
    os.makedirs(f'd{top:02}')
    for number in range(100): open(f'd{top:02}/{number:02}', 'w').close()
";

#[test]
fn e35_ten_thousand_files_are_reported_in_part_and_in_time() {
    let limits = Limits {
        disk_files: Some(20_000),
        ..patient()
    };
    everywhere(async |host| {
        let name = host.kind;
        let mut asked = limited(collecting(python(MANY_RESULTS)), limits);
        let response = host.run(asked.clone()).await;
        expect_class(&response, &["exited 0"]);
        let reported = collected(&response);
        assert_eq!(reported.files.len(), 256, "{name}");
        assert_eq!(reported.refused_count, 9744, "{name}");
        assert!(reported.partial && reported.refused.len() == 100);
        asked.collect.as_mut().unwrap().patterns = vec!["d4?/?7".to_owned()];
        let response = host.run(asked).await;
        let reported = collected(&response);
        assert_eq!(
            (reported.files.len(), reported.partial),
            (100, false),
            "{name}"
        );
    });
}

#[test]
fn e39_trees_that_resist_are_told_and_removed() {
    let source = "
import os
os.mkdir('locked', 0)
os.write(os.open('secret', os.O_WRONLY | os.O_CREAT, 0), b'x')
top = os.getcwd()
for level in range(1500):
    os.mkdir('d'); os.chdir('d')
";
    everywhere(async |host| {
        let name = host.kind;
        let response = host.run(collecting(python(source))).await;
        // Where the quota is measured, a tree too deep to measure counts as too much.
        expect_class(&response, &["exited 0", "disk"]);
        let kinds = refused(&response);
        let deep = "d/".repeat(17);
        for expected in [
            (deep.trim_end_matches('/'), RefusedReason::TooDeep),
            ("locked", RefusedReason::Unreadable),
            ("secret", RefusedReason::Unreadable),
        ] {
            assert!(kinds.contains(&expected), "{name} {kinds:?}");
        }
        let own = format!("tavern-script-{}-", std::process::id());
        let left = |path: &Path| {
            let entries = std::fs::read_dir(path).unwrap().flatten();
            entries
                .filter(|entry| entry.file_name().to_string_lossy().starts_with(&own))
                .count()
        };
        eventually("nothing is left behind", || {
            left(&std::env::temp_dir()) == 0
        })
        .await;
    });
}

#[test]
fn e40_only_the_owners_right_to_execute_is_reported() {
    let source = "
echo > plain && cp /usr/bin/id set && { chmod 6755 set || echo refused; }
";
    everywhere(async |host| {
        let name = host.kind;
        let response = host.run(collecting(request("bash", source))).await;
        expect_class(&response, &["exited 0"]);
        let reported: Vec<(&str, bool)> = collected(&response)
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.executable))
            .collect();
        assert_eq!(reported, [("plain", false), ("set", true)], "{name}");
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn e31_placed_files_replace_links_and_are_never_written_through() {
    // Two files whose paths would meet a link are refused together by the request's own rules; a
    // link that a script makes is gone with its directory, so the next run begins anew.
    let host = Host::full().await;
    let plant = "import os; os.symlink('/etc/passwd', 'data'); os.remove('main.py'); os.symlink('/etc/passwd', 'main.py')";
    let response = host.run(collecting(python(plant))).await;
    expect_class(&response, &["exited 0"]);
    let expected = [
        ("data", RefusedReason::SymbolicLink),
        ("main.py", RefusedReason::SymbolicLink),
    ];
    assert_eq!(refused(&response), expected);
    let mut asked = collecting(python("print(open('data').read())"));
    asked.files = vec![InputFile {
        path: "data".to_owned(),
        content: b"fresh".to_vec(),
        ..InputFile::default()
    }];
    let response = host.run(asked).await;
    crate::support::expect_output(&response, "fresh\n");
    assert_eq!(taken(&response), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_wishes_are_named_with_their_fields() {
    let host = Host::full().await;
    let mut asked = collecting(python("print(1)"));
    asked.caller_id = "a b".to_owned();
    let against_rules = Collect {
        max_files: Some(0),
        max_time: seconds(3600.0),
        ..Collect::default()
    };
    let against_settings = Collect {
        patterns: vec!["../secret".to_owned()],
        max_total_bytes: Some(u64::MAX),
        ..Collect::default()
    };
    for (collect, expected) in [
        (
            against_rules,
            &["collect.max_files", "collect.max_time"][..],
        ),
        (
            against_settings,
            &[
                "caller_id",
                "collect.max_total_bytes",
                "collect.patterns[0]",
            ],
        ),
    ] {
        asked.collect = Some(collect);
        let status = host.client.clone().execute(asked.clone()).await;
        let mut fields: Vec<String> = grpc_kit::violations(&status.unwrap_err())
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        fields.sort();
        assert_eq!(fields, expected);
    }
}
