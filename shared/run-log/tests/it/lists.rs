//! Listing runs.

use core_types::Durability;
use run_log::{NewRun, Order, RunCursor, RunFilter, StateFilter};

use crate::fixture::{self, Fixture, at, events, run_id, start};

on_every_log! {
    lists_page_in_a_stable_order
    filters_select
}

async fn lists_page_in_a_stable_order(on: Fixture) {
    for number in 1..=23 {
        // Some are created in the same instant, where the id decides.
        let run = NewRun {
            created: at(i64::try_from(number / 4).unwrap()),
            ..on.new_run(number)
        };
        start(&*on.log, run).await;
    }
    for (order, expected) in [
        (Order::OldestFirst, (1..=23).collect::<Vec<u128>>()),
        (Order::NewestFirst, (1..=23).rev().collect()),
    ] {
        for size in [1, 5, 22, 23, 24] {
            let mut seen = Vec::new();
            let mut after: Option<RunCursor> = None;
            loop {
                let filter = RunFilter::default();
                let page = on
                    .log
                    .list(&filter, order, after.as_ref(), size)
                    .await
                    .unwrap();
                assert!(page.runs.len() <= size);
                seen.extend(page.runs.iter().map(|run| run.id.uuid().as_u128()));
                // A cursor goes over the wire as text.
                after = page.next.map(|cursor| cursor.to_string().parse().unwrap());
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(seen, expected, "{order:?} in pages of {size}");
        }
    }
}

async fn filters_select(on: Fixture) {
    for number in 1..=8_u128 {
        let run = NewRun {
            subject: if number <= 4 { "left" } else { "right" }.to_owned(),
            kind: if number % 2 == 0 { "even" } else { "odd" }.to_owned(),
            parent: (number > 6).then(|| run_id(1)),
            ..on.new_run(number)
        };
        let writer = start(&*on.log, run).await;
        if number == 3 || number == 8 {
            writer.finish(1, events(1..=1)).await.unwrap();
        }
    }
    let all = RunFilter::default();
    let left = || Some("left".to_owned());
    for (filter, expected) in [
        (all.clone(), vec![1, 2, 3, 4, 5, 6, 7, 8]),
        (
            RunFilter {
                subject: left(),
                ..all.clone()
            },
            vec![1, 2, 3, 4],
        ),
        (
            RunFilter {
                kind: Some("even".to_owned()),
                ..all.clone()
            },
            vec![2, 4, 6, 8],
        ),
        (
            RunFilter {
                parent: Some(run_id(1)),
                ..all.clone()
            },
            vec![7, 8],
        ),
        (
            RunFilter {
                state: StateFilter::Finished,
                ..all.clone()
            },
            vec![3, 8],
        ),
        (
            RunFilter {
                subject: left(),
                state: StateFilter::Open,
                ..all.clone()
            },
            vec![1, 2, 4],
        ),
        (
            RunFilter {
                subject: Some(String::new()),
                ..all
            },
            vec![],
        ),
    ] {
        let page = on
            .log
            .list(&filter, Order::OldestFirst, None, 100)
            .await
            .unwrap();
        let found: Vec<u128> = page
            .runs
            .iter()
            .map(|run| run.id.uuid().as_u128())
            .collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let subject = on.log.by_subject("right", None, 2).await.unwrap();
    let found: Vec<_> = subject.runs.iter().map(|run| run.id).collect();
    assert_eq!(found, [run_id(8), run_id(7)]);
    assert_eq!(on.log.open_runs(None, 100).await.unwrap().runs.len(), 6);
}

#[tokio::test]
async fn lists_of_both_logs_are_merged() {
    let on = fixture::router_to_sqlite().await;
    for number in 1..=9 {
        let durability = if number % 3 == 0 {
            Durability::Memory
        } else {
            Durability::Sync
        };
        start(
            &*on.log,
            NewRun {
                durability,
                ..on.new_run(number)
            },
        )
        .await;
    }
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let page = on.log.open_runs(after.as_ref(), 2).await.unwrap();
        seen.extend(page.runs.iter().map(|run| run.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(seen, (1..=9).map(run_id).collect::<Vec<_>>());
}
