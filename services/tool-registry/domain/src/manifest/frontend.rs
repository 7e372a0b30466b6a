//! `frontend`: the parts of a plugin for the page.

use serde_json::Value;

use super::metadata;
use crate::section::{Findings, Section};

/// The greatest height of an outlet, in pixels.
const MAX_HEIGHT: i64 = 800;
/// The range of `order`.
const ORDERS: std::ops::RangeInclusive<i64> = -1_000_000..=1_000_000;

/// The parts of a plugin for the page; empty if it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontend {
    /// The path of the script beneath the plugin; none if it has none.
    pub entry: Option<String>,
    /// The paths of style sheets beneath the plugin.
    pub styles: Vec<String>,
    /// Components at outlets of the page.
    pub outlets: Vec<Outlet>,
    /// Components around components of the page.
    pub wraps: Vec<Wrap>,
    /// Components in the place of components of the page.
    pub overrides: Vec<ComponentOverride>,
}

/// A component at an outlet of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlet {
    /// The outlet.
    pub outlet: String,
    /// The component of the plugin.
    pub component: String,
    /// The place among components of the same outlet, the least first; 0 if none is written.
    pub order: i64,
    /// The height in pixels, at most 800; none for the page's own choice.
    pub height: Option<i64>,
}

/// A component around a component of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrap {
    /// The component of the page.
    pub target: String,
    /// The component of the plugin.
    pub component: String,
    /// The place among wraps of the same component, the least first; 0 if none is written.
    pub order: i64,
}

/// A component in the place of a component of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentOverride {
    /// The component of the page.
    pub target: String,
    /// The component of the plugin.
    pub component: String,
}

/// Reads `frontend`.
pub(super) fn read(root: &mut Section<'_>, findings: &mut Findings) -> Frontend {
    let wanted = "a mapping of build, outlets, wraps, overrides";
    let Some(mut section) = root.section("frontend", wanted, findings) else {
        return Frontend::default();
    };
    let (entry, styles) = build(&mut section, findings);
    let items = section.list("outlets", "a list of {outlet, component}", findings);
    let outlets = items.into_iter().filter_map(|(place, item)| {
        let mut each = mapping(&place, item, "outlet", findings)?;
        let outlet = each.required_text("outlet", "node:panel", findings);
        let component = component(&mut each, findings);
        let order = each.whole("order", ORDERS, findings).unwrap_or_default();
        let height = each.whole("height", 1..=MAX_HEIGHT, findings);
        each.close(findings);
        outlet.zip(component).map(|(outlet, component)| Outlet {
            outlet,
            component,
            order,
            height,
        })
    });
    let outlets = outlets.collect();
    let items = section.list("wraps", "a list of {target, component}", findings);
    let wraps = items.into_iter().filter_map(|(place, item)| {
        let mut each = mapping(&place, item, "target", findings)?;
        let target = each.required_text("target", "ui:BaseNode", findings);
        let component = component(&mut each, findings);
        let order = each.whole("order", ORDERS, findings).unwrap_or_default();
        each.close(findings);
        target.zip(component).map(|(target, component)| Wrap {
            target,
            component,
            order,
        })
    });
    let wraps = wraps.collect();
    let items = section.list("overrides", "a list of {target, component}", findings);
    let overrides = items.into_iter().filter_map(|(place, item)| {
        let mut each = mapping(&place, item, "target", findings)?;
        let target = each.required_text("target", "ui:BaseNode", findings);
        let component = component(&mut each, findings);
        each.close(findings);
        let (target, component) = target.zip(component)?;
        Some(ComponentOverride { target, component })
    });
    let overrides = overrides.collect();
    section.close(findings);
    Frontend {
        entry,
        styles,
        outlets,
        wraps,
        overrides,
    }
}

fn build(section: &mut Section<'_>, findings: &mut Findings) -> (Option<String>, Vec<String>) {
    let wanted = "a mapping of entry and styles";
    let Some(mut build) = section.section("build", wanted, findings) else {
        return (None, Vec::new());
    };
    let place = build.place("entry");
    let entry = build.text("entry", findings);
    let entry = entry.and_then(|entry| metadata::path(&place, &entry, findings));
    let styles = build.texts("styles", "a list of paths", findings);
    let styles = styles
        .into_iter()
        .filter_map(|(place, style)| metadata::path(&place, &style, findings))
        .collect();
    build.close(findings);
    (entry, styles)
}

fn mapping<'a>(
    place: &str,
    item: &'a Value,
    key: &str,
    findings: &mut Findings,
) -> Option<Section<'a>> {
    let wanted = format!("a mapping with '{key}' and 'component'");
    Section::of(item, place, "each entry", &wanted, findings)
}

fn component(each: &mut Section<'_>, findings: &mut Findings) -> Option<String> {
    each.required_text("component", "WeatherBadge", findings)
}
