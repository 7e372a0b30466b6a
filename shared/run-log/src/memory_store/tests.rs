//! A log in memory that is full.

use core_types::{RunId, RunOwner, Timestamp};
use uuid::Uuid;

use super::*;
use crate::{
    CreateError, Created, NewEvent, Owners, ReadError, RunWriter, engine::Engine, log::in_memory,
};

fn run_id(number: u128) -> RunId {
    RunId::new(RunOwner::Workflow, Uuid::from_u128(number))
}

fn event(bytes: usize) -> Vec<NewEvent> {
    vec![NewEvent::new(
        Timestamp::from_unix_nanos(1),
        1,
        vec![0; bytes],
    )]
}

fn new(number: u128) -> NewRun {
    NewRun {
        durability: Durability::Memory,
        ..NewRun::new(run_id(number), "flow", Timestamp::from_unix_nanos(1))
    }
}

async fn start(log: &Engine, number: u128) -> RunWriter {
    match log.create(new(number), Vec::new()).await.unwrap() {
        Created::New(writer) => writer,
        Created::Replayed(run) => panic!("{run:?} was there before"),
    }
}

#[tokio::test]
async fn a_full_log_drops_the_runs_that_ended_first() {
    let log = in_memory(MemoryLimits {
        max_runs: 3,
        max_bytes: 1 << 20,
    });
    let open = start(&log, 1).await;
    for number in [2, 3] {
        start(&log, number).await.finish(0, event(7)).await.unwrap();
    }
    let mut behind = log.follow(run_id(2), 0).await.unwrap();
    let also_open = start(&log, 4).await;
    assert_eq!(log.summary(run_id(2), &Owners::All).await.unwrap(), None);
    assert!(
        log.summary(run_id(3), &Owners::All)
            .await
            .unwrap()
            .is_some()
    );
    let ended = behind.next_batch().await;
    assert!(matches!(ended, Err(ReadError::NoSuchRun)), "{ended:?}");

    start(&log, 5).await;
    let refused = log.create(new(6), Vec::new()).await;
    assert!(
        matches!(refused, Err(CreateError::Storage(StorageError::Full))),
        "{refused:?}"
    );
    let large = || event(700_000);
    also_open.append(large()).await.unwrap();
    let refused = open.append(large()).await;
    assert!(
        matches!(refused, Err(AppendError::Storage(StorageError::Full))),
        "{refused:?}"
    );
    assert_eq!(open.append(event(7)).await.unwrap(), 1);
}
