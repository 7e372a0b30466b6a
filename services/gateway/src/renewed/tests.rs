use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures::future::join_all;
use tokio::sync::Semaphore;

use super::*;

const LONG: Duration = Duration::from_secs(3_600);

/// A source whose value is the number of the load, each of which waits for a permit.
#[derive(Clone)]
struct Source {
    loads: Arc<AtomicUsize>,
    permits: Arc<Semaphore>,
    fails: bool,
}

impl Source {
    fn new() -> Self {
        Self {
            loads: Arc::default(),
            permits: Arc::new(Semaphore::new(0)),
            fails: false,
        }
    }

    fn load(&self) -> impl Future<Output = Result<usize, Status>> + use<> {
        let source = self.clone();
        async move {
            let number = source.loads.fetch_add(1, SeqCst) + 1;
            source.permits.acquire().await.unwrap().forget();
            match source.fails {
                true => Err(Status::unavailable("no")),
                false => Ok(number),
            }
        }
    }

    fn loads(&self) -> usize {
        self.loads.load(SeqCst)
    }

    fn permit(&self, loads: usize) {
        self.permits.add_permits(loads);
    }
}

/// Makes a thousand requests at once; each waits at least once.
async fn get_together(renewed: &Renewed<u8, usize>, source: &Source) -> Vec<usize> {
    let all = join_all((0..1_000).map(|_| renewed.get(&0, || source.load())));
    all.await.into_iter().map(Result::unwrap).collect()
}

#[tokio::test]
async fn a_thousand_callers_share_a_load() {
    let (renewed, source) = (Renewed::new(LONG, LONG), Source::new());
    source.permit(2);
    assert_eq!(get_together(&renewed, &source).await, [1; 1_000]);
    assert_eq!(get_together(&renewed, &source).await, [1; 1_000]);
    assert_eq!(source.loads(), 1);
}

#[tokio::test]
async fn a_load_that_takes_longer_than_its_value_is_fresh_is_used() {
    let fresh_for = Duration::from_millis(300);
    let (renewed, source) = (Renewed::new(fresh_for, LONG), Source::new());
    let mut first = Box::pin(renewed.get(&0, || source.load()));
    assert!(futures::poll!(&mut first).is_pending());
    tokio::time::sleep(fresh_for).await;
    source.permit(2);
    assert_eq!(first.await.unwrap(), 1);
    let ended = Instant::now();
    let again = renewed.get(&0, || source.load()).await.unwrap();
    assert!(again == 1 || ended.elapsed() >= fresh_for, "{again}");
}

#[tokio::test]
async fn while_one_caller_renews_a_value_the_others_use_the_old_one() {
    let (renewed, source) = (Renewed::new(Duration::ZERO, LONG), Source::new());
    source.permit(1);
    renewed.get(&0, || source.load()).await.unwrap();
    let mut renewing = Box::pin(renewed.get(&0, || source.load()));
    assert!(futures::poll!(&mut renewing).is_pending());
    assert_eq!(get_together(&renewed, &source).await, [1; 1_000]);
    source.permit(1);
    assert_eq!(renewing.await.unwrap(), 2);
    assert_eq!(source.loads(), 2);
}

#[tokio::test]
async fn a_value_that_is_too_old_is_not_used() {
    let (renewed, source) = (Renewed::new(Duration::ZERO, Duration::ZERO), Source::new());
    source.permit(1);
    renewed.get(&0, || source.load()).await.unwrap();
    let mut renewing = Box::pin(get_together(&renewed, &source));
    assert!(futures::poll!(&mut renewing).is_pending());
    source.permit(1);
    assert_eq!(renewing.await, [2; 1_000]);
}

#[tokio::test]
async fn a_new_value_is_one_whose_load_began_after_the_question() {
    let (renewed, source) = (Renewed::new(LONG, LONG), Source::new());
    let mut first = Box::pin(renewed.get(&0, || source.load()));
    assert!(futures::poll!(&mut first).is_pending());
    let new = join_all((0..1_000).map(|_| renewed.load(&0, || source.load())));
    let mut new = Box::pin(new);
    assert!(futures::poll!(&mut new).is_pending());
    source.permit(9);
    let new: Vec<usize> = new.await.into_iter().map(Result::unwrap).collect();
    assert_eq!((new, source.loads()), (vec![2; 1_000], 2));
    assert_eq!(first.await.unwrap(), 1);
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_no_load() {
    let (renewed, source) = (Renewed::new(LONG, LONG), Source::new());
    for _ in 0..100 {
        let mut gone = Box::pin(renewed.get(&0, || source.load()));
        assert!(futures::poll!(&mut gone).is_pending());
    }
    source.permit(1);
    assert_eq!(renewed.get(&0, || source.load()).await.unwrap(), 1);
}

#[tokio::test]
async fn a_failure_is_shared_and_the_next_caller_tries_again() {
    let (renewed, source) = (Renewed::new(LONG, LONG), Source::new());
    source.permit(3);
    let failing = Source {
        fails: true,
        ..source.clone()
    };
    let all = join_all((0..100).map(|_| renewed.get(&0, || failing.load())));
    assert!(all.await.iter().all(Result::is_err));
    assert_eq!(source.loads(), 1);
    assert_eq!(renewed.get(&0, || source.load()).await.unwrap(), 2);
    let panics = renewed.load(&0, || async { panic!("as the test wants") });
    assert_eq!(panics.await.unwrap_err().code(), tonic::Code::Unavailable);
    assert_eq!(renewed.load(&0, || source.load()).await.unwrap(), 3);
}
