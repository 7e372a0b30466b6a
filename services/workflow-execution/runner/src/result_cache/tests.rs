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
            key: (last.tenant, last.key),
            bytes: outputs.len(),
            run_id,
            kept: last.kept,
        };
        Ok(self.kept().into_iter().map(row).collect())
    }

    async fn last(&self) -> Result<Vec<LastResult>, StoreError> {
        Ok(self.kept().into_iter().map(|(last, ..)| last).collect())
    }

    async fn outputs(&self, key: &TenantKey) -> Result<Option<String>, StoreError> {
        let mut kept = self.kept().into_iter();
        let kept = kept.find(|(last, ..)| (last.tenant, last.key) == *key);
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
        tenant: Tenant::DEFAULT,
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
    cache.lock().results.remove(&wanted("1").result());
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
    while cache.flights.waiting(&wanted("1").result()) == 0 {
        tokio::task::yield_now().await;
    }
    cache.keep(wanted("1"), "{}".into(), "flow_1", at(1));
    drop(flight);
    assert!(matches!(second.await.unwrap(), CacheLookup::Hit(_)));
}

#[tokio::test]
async fn equal_results_of_two_tenants_are_two_also_when_the_cache_is_opened_again() {
    let cache = empty().await;
    let theirs = || Wanted {
        tenant: Tenant::SYSTEM,
        ..wanted("1")
    };
    cache.keep(wanted("1"), "{\"of\":1}".into(), "flow_1", at(10));
    let CacheLookup::Miss(miss, Some(_flight)) = cache.find(&theirs(), None, at(10)).await else {
        panic!("the result is of another tenant");
    };
    assert_eq!(miss, Miss::First);
    cache.keep(theirs(), "{\"of\":2}".into(), "flow_2", at(10));
    cache.flush().await;
    let again = ResultCache::open(Arc::clone(&cache.store)).await.unwrap();
    for cache in [cache, again] {
        let mine = cache.look(&wanted("1"), None, at(10)).await.unwrap();
        let other = cache.look(&theirs(), None, at(10)).await.unwrap();
        assert_eq!((&*mine.outputs, &*mine.run_id), ("{\"of\":1}", "flow_1"));
        assert_eq!((&*other.outputs, &*other.run_id), ("{\"of\":2}", "flow_2"));
    }
}
