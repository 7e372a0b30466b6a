//! Files that are the same on both sides of a session and of a script.

mod directories;

use std::collections::BTreeMap;

use blob_store::BlobDigest;
use contracts::tavern::{
    common::v1::ErrorReason,
    sandbox::v1::{
        DownloadBlobRequest, RefusedReason, UploadBlobHeader, UploadBlobRequest, Workspace,
        WorkspaceChanges, WorkspaceFile, upload_blob_request::Part,
    },
};

use super::*;
use crate::support::python;

/// The files of a workspace, as its owner has them.
type Files = BTreeMap<String, Vec<u8>>;

fn files<const N: usize>(files: [(&str, &str); N]) -> Files {
    let owned = |(path, text): (&str, &str)| (path.to_owned(), text.as_bytes().to_vec());
    files.into_iter().map(owned).collect()
}

fn workspace(files: &Files) -> Workspace {
    let file = |(path, content): (&String, &Vec<u8>)| WorkspaceFile {
        path: path.clone(),
        sha256: BlobDigest::of(content).to_string(),
        size_bytes: content.len() as u64,
    };
    Workspace {
        files: files.iter().map(file).collect(),
        ..Workspace::default()
    }
}

impl Host {
    async fn upload(&self, content: &[u8]) {
        let header = Part::Header(UploadBlobHeader::default());
        let pieces = content.chunks(1 << 20);
        let chunks = pieces.map(|piece| Part::Chunk(piece.to_vec()));
        let parts: Vec<UploadBlobRequest> = std::iter::once(header)
            .chain(chunks)
            .map(|part| UploadBlobRequest { part: Some(part) })
            .collect();
        let mut blobs = self.blobs.clone();
        let sent = blobs.upload_blob(futures::stream::iter(parts)).await;
        sent.unwrap();
    }

    async fn download(&self, sha256: &str) -> Vec<u8> {
        let request = DownloadBlobRequest {
            sha256: sha256.to_owned(),
            ..DownloadBlobRequest::default()
        };
        let answer = self.blobs.clone().download_blob(request).await;
        let mut pieces = answer.unwrap().into_inner();
        let mut content = Vec::new();
        while let Some(piece) = pieces.message().await.unwrap() {
            content.extend(piece.chunk);
        }
        content
    }

    /// Runs a cell on files, which become those that it leaves.
    async fn cell_on(&self, session: &Session, files: &mut Files, source: &str) -> Ran {
        for content in files.values() {
            self.upload(content).await;
        }
        let request = RunCellRequest {
            workspace: Some(workspace(files)),
            ..cell(session, source)
        };
        let ran = follow(self.try_begin(request).await.unwrap()).await;
        let changes = ran.ended.workspace.as_ref().expect("it has a workspace");
        self.take(changes, files).await;
        ran
    }

    async fn take(&self, changes: &WorkspaceChanges, files: &mut Files) {
        for file in &changes.changed {
            let base = files.get(&file.path).map(|content| BlobDigest::of(content));
            let base = base.map_or_else(String::new, |digest| digest.to_string());
            assert_eq!(file.base_sha256, base, "{}", file.path);
            let content = self.download(&file.sha256).await;
            assert_eq!(content.len() as u64, file.size_bytes);
            files.insert(file.path.clone(), content);
        }
        for file in &changes.removed {
            let content = files.remove(&file.path).expect("it was there");
            assert_eq!(file.base_sha256, BlobDigest::of(&content).to_string());
        }
    }
}

