//! A caller that leaves before it has its answer.

use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll},
};

/// Polls a future at most as often as `polls`, then drops it. Returns its output if it was ready by then.
pub async fn leave_after<F: Future>(polls: usize, asked: F) -> Option<F::Output> {
    let (mut asked, mut left) = (pin!(asked), polls);
    poll_fn(
        |context: &mut Context<'_>| match asked.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => {
                left = left.saturating_sub(1);
                match left {
                    0 => Poll::Ready(None),
                    _ => Poll::Pending,
                }
            }
        },
    )
    .await
}
