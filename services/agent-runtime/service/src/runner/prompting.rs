//! The prompt of a turn, from its state.

use agent_domain::{
    goals,
    message::{ChatMessage, Role, TurnMessage},
    observation,
    plan::Plan,
    prompt::{self, Prompt},
};
use call_catalogue::Catalogue;
use call_prompt::prompt as tool_prompt;
use serde_json::Value;

/// The states that the model is shown.
#[derive(Clone, Copy, Default)]
pub(super) struct PromptStates<'a> {
    /// The agent's own state; none if it has none.
    pub(super) private: Option<&'a Value>,
    /// The world state; none outside of scenes.
    pub(super) world: Option<&'a Value>,
    /// Its goals; none if it has none.
    pub(super) goals: Option<&'a Value>,
}

/// Assembles the prompt from the earlier turns and the present one.
pub(super) fn prompt(
    plan: &Plan,
    catalogue: &Catalogue,
    (earlier, present): (&[Vec<TurnMessage>], &[TurnMessage]),
    shown: PromptStates<'_>,
    history_bytes: usize,
) -> Prompt {
    // A deliberation workflow receives the list of tools in addition to the messages.
    let is_taught = plan.tools.is_text() && plan.deliberation.is_none();
    let tools = match is_taught {
        true => manifest(plan, catalogue),
        false => String::new(),
    };
    let mut prompt = prompt::assemble(&plan.system_prompt, &tools, earlier, present, history_bytes);
    // At the end, so that the rest can be cached. A deliberation workflow has an input for it.
    if plan.deliberation.is_none() {
        let own = shown.private;
        let own = own.map(|state| observation::private_state(state, plan.language));
        let world = shown.world;
        let world = world.map(|state| observation::world_state(state, plan.language));
        let goals = shown.goals;
        let goals = goals.and_then(|state| goals::shown(state, plan.language));
        let states = own.into_iter().chain(world).chain(goals);
        let nonce = is_taught.then(|| nonce(plan, catalogue)).flatten();
        let shown: Vec<String> = states.chain(nonce).collect();
        if !shown.is_empty() {
            prompt
                .messages
                .push(ChatMessage::new(Role::User, shown.join("\n")));
        }
    }
    prompt
}

/// Returns the opening of blocks in this turn; none if the profile has no nonce, or there are no
/// tools.
fn nonce(plan: &Plan, catalogue: &Catalogue) -> Option<String> {
    let nonce = plan.nonce.as_ref().filter(|_| !catalogue.is_empty())?;
    let dialect = plan.taught_dialect();
    Some(tool_prompt::render_nonce(dialect, plan.language, nonce))
}

/// Returns the list of tools for a deliberation workflow, with the opening of blocks in this turn.
pub(super) fn manifest_of_turn(plan: &Plan, catalogue: &Catalogue) -> String {
    let mut text = manifest(plan, catalogue);
    if let Some(nonce) = nonce(plan, catalogue) {
        text.push_str("\n\n");
        text.push_str(&nonce);
    }
    text
}

/// Returns the list of tools as a prompt teaches them; empty if there are none.
fn manifest(plan: &Plan, catalogue: &Catalogue) -> String {
    if catalogue.is_empty() {
        return String::new();
    }
    let (dialect, language) = (plan.taught_dialect(), plan.language);
    tool_prompt::render_tools(catalogue, dialect, language, tool_prompt::Detail::Full).text
}
