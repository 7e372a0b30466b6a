//! Lists that a method returns page by page.

use prost_reflect::prost::{Message, Name};
use tonic::Status;

use super::{json, print_table, refusal};

/// Prints the messages of all pages: a table with a row for each, or each as a line of JSON.
///
/// `page` takes the token of a page and returns its messages, and the token of the next page, which is
/// empty after the last.
///
/// # Errors
/// The server refuses a page.
pub(super) async fn print_all<T: Message + Name, const N: usize>(
    as_json: bool,
    head: [&str; N],
    row: impl Fn(&T) -> [String; N],
    mut page: impl AsyncFnMut(String) -> Result<(Vec<T>, String), Status>,
) -> anyhow::Result<()> {
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut token = String::new();
    loop {
        let (messages, next) = page(token).await.map_err(|status| refusal(&status))?;
        for message in &messages {
            match as_json {
                true => json::print_line(message)?,
                false => rows.push(row(message).to_vec()),
            }
        }
        if next.is_empty() {
            break;
        }
        token = next;
    }
    if !as_json {
        print_table(&rows, None);
    }
    Ok(())
}
