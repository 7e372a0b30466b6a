//! The progress that scripts report.

use contracts::tavern::sandbox::v1::{ScriptProgress, execute_stream_response::Event};

use super::Talk;
use crate::{
    rounds::as_every_user,
    support::{Host, expect_class, expect_output, python, request},
};

/// A helper of the scripts below.
const REPORT: &str = "import os, sys
FD = int(os.environ['TAVERN_PROGRESS_FD'])
def write(data):
    while data:
        data = data[os.write(FD, data):]
";

impl Talk {
    /// Follows the script to its end, which it reaches by itself; returns its reports.
    async fn reports(&mut self) -> Vec<ScriptProgress> {
        let mut reports = Vec::new();
        loop {
            match self.next().await {
                Event::Progress(report) => reports.push(report),
                Event::Ended(ended) => {
                    expect_class(&ended, &["exited 0"]);
                    return reports;
                }
                _ => {}
            }
        }
    }
}

#[test]
fn a_script_reports_its_progress_while_it_runs_in_every_language() {
    as_every_user(async || {
        let host = Host::full().await;
        for (runtime, source) in [
            (
                "python3",
                "import os\nwith open(int(os.environ['TAVERN_PROGRESS_FD']), 'w') as progress:\n    print('{\"progress\": 0.4, \"message\": \"half\"}', file=progress, flush=True)\n    input()",
            ),
            (
                "node",
                "const fs = require('fs');\nfs.writeSync(Number(process.env.TAVERN_PROGRESS_FD), JSON.stringify({ progress: 0.4, message: 'half' }) + '\\n');\nfs.readSync(0, Buffer.alloc(1));",
            ),
            (
                "bash",
                "echo '{\"progress\": 0.4, \"message\": \"half\"}' >&\"$TAVERN_PROGRESS_FD\"; read -r",
            ),
        ] {
            let mut talk = Talk::begin(&host, request(runtime, source)).await;
            let report = loop {
                match talk.next().await {
                    Event::Progress(report) => break report,
                    Event::Ended(ended) => panic!("{runtime}: {ended:?}"),
                    _ => {}
                }
            };
            assert_eq!((report.fraction, &*report.message), (Some(0.4), "half"));
            talk.stdin("\n").await;
            assert_eq!(talk.reports().await, [], "{runtime}");
        }
    });
}

#[test]
fn a_flood_of_reports_shows_few_of_them_and_the_last() {
    as_every_user(async || {
        let host = Host::full().await;
        let flood = "write(b'{\"progress\": 0.5}\\n' * 50_000)\nwrite(b'{\"progress\": 1}\\n')";
        let mut talk = Talk::begin(&host, python(&format!("{REPORT}{flood}"))).await;
        let reports = talk.reports().await;
        let last = reports.last().and_then(|report| report.fraction);
        assert_eq!(last, Some(1.0));
        assert!(reports.len() < 1_000, "{}", reports.len());
    });
}

#[test]
fn nonsense_is_no_progress_and_does_no_harm() {
    as_every_user(async || {
        let host = Host::full().await;
        let nonsense = "write(b'x' * 300_000 + b'\\n')
write(b'{\"progress\": 2}\\n{\"progress\": NaN}\\n\\x00\\xff\\n' + b'[' * 4_000 + b'\\n')
write(b'{\"message\": \"' + b'y' * 3_000 + b'\"}\\n{\"progress\": 0.9')";
        let mut talk = Talk::begin(&host, python(&format!("{REPORT}{nonsense}"))).await;
        let reports = talk.reports().await;
        assert_eq!(reports.len(), 1, "{reports:?}");
        assert_eq!(reports[0].fraction, None);
        assert_eq!(reports[0].message, "y".repeat(253) + "…");
    });
}

#[test]
fn a_script_that_reports_to_no_reader_runs_to_its_end() {
    as_every_user(async || {
        let host = Host::full().await;
        let source = format!("{REPORT}write(b'{{\"progress\": 0.5}}\\n' * 20_000)\nprint('end')");
        expect_output(&host.run(python(&source)).await, "end\n");
    });
}
