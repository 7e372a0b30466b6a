//! Results of pandas, matplotlib and Pillow. `make test` leaves these tests out by name where the set `data` is not built.

use super::*;

/// The width and the height of a PNG, and of its metadata.
fn sizes(host: &Host, result: &CellResult) -> [(u64, u64); 2] {
    let part = result.data.iter().find(|it| it.media_type == "image/png");
    let content = host.content(part.expect("a picture"));
    let number = |at: usize| u32::from_be_bytes(content[at..at + 4].try_into().unwrap()).into();
    let metadata: serde_json::Value = serde_json::from_str(&result.metadata_json).unwrap();
    let about = |name: &str| metadata["image/png"][name].as_u64().unwrap();
    [(number(16), number(20)), (about("width"), about("height"))]
}

#[tokio::test]
async fn tables_and_figures_show_the_types_that_jupyter_has() {
    yardstick::gives_the_outputs_of_jupyter("data").await;
}

#[tokio::test]
async fn a_frame_has_a_table_in_markdown_as_short_as_its_text() {
    let (host, session) = Host::with_set("data").await;
    let source = "import pandas as pd\npd.DataFrame({'month': ['Jan', 'Feb'], 'sum': [10, 12]})";
    let ran = host.cell(&session, source).await;
    assert_eq!(
        ran.text("text/plain"),
        "  month  sum\n0   Jan   10\n1   Feb   12"
    );
    let table = "|  | month | sum |\n|--|--|--|\n| 0 | Jan | 10 |\n| 1 | Feb | 12 |";
    assert_eq!(ran.text("text/markdown"), table);
    assert!(ran.text("text/html").contains("<td>Jan</td>"));
    for (source, expected) in [
        (
            "pd.DataFrame({'a|b': ['x|y', 'two\\nlines', None], 'f': [1, 2.25, float('nan')]}, index=pd.Index([1, 2, 3], name='n'))",
            "| n | a\\|b | f |\n|--|--|--|\n| 1 | x\\|y | 1.00 |\n| 2 | two\\nlines | 2.25 |\n| 3 | NaN | NaN |",
        ),
        (
            "pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([('a', 'x'), ('a', 'y')]), index=pd.MultiIndex.from_tuples([('k', 7)]))",
            "|  | a, x | a, y |\n|--|--|--|\n| k, 7 | 1 | 2 |",
        ),
        ("pd.DataFrame()", "|  |\n|--|"),
        (
            "pd.set_option('display.max_rows', 4, 'display.min_rows', 2, 'display.max_columns', 2)\npd.DataFrame([[r * c for c in range(5)] for r in range(9)])",
            "|  | 0 | ... | 4 |\n|--|--|--|--|\n| 0 | 0 | ... | 0 |\n| ... | ... | ... | ... |\n| 8 | 0 | ... | 32 |",
        ),
    ] {
        let ran = host.cell(&session, source).await;
        assert_eq!(ran.text("text/markdown"), expected, "{source}");
        assert_eq!(ran.ended.dropped_results, 0);
    }
    let source =
        "pd.set_option('display.max_rows', None)\nframe = pd.DataFrame({'n': range(3000)}); frame";
    let ran = host.cell(&session, source).await;
    let table = ran.results[0]
        .data
        .iter()
        .find(|it| it.media_type == "text/markdown");
    let table = String::from_utf8(host.content(table.unwrap())).unwrap_or_default();
    assert_eq!(table.lines().count(), 1003);
    let ran = host.cell(&session, "frame['n'].head(1)").await;
    assert_eq!(types(&ran.results[0]).1, ["text/plain"]);
}