#[test]
fn a_cell_works_on_the_files_and_leaves_its_changes() {
    everywhere(async |host| {
        let session = host.session("python").await;
        let mut mine = files([
            ("sales.csv", "a,1\n"),
            ("deep/er/数据 😀.txt", "x"),
            ("old", "o"),
        ]);
        let ran = host
            .cell_on(
                &session,
                &mut mine,
                "import os\nprint(open('sales.csv').read(), end='')\n\
                 open('sales.csv', 'a').write('b,2\\n')\nos.remove('old')\n\
                 os.makedirs('out')\nopen('out/new.txt', 'w').write('new')",
            )
            .await;
        assert_eq!(ran.stdout, "a,1\n");
        let expected = files([
            ("sales.csv", "a,1\nb,2\n"),
            ("deep/er/数据 😀.txt", "x"),
            ("out/new.txt", "new"),
        ]);
        assert_eq!(mine, expected);

        // The other side changes files between the cells.
        mine.insert("sales.csv".to_owned(), b"c,3\n".to_vec());
        mine.remove("out/new.txt");
        mine.insert("later.txt".to_owned(), b"l".to_vec());
        let source = "print(open('sales.csv').read().strip(), open('later.txt').read(), \
                      os.path.exists('out/new.txt'), os.path.exists('deep'))";
        let ran = host.cell_on(&session, &mut mine, source).await;
        assert_eq!(ran.stdout, "c,3 l False True\n");
        let changes = ran.ended.workspace.unwrap();
        assert_eq!(changes, WorkspaceChanges::default(), "nothing changed");

        // A cell that fails leaves its changes too.
        let source = "open('half.txt', 'w').write('h')\n1/0";
        let ran = host.cell_on(&session, &mut mine, source).await;
        assert_eq!(ran.ended.outcome(), CellOutcome::Raised);
        assert_eq!(mine.get("half.txt").unwrap(), b"h");
        host.delete(&session).await;
        nothing_is_left(&host).await;
    });
}

#[test]
fn a_cell_without_a_workspace_reports_no_files() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let ran = host.cell(&session, "open('a', 'w').write('x')").await;
        assert_eq!(ran.ended.workspace, None);
        // The file is new to the first workspace.
        let mut mine = Files::new();
        host.cell_on(&session, &mut mine, "pass").await;
        assert_eq!(mine, files([("a", "x")]));
    });
}

#[test]
fn missing_blobs_are_refused_before_the_cell_begins() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let request = RunCellRequest {
            workspace: Some(workspace(&files([("a", "1"), ("b", "2")]))),
            ..cell(&session, "x = 1")
        };
        let refused = host.try_begin(request).await.unwrap_err();
        assert_eq!(grpc_kit::reason(&refused), Some(ErrorReason::BlobNotFound));
        let named: Vec<String> = grpc_kit::violations(&refused)
            .into_iter()
            .map(|(field, _)| field)
            .collect();
        let expected = ["workspace.files[0].sha256", "workspace.files[1].sha256"];
        assert_eq!(named, expected);
        assert_eq!(host.look(&session).await.unwrap().cells, 0);
    });
}

#[test]
fn hostile_paths_are_refused_at_the_field() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let long = "x".repeat(256);
        for path in ["../a", "/a", "a//b", "a/../b", ".", "a\0b", "a\nb", &long] {
            let request = RunCellRequest {
                workspace: Some(workspace(&files([(path, "1")]))),
                ..cell(&session, "pass")
            };
            let refused = host.try_begin(request).await.unwrap_err();
            let fields = grpc_kit::violations(&refused);
            assert_eq!(
                fields[0].0, "workspace.files[0].path",
                "{path:?} {refused:?}"
            );
        }
    });
}

#[test]
fn entries_that_are_no_files_are_named_and_not_taken() {
    as_every_user(async || {
        // Without namespaces the kernel refuses some of these already.
        let host = Host::strongest().await;
        let session = host.session("python").await;
        let mut mine = files([("kept.txt", "k"), ("real.txt", "r")]);
        let source = "import os, socket\nos.symlink('/etc/passwd', 'link')\n\
             os.symlink('/', 'up')\nos.mkfifo('pipe')\nos.link('kept.txt', 'other.txt')\n\
             os.remove('real.txt'); os.symlink('kept.txt', 'real.txt')\n\
             open(b'bad-\\xff', 'w').write('b')\nopen('line\\nbreak', 'w').write('b')\n\
             open('closed', 'w').write('c'); os.chmod('closed', 0)";
        let ran = host.cell_on(&session, &mut mine, source).await;
        assert_eq!(ran.ended.outcome(), CellOutcome::Succeeded, "{ran:?}");
        let changes = ran.ended.workspace.unwrap();
        let refused: BTreeMap<&str, RefusedReason> = changes
            .refused
            .iter()
            .map(|file| (file.path.as_str(), file.reason()))
            .collect();
        let expected = [
            ("bad-\\xff", RefusedReason::Name),
            ("closed", RefusedReason::Unreadable),
            ("kept.txt", RefusedReason::HardLink),
            ("line\\x0abreak", RefusedReason::Name),
            ("link", RefusedReason::SymbolicLink),
            ("other.txt", RefusedReason::HardLink),
            ("pipe", RefusedReason::Fifo),
            ("real.txt", RefusedReason::SymbolicLink),
            ("up", RefusedReason::SymbolicLink),
        ];
        assert_eq!(refused, expected.into());
        assert_eq!((changes.changed.len(), changes.removed.len()), (0, 0));
        // Nothing is written through the links that the code has put in the way.
        mine.insert("up/etc/x".to_owned(), b"1".to_vec());
        mine.insert("link".to_owned(), b"2".to_vec());
        mine.insert("pipe/x".to_owned(), b"3".to_vec());
        let ran = host.cell_on(&session, &mut mine, "x = 1").await;
        assert_eq!(ran.ended.outcome(), CellOutcome::Succeeded, "{ran:?}");
        let link = host.cell(&session, "os.path.islink('link')").await;
        link.gives(CellOutcome::Succeeded, "", Some("True"));
    });
}

