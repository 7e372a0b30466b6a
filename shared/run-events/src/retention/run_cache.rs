//! Answers about runs that are asked for often during one pass.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use core_types::RunId;

/// The largest number of answers that are held; one more drops them all.
const MOST: usize = 16_384;

/// Yes or no for runs, each requested once.
#[derive(Debug, Default)]
pub struct RunCache {
    /// Locked for a look or a change, never across an await.
    answers: Mutex<HashMap<RunId, bool>>,
}

impl RunCache {
    /// Returns the answer for a run, from `ask` if none is held.
    ///
    /// # Errors
    /// The error of `ask`; no answer is held then.
    pub async fn get_or<E>(
        &self,
        run: RunId,
        ask: impl Future<Output = Result<bool, E>>,
    ) -> Result<bool, E> {
        let held = { self.answers().get(&run).copied() };
        if let Some(answer) = held {
            return Ok(answer);
        }
        let answer = ask.await?;
        let mut answers = self.answers();
        if answers.len() >= MOST {
            answers.clear();
        }
        answers.insert(run, answer);
        Ok(answer)
    }

    /// Drops all answers, before the next pass.
    pub fn clear(&self) {
        self.answers().clear();
    }

    fn answers(&self) -> MutexGuard<'_, HashMap<RunId, bool>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
