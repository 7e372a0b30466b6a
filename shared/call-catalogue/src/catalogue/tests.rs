use serde_json::json;

use super::*;

fn catalogue(ids: &[&str]) -> Catalogue {
    let tools = ids.iter().map(|id| Tool::new(*id, "", json!({}))).collect();
    Catalogue::new(tools, vec!["Secret:Tool".to_owned()]).unwrap()
}

#[test]
fn aliases_are_plain_names() {
    for (id, alias) in [
        ("read_file", "read_file"),
        ("workflow:summarize_text", "workflow__summarize_text"),
        ("FileOperator.WriteFile", "FileOperator.WriteFile"),
        (
            "workflows/skills/npc_greet_player.json",
            "skill_npc_greet_player",
        ),
        ("9lives", "t_9lives"),
        ("文件:读取", "__"),
    ] {
        assert_eq!(alias_of(id), alias, "{id}");
    }
}

#[test]
fn the_original_id_its_alias_and_another_letter_case_find_the_tool() {
    let catalogue = catalogue(&["kb:Query", "Other"]);
    for written in [
        "kb:Query",
        "kb__Query",
        "`kb:Query`",
        "KB:QUERY",
        "kb__query",
    ] {
        assert!(
            matches!(catalogue.find(written), ToolMatch::Visible(0, _)),
            "{written}"
        );
    }
    assert_eq!(catalogue.find("Secret__Tool"), ToolMatch::NotAvailable);
    assert_eq!(catalogue.find("nothing"), ToolMatch::Unknown);
}

#[test]
fn a_removed_tool_is_found_by_every_spelling_unless_another_has_its_name() {
    let removed = |id: &str| RemovedTool {
        id: id.to_owned(),
        plugin: "dice".to_owned(),
    };
    let absent = Absent {
        hidden: vec!["dice:hidden".to_owned()],
        removed: ["dice:roll", "dice:hidden", "dice:back"]
            .map(removed)
            .into(),
    };
    let names = [("roll_it", "dice:roll")].map(|(name, id)| (name.to_owned(), id.to_owned()));
    let back = Tool::new("dice:back", "", Value::Null);
    let catalogue = Catalogue::with_names(vec![back], absent, &names).unwrap();
    for written in ["dice:roll", "dice__roll", "`Dice:Roll`", "roll_it"] {
        assert_eq!(catalogue.find(written), ToolMatch::Removed(0), "{written}");
    }
    assert_eq!(catalogue.removed(0).plugin, "dice");
    assert_eq!(catalogue.find("dice:hidden"), ToolMatch::NotAvailable);
    assert!(catalogue.has_visible("dice:back"));
    assert_eq!(catalogue.find("dice:other"), ToolMatch::Unknown);
}

#[test]
fn a_letter_case_shared_by_two_tools_finds_neither() {
    let catalogue = catalogue(&["Read", "READ"]);
    assert_eq!(catalogue.find("read"), ToolMatch::Unknown);
    assert!(matches!(
        catalogue.find("READ"),
        ToolMatch::Visible(1, NameReading::Exact)
    ));
}

#[test]
fn colliding_aliases_get_a_hash_and_an_id_wins_over_an_alias() {
    let catalogue = catalogue(&["a:b", "a|b", "a__b"]);
    let names: Vec<_> = catalogue
        .entries()
        .iter()
        .map(|entry| entry.alias.clone())
        .collect();
    assert!(names[0].starts_with("a__b_"), "{names:?}");
    assert!(names[1].starts_with("a__b_") && names[1] != names[0]);
    assert_eq!(names[2], "a__b");
    assert!(matches!(catalogue.find("a__b"), ToolMatch::Visible(2, _)));
}

#[test]
fn every_bad_id_is_named() {
    let tools = ["x/", "a b", ""].map(|id| Tool::new(id, "", json!({})));
    let error = Catalogue::new(tools.into(), vec![]).unwrap_err();
    assert_eq!(error.violations.len(), 3);
}

#[test]
fn a_tool_is_found_by_a_further_name_unless_another_tool_has_it() {
    let tools = ["core:Sleep", "wake"].map(|id| Tool::new(id, "", json!({})));
    let names = [
        ("SleepTool", "core:Sleep"),
        ("wake", "core:Sleep"),
        ("nothing", "absent"),
    ];
    let names = names.map(|(name, id)| (name.to_owned(), id.to_owned()));
    let catalogue = Catalogue::with_names(tools.into(), Absent::default(), &names).unwrap();
    for (written, found) in [
        ("SleepTool", ToolMatch::Visible(0, NameReading::Cleaned)),
        ("wake", ToolMatch::Visible(1, NameReading::Exact)),
        ("nothing", ToolMatch::Unknown),
    ] {
        assert_eq!(catalogue.find(written), found, "{written}");
    }
}

#[test]
fn workflows_and_nodes_are_found_as_the_seeds_write_them() {
    let catalogue = catalogue(&[
        "workflow:greet_player",
        "workflow:skill_npc",
        "node:core:TextMerge",
    ]);
    for (written, index) in [
        ("skill_greet_player", 0),
        ("workflows/skills/greet_player.json", 0),
        ("`workflows/skills/greet_player.json`", 0),
        ("skill_npc", 1),
        ("workflows/skills/skill_npc.json", 1),
        ("core:TextMerge", 2),
        ("core__TextMerge", 2),
    ] {
        assert!(
            matches!(catalogue.find(written), ToolMatch::Visible(found, _) if found == index),
            "{written}"
        );
    }
    for nothing in ["greet_player", "TextMerge", "skill_other"] {
        assert_eq!(catalogue.find(nothing), ToolMatch::Unknown, "{nothing}");
    }
    assert_eq!(
        catalogue.nearest_tools("TextMerge"),
        ["node:core:TextMerge"]
    );
    assert_eq!(
        catalogue.nearest_tools("greet_player"),
        ["workflow:greet_player"]
    );
}
