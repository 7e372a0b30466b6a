//! Acknowledged events survive `kill -9`.

use crate::{
    appender::{self, Report},
    fixture::sqlite_at,
};

const ROUNDS: u64 = 24;

#[tokio::test]
async fn acknowledged_events_survive_kills_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("runs.db");
    let mut all = Report::default();
    for round in 0..ROUNDS {
        // The multiplier scatters the rounds over 0 to 799 acknowledgements before the kill.
        let count = usize::try_from(round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33).unwrap() % 800;
        let report = appender::spawn(&path, None).kill_after(count);
        assert_eq!(report.failures, 0, "round {round}");
        all.acknowledged.extend(report.acknowledged);

        let log = sqlite_at(&path).await;
        all.assert_all_in(&log).await;
        log.close().await;
    }
    assert!(all.acknowledged.len() > 1000, "{}", all.acknowledged.len());
}
