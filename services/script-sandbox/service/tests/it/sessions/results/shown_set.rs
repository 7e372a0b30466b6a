//! Results of sympy, plotly and IPython.

use super::*;

#[tokio::test]
async fn sympy_plotly_and_ipython_show_the_types_that_jupyter_has() {
    yardstick::gives_the_outputs_of_jupyter("shown").await;
}

#[tokio::test]
async fn formulas_figures_and_objects_of_ipython_keep_their_content() {
    let (host, session) = Host::with_set("shown").await;
    let source = "import sympy\nx = sympy.symbols('x')\nsympy.integrate(x ** 2, x)";
    let ran = host.cell(&session, source).await;
    let expected =
        "expression text/latex=\"$\\\\displaystyle \\\\frac{x^{3}}{3}$\" text/plain=\"x**3/3\"";
    ran.shows(&[expected], 0);

    let source = "import plotly.graph_objects as go\nfig = go.Figure(go.Scatter(y=[1, 3, 2]))\nfig";
    for (source, origin) in [
        (source, ResultOrigin::Expression),
        ("fig.show()", ResultOrigin::Display),
        ("display(fig)", ResultOrigin::Display),
    ] {
        let ran = host.cell(&session, source).await;
        let bundle = "application/vnd.plotly.v1+json";
        assert_eq!(ran.results.len(), 1, "{source}: {:?}", ran.error);
        let part = &ran.results[0].data[0];
        assert_eq!(
            (ran.results[0].origin(), part.media_type.as_str()),
            (origin, bundle)
        );
        let figure: serde_json::Value = serde_json::from_slice(&host.content(part)).unwrap();
        assert_eq!(figure["data"][0]["y"], serde_json::json!([1, 3, 2]));
    }

    let source = "
from IPython.display import display, HTML, Markdown, Javascript, clear_output
display(Markdown('**x**'), Javascript('alert(1)'), metadata={})
clear_output()
handle = display('a', display_id=True)
handle.update('b')
HTML('<b>x</b>')";
    let ran = host.cell(&session, source).await;
    ran.shows(
        &[
            "display text/markdown=\"**x**\" text/plain=\"<IPython.core.display.Markdown object>\"",
            "display text/plain=\"<IPython.core.display.Javascript object>\"",
            "display text/plain=\"'a'\"",
            "display text/plain=\"'b'\"",
            "expression text/html=\"<b>x</b>\" text/plain=\"<IPython.core.display.HTML object>\"",
        ],
        0,
    );
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("", ""));
}
