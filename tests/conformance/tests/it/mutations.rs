//! One mark of a well-formed block is dropped, doubled, swapped or misspelt: no call runs that was
//! not written, and none is lost without a remark.

use conformance::families::FAMILIES;
use conformance::mutation::{Effects, Form, Random, Written, catalogue, check};

/// The number of texts of each form; `make mutate` raises it.
fn texts() -> u64 {
    let asked = std::env::var("TAVERN_TEST_MUTATIONS").ok();
    asked.map_or(20_000, |asked| {
        asked.parse().expect("TAVERN_TEST_MUTATIONS is a number")
    })
}

/// The number of mutations of one well-formed text.
const EACH: u64 = 8;

fn check_form(form: Form, effects: Effects) {
    assert_none(&failures_of(form, effects));
}

fn failures_of(form: Form, effects: Effects) -> Vec<String> {
    let catalogue = catalogue(effects);
    let mut failures = Vec::new();
    for seed in 0..texts() / EACH {
        let mut random = Random::new(seed);
        let written = Written::new(form, &mut random);
        let intact = written.intact();
        if let Err(wrong) = check(&intact, &written.meant, &catalogue, true) {
            failures.push(format!("{form:?}, seed {seed}, intact: {wrong}\n{intact}"));
        }
        for _ in 0..EACH {
            let text = written.mutated(&mut random);
            if let Err(wrong) = check(&text, &written.meant, &catalogue, false) {
                failures.push(format!(
                    "{form:?}, seed {seed}: {wrong}\n{text}\n--- was ---\n{intact}"
                ));
            }
        }
    }
    failures
}

fn assert_none(failures: &[String]) {
    let shown = failures.len().min(5);
    assert!(
        failures.is_empty(),
        "{} texts:\n{}",
        failures.len(),
        failures[..shown].join("\n======\n")
    );
}

fn check_families(effects: Effects) {
    let families = FAMILIES.iter();
    let failures: Vec<String> = families
        .flat_map(|family| failures_of(Form::Of(family), effects))
        .collect();
    assert_none(&failures);
}

macro_rules! forms {
    ($effects:ident: $($name:ident: $form:ident),+ $(,)?) => {
        $(
            #[test]
            fn $name() {
                super::check_form(super::Form::$form, super::Effects::$effects);
            }
        )+
    };
}

mod no_call_runs_that_was_not_written_and_none_is_lost_silently {
    #[test]
    fn in_any_family() {
        super::check_families(super::Effects::Some);
    }

    forms! {
        Some: action: Action, tam_v1: TamV1, tam_v2: TamV2, vcp: Vcp,
        tool_call: ToolCall, invoke: Invoke, function: Function,
    }
}

/// Only a repair of structure may make a call of a read-only tool run (G8).
mod no_call_of_a_read_only_tool_runs_that_was_not_written {
    #[test]
    fn in_any_family() {
        super::check_families(super::Effects::None);
    }

    forms! {
        None: action: Action, tam_v1: TamV1, tam_v2: TamV2, vcp: Vcp,
        tool_call: ToolCall, invoke: Invoke, function: Function,
    }
}