#[tokio::test]
async fn figures_are_pictures_of_a_bounded_size_and_are_closed() {
    let (host, session) = Host::with_set("data").await;
    let source = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nNone";
    let ran = host.cell(&session, source).await;
    assert_eq!(ran.results[0].origin(), ResultOrigin::Figure);
    assert_eq!(ran.text("text/plain"), "<Figure size 640x480 with 1 Axes>");
    assert_eq!(sizes(&host, &ran.results[0]), [(640, 480); 2]);
    let ran = host
        .cell(&session, "plt.get_fignums(), plt.get_backend().lower()")
        .await;
    assert_eq!(ran.value.as_deref(), Some("([], 'agg')"));
    for (size, expected) in [
        ("(400, 400)", (2000, 2000)),
        ("(400, 4)", (2000, 20)),
        ("(20, 10), dpi=100", (2000, 1000)),
        ("(4, 3), dpi=10_000", (2000, 1500)),
    ] {
        let source = format!(
            "plt.figure(figsize={size}); plt.plot([1, 2]); plt.text(9, 9, 'far away'); plt.show()"
        );
        let ran = host.cell(&session, &source).await;
        assert_eq!(sizes(&host, &ran.results[0]), [expected; 2], "{size}");
        assert_eq!(ran.ended.dropped_results, 0);
    }
    let source =
        "for n in range(40): plt.figure(figsize=(1, 1)); plt.plot([n])\nlen(plt.get_fignums())";
    let ran = host.cell(&session, source).await;
    assert_eq!((ran.results.len(), ran.ended.dropped_results), (17, 24));
    assert_eq!(ran.value.as_deref(), Some("40"));
    let ran = host.cell(&session, "len(plt.get_fignums())").await;
    ran.shows(&["expression text/plain=\"0\""], 0);
    let source = "
class Bad(plt.Line2D):
    def draw(self, renderer): raise ValueError('bad')
plt.gca().add_line(Bad([1], [1]))
plt.show()";
    let ran = host.cell(&session, source).await;
    assert_eq!(
        ran.text("text/plain"),
        "<Figure size 640x480 with 1 Axes>\n<savefig failed: ValueError: bad>"
    );
}

#[tokio::test]
async fn an_error_keeps_the_figures_before_it_and_an_interrupt_closes_them() {
    let (host, session) = Host::with_set("data").await;
    let source = "import matplotlib.pyplot as plt\nplt.plot([1])\n1 / 0";
    let ran = host.cell(&session, source).await;
    assert_eq!(ran.ended.outcome(), CellOutcome::Raised);
    assert_eq!(ran.error.unwrap().frames[0].line, 3);
    assert_eq!(types(&ran.results[0]).1, ["image/png", "text/plain"]);
    let source = "plt.plot([1])\nprint('in')\nwhile True: pass";
    let running = host.begin(&session, source).await;
    let interrupt = async || assert!(host.interrupt(&session, 20.0).await.interrupted);
    let ran = follow_with(running, interrupt).await;
    assert_eq!((ran.results.len(), ran.ended.dropped_results), (0, 1));
    let ran = host.cell(&session, "plt.get_fignums()").await;
    ran.shows(&["expression text/plain=\"[]\""], 0);
}

#[tokio::test]
async fn pictures_have_their_width_and_height() {
    let (host, session) = Host::with_set("data").await;
    let ran = host
        .cell(
            &session,
            "from PIL import Image\nImage.new('RGB', (40, 30))",
        )
        .await;
    assert_eq!(
        types(&ran.results[0]).1,
        ["image/jpeg", "image/png", "text/plain"]
    );
    let metadata: serde_json::Value = serde_json::from_str(&ran.results[0].metadata_json).unwrap();
    let size = serde_json::json!({ "width": 40, "height": 30 });
    assert_eq!(
        metadata,
        serde_json::json!({ "image/png": size, "image/jpeg": size })
    );
    let source =
        "import numpy\nImage.fromarray(numpy.random.randint(0, 256, (2000, 2000, 3), 'uint8'))";
    let ran = host.cell(&session, source).await;
    assert_eq!(ran.ended.outcome(), CellOutcome::Succeeded);
    assert!(
        ran.text("text/plain").contains("<image/png of 12"),
        "{}",
        ran.text("text/plain")
    );
    assert_eq!(ran.ended.dropped_results, 1);
}
