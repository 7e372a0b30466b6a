//! Archives that are refused whole, each with a violation at the name of its entry.

mod contents;
mod names;
mod records;

use plugin_package::read_archive;

use crate::build::{Archive, Item};

type Case = (&'static str, Vec<u8>, &'static str, String);

/// Makes a case of an archive with a manifest and one entry more.
fn one(label: &'static str, item: Item, code: &'static str, place: &str) -> Case {
    whole(label, Archive::plugin([item]), code, place)
}

fn whole(label: &'static str, archive: Archive, code: &'static str, place: &str) -> Case {
    (label, archive.bytes(), code, place.to_owned())
}

fn check(cases: Vec<Case>) {
    for (label, bytes, code, place) in cases {
        let wrong = read_archive(&bytes).expect_err(label);
        let found: Vec<(&str, &str)> = wrong
            .iter()
            .map(|each| (&*each.code, &*each.pointer))
            .collect();
        assert!(found.contains(&(code, &place)), "{label}: {wrong:?}");
        assert!(wrong.iter().all(|each| !each.message.is_empty()), "{label}");
    }
}
