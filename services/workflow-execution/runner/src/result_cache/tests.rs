use async_trait::async_trait;
use workflow_domain::cache_key::node_name;

use super::*;

/// A double of a database: the stored results, in memory.
#[derive(Debug, Default)]
struct StoreInMemory(Mutex<Vec<(LastResult, String, Arc<str>)>>);

impl StoreInMemory {
    fn kept(&self) -> Vec<(LastResult, String, Arc<str>)> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

#[async_trait]
impl ResultStore for StoreInMemory {
    async fn all(&self) -> Result<Vec<ResultRow>, StoreError> {
        let row = |(last, run_id, outputs): (LastResult, String, Arc<str>)| ResultRow {
            key: last.key,
            bytes: outputs.len(),
            run_id,
            kept: last.kept,
        };
        Ok(self.kept().into_iter().map(row).collect())
    }

    async fn last(&self) -> Result<Vec<LastResult>, StoreError> {
        Ok(self.kept().into_iter().map(|(last, ..)| last).collect())
    }

    async fn outputs(&self, key: &CacheKey) -> Result<Option<String>, StoreError> {
        let kept = self.kept().into_iter().find(|(last, ..)| last.key == *key);
        Ok(kept.map(|(.., outputs)| outputs.to_string()))
    }

    async fn write(&self, changes: &[ResultChange]) -> Result<(), StoreError> {
        let kept = changes.iter().filter_map(|change| match change {
            ResultChange::Kept {
                last,
                run_id,
                outputs,
            } => Some((last.clone(), run_id.clone(), Arc::clone(outputs))),
            _ => None,
        });
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(kept);
        Ok(())
    }
}

async fn empty() -> Arc<ResultCache> {
    ResultCache::open(Arc::new(StoreInMemory::default()))
        .await
        .unwrap()
}

fn wanted(value: &str) -> Wanted {
    let parts = KeyParts::from_text(&format!("{{\"inputs.n\":\"{value:0>32}\"}}")).unwrap();
    Wanted {
        node: node_name("workflow w", "node"),
        key: parts.key("workflow w"),
        parts,
    }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_unix_nanos(seconds * 1_000_000_000)
}

async fn miss(cache: &ResultCache, value: &str, ttl: Option<u64>, now: i64) -> Miss {
    let ttl = ttl.map(Duration::from_secs);
    match cache.find(&wanted(value), ttl, at(now)).await {
        CacheLookup::Miss(miss, _) => miss,
        CacheLookup::Hit(hit) => panic!("{hit:?}"),
    }
}

#[tokio::test]
async fn w47_each_miss_is_explained_and_a_hit_names_its_source() {
    let cache = empty().await;
    assert_eq!(miss(&cache, "1", None, 10).await, Miss::First);
    cache.keep(wanted("1"), "{}".into(), "flow_1", at(10));
    let changed = Miss::Changed(vec!["inputs.n".to_owned()]);
    assert_eq!(miss(&cache, "2", None, 10).await, changed);
    assert_eq!(miss(&cache, "1", Some(5), 16).await, Miss::Expired);
    let CacheLookup::Hit(hit) = cache
        .find(&wanted("1"), Some(Duration::from_secs(5)), at(15))
        .await
    else {
        panic!("the result is not too old");
    };
    assert_eq!(
        (&*hit.run_id, hit.at, &*hit.outputs),
        ("flow_1", at(10), "{}")
    );
    cache.lock().results.remove(&wanted("1").key);
    assert_eq!(miss(&cache, "1", None, 10).await, Miss::Evicted);
}

#[tokio::test]
async fn what_is_written_is_there_when_the_cache_is_opened_again() {
    let cache = empty().await;
    cache.keep(wanted("1"), "{\"a\":1}".into(), "flow_1", at(10));
    cache.flush().await;
    let again = ResultCache::open(Arc::clone(&cache.store)).await.unwrap();
    let CacheLookup::Hit(hit) = again.find(&wanted("1"), None, at(20)).await else {
        panic!("the result is there");
    };
    assert_eq!((&*hit.outputs, hit.at), ("{\"a\":1}", at(10)));
    let changed = Miss::Changed(vec!["inputs.n".to_owned()]);
    assert_eq!(miss(&again, "2", None, 20).await, changed);
}

#[tokio::test]
async fn w46_of_two_that_want_the_same_the_second_gets_the_result_of_the_first() {
    let cache = empty().await;
    let CacheLookup::Miss(Miss::First, Some(flight)) = cache.find(&wanted("1"), None, at(1)).await
    else {
        panic!("nothing is there");
    };
    let other = Arc::clone(&cache);
    let second = tokio::spawn(async move { other.find(&wanted("1"), None, at(1)).await });
    while cache.flights.waiting(&wanted("1").key) == 0 {
        tokio::task::yield_now().await;
    }
    cache.keep(wanted("1"), "{}".into(), "flow_1", at(1));
    drop(flight);
    assert!(matches!(second.await.unwrap(), CacheLookup::Hit(_)));
}