#[test]
fn files_beyond_the_limits_stay_in_the_session_and_are_taken_once_they_fit() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let mut mine = Files::new();
        let mut run = async |source: &str| {
            let request = RunCellRequest {
                workspace: Some(Workspace {
                    max_file_bytes: Some(3 << 20),
                    max_total_bytes: Some(4 << 20),
                    max_entries: Some(6),
                    ..workspace(&mine)
                }),
                ..cell(&session, source)
            };
            let ran = follow(host.try_begin(request).await.unwrap()).await;
            assert_eq!(ran.ended.outcome(), CellOutcome::Succeeded, "{ran:?}");
            let changes = ran.ended.workspace.unwrap();
            host.take(&changes, &mut mine).await;
            changes
        };
        let write = |name: &str, size: usize| {
            format!("kept = 1; open('{name}', 'wb').write(b'x' * ({size} << 20))")
        };
        let first = run(&write("a", 3)).await;
        assert_eq!((first.changed.len(), first.overflow), (1, None));
        let over = run(&write("b", 2)).await.overflow.unwrap();
        assert_eq!((over.total_bytes, over.entries), (5 << 20, 2));
        let largest: Vec<&str> = over.largest.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(largest, ["a", "b"]);
        // The variables are kept, and after the file is smaller its change is taken.
        let taken = run("assert kept\nimport os; os.truncate('b', 9)").await;
        assert_eq!(
            (taken.changed[0].path.as_str(), taken.changed[0].size_bytes),
            ("b", 9)
        );
        let over = run(&write("c", 4)).await;
        assert!(over.overflow.is_some() && over.changed.is_empty());
        let taken = run("os.remove('c')").await;
        assert_eq!(taken, WorkspaceChanges::default());
        let over = run("for n in range(9): open(f'f{n}', 'w')").await;
        assert_eq!(over.overflow.unwrap().entries, 11);
    });
}

#[test]
fn changes_of_which_the_caller_never_heard_are_changes_of_the_next_cell() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let mut mine = files([("a", "1")]);
        host.cell_on(&session, &mut mine, "import time").await;
        let request = RunCellRequest {
            workspace: Some(workspace(&mine)),
            ..cell(
                &session,
                "open('a', 'w').write('2'); print('begun', flush=True); time.sleep(60)",
            )
        };
        let mut answers = host.try_begin(request).await.unwrap();
        while let Some(answer) = answers.message().await.unwrap() {
            if matches!(answer.event, Some(Event::Output(_))) {
                break;
            }
        }
        drop(answers);
        until(&host, &session, |now| now.state() == SessionState::Idle).await;
        host.cell_on(&session, &mut mine, "pass").await;
        assert_eq!(mine, files([("a", "2")]));
    });
}

