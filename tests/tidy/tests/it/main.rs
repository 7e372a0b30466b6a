//! Holds the rules against this repository, and against made-up trees that break them.

mod broken_trees;
mod scanner;

use std::path::Path;

use tidy::{
    Finding, Tree, circles, edges, error_page, finding, layout, manifests, once, pages, prose,
    purity, sentences, sizes, tenants, unsafe_code, words,
};

#[track_caller]
fn check(rule: fn(&Tree) -> Vec<Finding>) {
    let tree = Tree::of_this_repository().expect("the repository can be read");
    let findings = rule(&tree);
    assert!(
        findings.is_empty(),
        "{} breaches:\n{}",
        findings.len(),
        finding::report(&findings)
    );
}

#[test]
fn the_top_level_is_fixed() {
    check(layout::top_level);
}

#[test]
fn every_service_has_the_same_files() {
    check(layout::services);
}

#[test]
fn statements_about_tables_of_tenants_name_the_tenant() {
    check(tenants::in_statements);
}

#[test]
fn comments_name_things_by_nouns() {
    check(sentences::nouns);
}

#[test]
fn module_files_stand_beside_their_directories() {
    check(layout::module_files);
}

#[test]
fn a_crate_has_one_integration_test_binary() {
    check(layout::integration_binaries);
}

#[test]
fn protos_have_a_package_for_go() {
    check(layout::go_packages);
}

#[test]
fn manifests_have_the_common_form() {
    check(manifests::fields);
}

#[test]
fn packages_come_from_the_public_registry() {
    check(manifests::lock_file_sources);
}

#[test]
fn python_requirements_are_pinned() {
    check(manifests::python_requirements);
}

#[test]
fn crates_depend_downward_only() {
    check(edges::between_crates);
}

#[test]
fn no_files_import_each_other_in_a_loop() {
    check(circles::of_files);
}

#[test]
fn no_folders_import_each_other_in_a_loop() {
    check(circles::of_folders);
}

#[test]
fn shared_crates_have_several_owners() {
    check(edges::owners);
}

#[test]
fn domain_modules_are_pure() {
    check(purity::within_domain);
}

#[test]
fn loops_of_runs_do_no_io_and_one_place_folds_events() {
    check(purity::within_loops);
}

#[test]
fn one_client_sends_calls_and_child_runs() {
    check(purity::within_run_client);
}

#[test]
fn sql_stands_in_stores() {
    check(purity::within_store);
}

#[test]
fn documents_and_request_ids_have_one_store() {
    check(once::copies);
}

#[test]
fn files_are_short_enough() {
    check(sizes::files);
}

#[test]
fn a_type_name_stands_in_one_file_of_a_crate() {
    check(sizes::type_names);
}

#[test]
fn nothing_is_left_undone() {
    check(words::unfinished);
}

#[test]
fn no_file_names_a_machine_or_how_it_came_to_be() {
    check(words::places_and_talk);
}

#[test]
fn given_up_words_only_become_fewer() {
    check(prose::given_up_words);
}

#[test]
fn unsafe_code_stands_in_the_launcher_with_its_reason() {
    check(unsafe_code::unsafe_code);
}

#[test]
fn the_first_page_is_short_and_names_every_crate() {
    check(pages::architecture);
}

#[test]
fn pages_name_files_that_exist() {
    check(pages::named_files);
}

#[test]
fn every_error_reason_has_a_remedy() {
    check(error_page::remedies);
}

/// With the variable `BLESS` set, the page is written anew.
#[test]
fn the_page_of_error_reasons_is_made_from_the_contract() {
    if std::env::var_os("BLESS").is_some() {
        let tree = Tree::of_this_repository().expect("the repository can be read");
        let contract = tree
            .text(error_page::CONTRACT)
            .expect("the contract has the reasons");
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .join(error_page::PAGE);
        std::fs::write(path, error_page::page(contract)).expect("the page can be written");
    }
    check(error_page::page_is_made);
}
