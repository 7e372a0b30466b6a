//! Files in directories of their own, which a script finds by variables.

use super::*;

#[test]
fn a_script_finds_directories_and_only_their_changes_are_reported() {
    everywhere(async |host| {
        let mine = files([("storage/a.txt", "1"), ("storage/d/b.txt", "2")]);
        for content in mine.values() {
            host.upload(content).await;
        }
        let source = "import os\n\
                      os.chdir('/')\n\
                      storage, notes = os.environ['TAVERN_STORAGE'], os.environ['TAVERN_NOTES']\n\
                      print(open(storage + '/a.txt').read(), os.listdir(notes))\n\
                      open(notes + '/new', 'w').write('3'); os.remove(storage + '/d/b.txt')\n\
                      open(storage + '/../elsewhere', 'w').write('4')";
        let wanted = Workspace {
            directories: vec!["storage".into(), "notes".into()],
            ..workspace(&mine)
        };
        let request = contracts::tavern::sandbox::v1::ExecuteRequest {
            workspace: Some(wanted),
            ..python(source)
        };
        let response = host.run(request).await;
        let written = String::from_utf8_lossy(&response.stderr);
        assert_eq!(response.stdout, b"1 []\n", "{written}");
        let mut left = mine.clone();
        host.take(&response.workspace.unwrap(), &mut left).await;
        let expected = files([("storage/a.txt", "1"), ("notes/new", "3")]);
        assert_eq!(left, expected);
    });
}

#[test]
fn directories_have_plain_names_and_hold_every_file() {
    as_every_user(async || {
        let host = Host::full().await;
        let wanted = Workspace {
            directories: vec!["storage".into(), "../up".into()],
            ..workspace(&files([("storage/a", "1"), ("b", "2"), ("storage", "3")]))
        };
        let request = contracts::tavern::sandbox::v1::ExecuteRequest {
            workspace: Some(wanted.clone()),
            ..python("1")
        };
        let refused = crate::support::execute(&host.client, request)
            .await
            .unwrap_err();
        let violations = grpc_kit::violations(&refused);
        let fields: Vec<&str> = violations.iter().map(|(field, _)| field.as_str()).collect();
        let expected = [
            "workspace.directories[1]",
            "workspace.files[0].path",
            "workspace.files[1].path",
        ];
        assert_eq!(fields, expected, "{violations:?}");
        let session = host.session("python").await;
        let request = RunCellRequest {
            workspace: Some(wanted),
            ..cell(&session, "1")
        };
        let refused = host.try_begin(request).await.err().unwrap();
        let violations = grpc_kit::violations(&refused);
        assert_eq!(violations[0].0, "workspace.directories");
    });
}