#[test]
fn changes_that_were_not_taken_stay_and_are_reported_again() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let mine = files([("a", "1"), ("gone", "g")]);
        for content in mine.values() {
            host.upload(content).await;
        }
        let on = async |taken: Option<u64>, not_taken: &[&str], source: &str| {
            let request = RunCellRequest {
                workspace: Some(Workspace {
                    taken_cell: taken,
                    not_taken: not_taken.iter().map(|path| (*path).to_owned()).collect(),
                    ..workspace(&mine)
                }),
                ..cell(&session, source)
            };
            let ran = follow(host.try_begin(request).await.unwrap()).await;
            let changes = ran.ended.workspace.unwrap();
            let changed = changes.changed.into_iter();
            let changed: Vec<String> = changed.map(|file| file.path).collect();
            let removed = changes.removed.into_iter();
            let removed: Vec<String> = removed.map(|file| file.path).collect();
            (ran.stdout, changed, removed)
        };
        let change = "import os; open('a', 'w').write('2'); open('b', 'w').write('3'); os.remove('gone'); None";
        let look = "print(sorted(os.listdir()), open('a').read())";
        let all = (
            vec!["a".to_owned(), "b".to_owned()],
            vec!["gone".to_owned()],
        );
        let (_, changed, removed) = on(None, &[], change).await;
        assert_eq!((changed, removed), all);
        // The first cell was not taken, and neither is the second.
        for _ in 0..2 {
            let (stdout, changed, removed) = on(Some(0), &[], look).await;
            assert_eq!(stdout, "['a', 'b'] 2\n");
            assert_eq!((changed, removed), all);
        }
        // The third cell was taken, but for a file, and the others were undone since.
        let (stdout, changed, removed) = on(Some(3), &["b"], look).await;
        assert_eq!(stdout, "['a', 'b', 'gone'] 1\n");
        assert_eq!((changed, removed), (vec!["b".to_owned()], vec![]));
        let (stdout, changed, _) = on(Some(4), &[], look).await;
        assert_eq!((stdout.as_str(), changed.len()), ("['a', 'gone'] 1\n", 0));
    });
}

#[test]
fn changes_that_fit_into_no_message_are_reported_one_part_after_another() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let mut mine = Files::new();
        let mut on = async |source: &str| {
            let request = RunCellRequest {
                workspace: Some(workspace(&mine)),
                ..cell(&session, source)
            };
            let ran = follow(host.try_begin(request).await.unwrap()).await;
            let changes = ran.ended.workspace.unwrap();
            let changed = changes.changed.into_iter();
            mine.extend(changed.map(|file| (file.path, Vec::new())));
            for file in changes.removed {
                mine.remove(&file.path);
            }
            (mine.len(), changes.refused_count)
        };
        let make = "import os, shutil\nd = 'd' * 240 + '/' + 'e' * 240\nos.makedirs(d)\n\
                    for i in range(7000): open(f'{d}/{i:010}', 'w').close()";
        let (taken, left) = on(make).await;
        assert_eq!((left > 0, taken as u64 + left), (true, 7000));
        for (source, number) in [("pass", 7000), ("shutil.rmtree(d, ignore_errors=True)", 0)] {
            for _ in 0..4 {
                if on(source).await.0 == number {
                    break;
                }
            }
            assert_eq!(on("pass").await.0, number, "{source}");
        }
    });
}

#[test]
fn a_file_takes_the_place_of_a_directory_whose_files_are_gone() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let mut mine = files([("a/b/c", "1"), ("d/e", "2")]);
        host.cell_on(&session, &mut mine, "import os").await;
        mine = files([("a/b", "3"), ("d", "4")]);
        let source = "os.symlink('nowhere', 'd/own')";
        host.cell_on(&session, &mut files([("d/e", "2")]), source)
            .await;
        let look = "print(open('a/b').read(), os.listdir('d'))";
        let ran = host.cell_on(&session, &mut mine, look).await;
        assert_eq!(ran.stdout, "3 ['own']\n");
    });
}

#[test]
fn files_that_both_sides_changed_are_reported_with_their_base() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let mut mine = files([("a", "1"), ("gone", "g")]);
        host.cell_on(&session, &mut mine, "import os").await;
        // Between two cells, as a thread of the session would.
        host.cell(
            &session,
            "open('a', 'w').write('2'); open('gone', 'w').write('h')",
        )
        .await;
        let theirs = files([("a", "3")]);
        host.upload(b"3").await;
        let request = RunCellRequest {
            workspace: Some(workspace(&theirs)),
            ..cell(&session, "print(open('a').read(), open('gone').read())")
        };
        let ran = follow(host.try_begin(request).await.unwrap()).await;
        assert_eq!(ran.stdout, "2 h\n");
        let changes = ran.ended.workspace.unwrap();
        let based: Vec<(&str, String)> = changes
            .changed
            .iter()
            .map(|file| (file.path.as_str(), file.base_sha256.clone()))
            .collect();
        let of = |text: &str| BlobDigest::of(text.as_bytes()).to_string();
        assert_eq!(based, [("a", of("1")), ("gone", of("g"))]);
    });
}

