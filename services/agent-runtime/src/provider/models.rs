//! The models that the settings name.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
};

use settings::Secret;

use super::{
    Provider,
    openai::{OpenAi, OpenAiError},
    scripted::{ScriptError, Scripted},
};
use crate::settings::ModelSettings;

/// The models by name. Clone, cheap.
#[derive(Clone, Debug, Default)]
pub struct Models {
    by_name: Arc<BTreeMap<String, Arc<dyn Provider>>>,
}

/// Why a model cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum BuildModelError {
    /// The variable with its key is not set.
    #[error(
        "the environment variable {variable} with the key of the model `{model}` is not set; set it, or leave `api_key_env` out"
    )]
    NoKey {
        /// The model.
        model: String,
        /// The variable.
        variable: String,
    },
    /// The client cannot be made.
    #[error("the model `{model}` cannot be set up")]
    OpenAi {
        /// The model.
        model: String,
        /// Why.
        source: OpenAiError,
    },
    /// The script cannot be played.
    #[error("the model `{model}` cannot be set up")]
    Script {
        /// The model.
        model: String,
        /// Why.
        source: ScriptError,
    },
}

impl Models {
    /// Sets every model up. Keys come from `variables`, as the settings name them.
    ///
    /// # Errors
    /// [`BuildModelError`] for the first model that cannot be used.
    pub fn build(
        models: &BTreeMap<String, ModelSettings>,
        scripts_dir: &Path,
        variables: &HashMap<String, String>,
    ) -> Result<Self, BuildModelError> {
        let mut by_name: BTreeMap<String, Arc<dyn Provider>> = BTreeMap::new();
        for (name, settings) in models {
            let model = name.clone();
            let provider: Arc<dyn Provider> = match settings {
                ModelSettings::Openai(settings) => {
                    let key = match &settings.api_key_env {
                        None => None,
                        Some(variable) => {
                            Some(variables.get(variable).map(Secret::new).ok_or_else(|| {
                                BuildModelError::NoKey {
                                    model: model.clone(),
                                    variable: variable.clone(),
                                }
                            })?)
                        }
                    };
                    let client = OpenAi::new(settings.clone(), key.as_ref());
                    Arc::new(client.map_err(|source| BuildModelError::OpenAi { model, source })?)
                }
                ModelSettings::Scripted(settings) => {
                    let script = Scripted::open(&scripts_dir.join(&settings.script));
                    Arc::new(script.map_err(|source| BuildModelError::Script { model, source })?)
                }
            };
            by_name.insert(name.clone(), provider);
        }
        Ok(Self {
            by_name: Arc::new(by_name),
        })
    }

    /// Returns the model with this name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Provider>> {
        self.by_name.get(name).cloned()
    }

    /// Returns all models by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<dyn Provider>)> {
        self.by_name
            .iter()
            .map(|(name, provider)| (name.as_str(), provider))
    }
}
