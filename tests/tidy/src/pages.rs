//! The pages: the length of the first one, and the files and crates that pages and the tree name.

use crate::{Finding, Tree};

/// The page that a newcomer reads first.
const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Lines of that page.
const LONGEST_ARCHITECTURE: usize = 200;

/// Pages, or folders of pages, whose code spans name files of the repository.
const NAME_FILES: [&str; 4] = [
    ARCHITECTURE,
    "CONTRIBUTING.md",
    "docs/design/",
    "proto/README.md",
];

/// The ends of names by which a code span is known as a file.
const FILE_ENDS: [&str; 6] = [".rs", ".proto", ".md", ".sql", ".py", ".toml"];

/// Marks of a pattern, which names no single file.
const PATTERN: [char; 6] = ['*', '<', '{', '…', ' ', '$'];

/// Checks the length of the first page, and requires each crate of the product in it.
pub fn architecture(tree: &Tree) -> Vec<Finding> {
    let text = tree.text(ARCHITECTURE).unwrap_or_default();
    let lines = text.lines().count();
    let mut findings = Vec::new();
    if lines > LONGEST_ARCHITECTURE {
        findings.push(Finding::new(
            ARCHITECTURE,
            format!("has {lines} lines, more than {LONGEST_ARCHITECTURE}"),
            "move explanations to a page of `docs/design/`, and leave the invariant",
        ));
    }
    let of_a_name = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let words: Vec<&str> = text.split(|c| !of_a_name(c)).collect();
    let of_the_product = |root: &String| !root.starts_with("tests/");
    for root in tree.crates().into_iter().filter(of_the_product) {
        let name = root.rsplit('/').next().unwrap_or_default();
        if !words.contains(&name) {
            let problem = format!("does not name the crate `{root}`");
            let remedy = format!("add `{name}` to the picture, with its purpose in a few words");
            findings.push(Finding::new(ARCHITECTURE, problem, remedy));
        }
    }
    findings
}

/// Requires the files that pages name, in code spans and in links.
pub fn named_files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts(&[".md"]) {
        let spans_name_files = NAME_FILES.iter().any(|page| path.starts_with(page));
        for (index, line) in lines_of_prose(text) {
            let spans = line.split('`').skip(1).step_by(2);
            let missing_spans = spans
                .filter(|span| spans_name_files && !span_exists(tree, span.trim_end_matches('/')));
            let links = line.split("](").skip(1);
            let links = links.filter_map(|rest| rest.split(')').next());
            let missing_links = links.filter(|link| !link_exists(tree, path, link));
            for name in missing_spans.chain(missing_links) {
                let problem = format!("names `{name}`, which does not exist");
                let remedy =
                    "name the file or heading that exists, a file by its path from the root";
                findings.push(Finding::new(path, problem, remedy).at_line(index + 1));
            }
        }
    }
    findings
}

/// Returns the lines outside fences, with their numbers from 0.
fn lines_of_prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// Whether a code span names no file, a path of the tree, or the end of one.
fn span_exists(tree: &Tree, span: &str) -> bool {
    let first = span.split('/').next().unwrap_or_default();
    let from_the_root = span.contains('/') && !first.contains('.') && tree.has(first);
    if span.contains(PATTERN) {
        return true;
    }
    if from_the_root {
        return tree.has(span);
    }
    let end = format!("/{span}");
    let is_file = FILE_ENDS.iter().any(|suffix| span.ends_with(suffix));
    !is_file || tree.has(span) || tree.paths().any(|path| path.ends_with(&end))
}

/// Whether a link leads out of the repository, or to a file of it and a heading in that file.
fn link_exists(tree: &Tree, page: &str, link: &str) -> bool {
    if link.contains("://") {
        return true;
    }
    let (file, heading) = link.split_once('#').unwrap_or((link, ""));
    let folder = page.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut place: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in file.split('/').filter(|part| !part.is_empty()) {
        match part {
            ".." => drop(place.pop()),
            part => place.push(part),
        }
    }
    let target = match file.is_empty() {
        true => page.to_owned(),
        false => place.join("/"),
    };
    let has_heading = |text: &str| {
        text.lines()
            .any(|line| anchor(line).as_deref() == Some(heading))
    };
    tree.has(&target) && (heading.is_empty() || tree.text(&target).is_some_and(has_heading))
}

/// Returns the anchor of a heading.
fn anchor(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim();
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let title = title.to_lowercase();
    Some(
        title
            .chars()
            .filter(kept)
            .collect::<String>()
            .replace(' ', "-"),
    )
}