#[test]
fn a_write_through_mapped_memory_is_a_change() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let mut mine = files([("a", "first"), ("b", "first")]);
        let map = "import mmap\nf = {n: open(n, 'r+b') for n in 'ab'}\n\
                   m = {n: mmap.mmap(f[n].fileno(), 0) for n in 'ab'}\n[m[n][0] for n in 'ab']";
        let mapped = host.cell_on(&session, &mut mine, map).await;
        mapped.gives(CellOutcome::Succeeded, "", Some("[102, 102]"));
        // The kernel has marked nothing.
        host.cell_on(&session, &mut mine, "m['a'][:5] = b'later'")
            .await;
        assert_eq!(mine, files([("a", "later"), ("b", "first")]));
        // Also between two cells, while the other side changes the same file.
        host.cell(&session, "m['b'][:5] = b'other'").await;
        host.upload(b"theirs").await;
        let theirs = files([("a", "later"), ("b", "theirs")]);
        let request = RunCellRequest {
            workspace: Some(workspace(&theirs)),
            ..cell(&session, "open('b').read()")
        };
        let ran = follow(host.try_begin(request).await.unwrap()).await;
        assert_eq!(ran.value.as_deref(), Some("'other'"));
        let changed = &ran.ended.workspace.unwrap().changed[0];
        let base = BlobDigest::of(b"first").to_string();
        assert_eq!((changed.path.as_str(), &changed.base_sha256), ("b", &base));
    });
}

#[test]
fn a_cell_that_ends_its_interpreter_leaves_its_files() {
    as_every_user(async || {
        let host = Host::full().await;
        let session = host.session("python").await;
        let mut mine = files([("a", "1")]);
        let source = "open('b', 'w').write('2'); import os; os._exit(3)";
        let ran = host.cell_on(&session, &mut mine, source).await;
        assert_eq!(ran.ended.outcome(), CellOutcome::SessionEnded);
        assert_eq!(mine, files([("a", "1"), ("b", "2")]));
    });
}

#[test]
fn a_script_works_on_the_files_of_a_workspace() {
    everywhere(async |host| {
        let mine = files([("a.txt", "1"), ("main.py", "mine"), ("d/b.txt", "2")]);
        for content in mine.values() {
            host.upload(content).await;
        }
        let source = "import os\nprint(open('a.txt').read(), open('main.py').read())\n\
                      open('d/b.txt', 'w').write('3'); os.remove('a.txt')\n\
                      open('c.txt', 'w').write('4')";
        let request = contracts::tavern::sandbox::v1::ExecuteRequest {
            workspace: Some(workspace(&mine)),
            ..python(source)
        };
        let response = host.run(request).await;
        assert_eq!(String::from_utf8_lossy(&response.stdout), "1 mine\n");
        let mut left = mine.clone();
        host.take(&response.workspace.unwrap(), &mut left).await;
        let expected = files([("main.py", "mine"), ("d/b.txt", "3"), ("c.txt", "4")]);
        assert_eq!(left, expected);
    });
}

#[test]
fn ten_thousand_files_are_placed_and_found_unchanged() {
    as_every_user(async || {
        let host = Host::full().await;
        let wish = CreateSessionRequest {
            limits: Some(Limits {
                disk_files: Some(20_000),
                disk_bytes: Some(128 << 20),
                ..Limits::default()
            }),
            ..wish("python")
        };
        let session = host.session_with(wish).await;
        host.upload(b"same").await;
        let mine: Files = (0..9_000)
            .map(|number| (format!("d{}/f{number}", number % 90), b"same".to_vec()))
            .collect();
        let request = RunCellRequest {
            workspace: Some(workspace(&mine)),
            ..cell(
                &session,
                "import os\nsum(len(f) for _, _, f in os.walk('.'))",
            )
        };
        for _ in 0..2 {
            let ran = follow(host.try_begin(request.clone()).await.unwrap()).await;
            assert_eq!(ran.value.as_deref(), Some("9000"), "{ran:?}");
            assert_eq!(ran.ended.workspace, Some(WorkspaceChanges::default()));
        }
    });
}
