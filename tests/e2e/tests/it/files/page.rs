//! The files and the results of a conversation on the page, in a browser.

use std::path::Path;

use testkit::{Stack, repository};

use crate::console::client;
use crate::doubt::agent;
use crate::edges::run;

/// Writes an agent whose only call shows results of every type.
pub(super) fn deploy(directory: &Path) -> anyhow::Result<()> {
    for name in ["agents", "models", "workflows"] {
        std::fs::create_dir(directory.join(name))?;
    }
    let plugin = repository().join("tests/e2e/deploy/plugins/shows");
    for part in ["tools", "scripts"] {
        std::fs::create_dir_all(directory.join("plugins/shows").join(part))?;
    }
    for file in ["plugin.yaml", "tools/Show.tool.json", "scripts/show.py"] {
        std::fs::copy(
            plugin.join(file),
            directory.join("plugins/shows").join(file),
        )?;
    }
    let show = "<ACTION><Show><picture>results/0123456789abcdef.png</picture></Show></ACTION>";
    let settings = agent(directory, "shower", "Show", show)?;
    std::fs::write(directory.join("agent-runtime.toml"), settings)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_dropped_opened_and_deleted_and_results_are_shown() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    deploy(directory.path())?;
    let stack = Stack::builder().deploy(directory.path()).start().await?;
    let client = client("files.mjs", &stack.address(), "pictures")?;
    run(client).await.map(drop)
}

/// A cell that reads the file of sales if there is one, writes another, shows a chart, and takes its time, with the
/// standard library only.
const CELL: &str = r#"
import csv, os, struct, time, zlib

rows = [("Jan", 10)]
if os.path.exists("sales.csv"):
    rows = [(row["month"], int(row["sum"])) for row in csv.DictReader(open("sales.csv"))]
os.makedirs("out", exist_ok=True)
with open("out/report.csv", "w") as report:
    report.write("months,sum\n%d,%d\n" % (len(rows), sum(value for _, value in rows)))

class Chart:
    def _repr_png_(self):
        width, height = 30 * len(rows), 60
        def pixel(x, y):
            is_bar = x % 30 >= 6 and height - y <= 4 * rows[x // 30][1]
            return b"\x1f\x77\xb4" if is_bar else b"\xff\xff\xff"
        lines = (b"\0" + b"".join(pixel(x, y) for x in range(width)) for y in range(height))
        def chunk(kind, content):
            whole = kind + content
            return struct.pack(">I", len(content)) + whole + struct.pack(">I", zlib.crc32(whole))
        head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
        content = zlib.compress(b"".join(lines))
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", content) + chunk(b"IEND", b"")

display(Chart())
time.sleep(3)
"drawn"
"#;

/// Writes an agent whose only call draws a chart in a cell.
pub(super) fn deploy_analyst(directory: &Path) -> anyhow::Result<()> {
    for name in ["agents", "models", "plugins", "workflows"] {
        std::fs::create_dir(directory.join(name))?;
    }
    let cell = format!(
        "<ACTION><CodeInterpreter:run_cell><language>python</language><code><![CDATA[{CELL}]]></code>\
         </CodeInterpreter:run_cell></ACTION>"
    );
    let settings = agent(directory, "analyst", "CodeInterpreter:run_cell", &cell)?;
    std::fs::write(directory.join("agent-runtime.toml"), settings)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_dropped_an_agent_is_asked_and_the_chart_appears() -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    deploy_analyst(directory.path())?;
    let stack = Stack::builder().deploy(directory.path()).start().await?;
    let client = client("chart.mjs", &stack.address(), "pictures")?;
    run(client).await.map(drop)
}
