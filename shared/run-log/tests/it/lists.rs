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
        start(&on.log, run).await;
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

/// Filters, each with the numbers of the runs that it selects.
fn filters(on: &Fixture) -> Vec<(RunFilter, Vec<u128>)> {
    let filter = |change: &dyn Fn(&mut RunFilter)| {
        let mut filter = RunFilter::default();
        change(&mut filter);
        filter
    };
    let (third, sixth) = (on.new_run(3).created, on.new_run(6).created);
    let left = || Some("left".to_owned());
    vec![
        (filter(&|_| {}), vec![1, 2, 3, 4, 5, 6, 7, 8]),
        (filter(&|f| f.subject = left()), vec![1, 2, 3, 4]),
        (filter(&|f| f.subject = Some(String::new())), vec![]),
        (
            filter(&|f| f.conversation = Some("talk".to_owned())),
            vec![5],
        ),
        (
            filter(&|f| f.kind = Some("even".to_owned())),
            vec![2, 4, 6, 8],
        ),
        // No run has such a text, which PostgreSQL would refuse.
        (filter(&|f| f.subject = Some("left\0".to_owned())), vec![]),
        (filter(&|f| f.parent = Some(run_id(1))), vec![7, 8]),
        (filter(&|f| f.state = StateFilter::Finished), vec![3, 8]),
        (
            filter(&|f| f.state = StateFilter::FinishedAs(1)),
            vec![3, 8],
        ),
        (filter(&|f| f.state = StateFilter::FinishedAs(2)), vec![]),
        (
            filter(&|f| {
                f.subject = left();
                f.state = StateFilter::Open;
            }),
            vec![1, 2, 4],
        ),
        (
            filter(&|f| {
                f.created_since = Some(third);
                f.created_before = Some(sixth);
            }),
            vec![3, 4, 5],
        ),
    ]
}

async fn filters_select(on: Fixture) {
    for number in 1..=8_u128 {
        let run = NewRun {
            subject: if number <= 4 { "left" } else { "right" }.to_owned(),
            conversation: if number == 5 { "talk" } else { "" }.to_owned(),
            kind: if number % 2 == 0 { "even" } else { "odd" }.to_owned(),
            parent: (number > 6).then(|| run_id(1)),
            ..on.new_run(number)
        };
        let writer = start(&on.log, run).await;
        if number == 3 || number == 8 {
            writer.finish(1, events(1..=1)).await.unwrap();
        }
    }
    for (filter, expected) in filters(&on) {
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
    assert_eq!(on.log.open_runs(None, 100).await.unwrap().runs.len(), 6);
}

#[tokio::test]
async fn lists_of_both_logs_are_merged() {
    let on = fixture::sqlite().await.unwrap();
    for number in 1..=9 {
        let durability = if number % 3 == 0 {
            Durability::Memory
        } else {
            Durability::Sync
        };
        start(
            &on.log,
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
