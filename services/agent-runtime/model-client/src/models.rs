//! The models that the settings name.

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::Arc,
    time::Duration,
};

use agent_domain::usage::{PriceList, Prices};
use settings::Secret;
use tenancy::Tenants;

use super::{
    anthropic::Anthropic,
    api::ModelApi,
    gate::Gate,
    http::{HttpModel, HttpModelError, KeySource},
    model::{Candidate, Model, Patience},
    openai::OpenAi,
    scripted::{ScriptError, Scripted},
};
use crate::model_settings::{EndpointSettings, GrammarUse, ModelSettings, ScriptedSettings};

/// The models by name. Clone, cheap.
#[derive(Clone, Debug, Default)]
pub struct Models {
    by_name: Arc<BTreeMap<String, Model>>,
}

/// The reason for which a model cannot be set up.
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
    Endpoint {
        /// The model.
        model: String,
        /// The cause.
        source: HttpModelError,
    },
    /// The script cannot be played.
    #[error("the model `{model}` cannot be set up")]
    Script {
        /// The model.
        model: String,
        /// The cause.
        source: ScriptError,
    },
}

impl Models {
    /// Sets every model up. Keys come from `variables`, as the settings name them; the requests are within the limits
    /// of `tenants`, and count as their uses.
    ///
    /// # Errors
    /// [`BuildModelError`] of the first model that cannot be used.
    pub fn build(
        models: &BTreeMap<String, ModelSettings>,
        scripts_dir: &Path,
        variables: &HashMap<String, String>,
        tenants: &Tenants,
    ) -> Result<Self, BuildModelError> {
        let mut candidates = BTreeMap::new();
        for (name, settings) in models {
            let candidate = match settings {
                ModelSettings::Openai(settings) => {
                    endpoint(name, settings, Box::new(OpenAi), variables)?
                }
                ModelSettings::Anthropic(settings) => {
                    endpoint(name, settings, Box::new(Anthropic), variables)?
                }
                ModelSettings::Scripted(settings) => scripted(name, settings, scripts_dir)?,
            };
            candidates.insert(name.as_str(), Arc::new(candidate));
        }
        let with_fallbacks = |(name, settings): (&String, &ModelSettings)| {
            let model = Arc::clone(candidates.get(name.as_str())?);
            let fallbacks = settings.fallbacks().iter();
            let fallbacks = fallbacks.filter_map(|name| candidates.get(name.as_str()).cloned());
            Some((name.clone(), Model::new(model, fallbacks, tenants.clone())))
        };
        Ok(Self {
            by_name: Arc::new(models.iter().filter_map(with_fallbacks).collect()),
        })
    }

    /// Returns the model with this name.
    pub fn get(&self, name: &str) -> Option<Model> {
        self.by_name.get(name).cloned()
    }

    /// Returns the model with this name, and with `fallbacks` instead of the fallbacks of its
    /// settings.
    ///
    /// # Errors
    /// A name without a model.
    pub fn with_fallbacks<'a>(
        &self,
        name: &'a str,
        fallbacks: Option<&'a [String]>,
    ) -> Result<Model, &'a str> {
        let find = |name: &'a str| self.by_name.get(name).ok_or(name);
        let model = find(name)?;
        let Some(fallbacks) = fallbacks else {
            return Ok(model.clone());
        };
        let fallbacks = fallbacks.iter().map(|name| find(name));
        Ok(model.with_fallbacks(fallbacks.collect::<Result<Vec<_>, _>>()?))
    }

    /// Returns all models by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Model)> {
        self.by_name
            .iter()
            .map(|(name, model)| (name.as_str(), model))
    }
}

fn endpoint(
    name: &str,
    settings: &EndpointSettings,
    api: Box<dyn ModelApi>,
    variables: &HashMap<String, String>,
) -> Result<Candidate, BuildModelError> {
    let key = match (&settings.api_key_env, &settings.api_key_file) {
        (Some(variable), _) => {
            let key = variables.get(variable);
            let key = key.ok_or_else(|| BuildModelError::NoKey {
                model: name.to_owned(),
                variable: variable.clone(),
            })?;
            KeySource::Value(Secret::new(key))
        }
        (None, Some(file)) => KeySource::File(file.clone()),
        (None, None) => KeySource::None,
    };
    let client = HttpModel::new(settings.clone(), api, key);
    let client = client.map_err(|source| BuildModelError::Endpoint {
        model: name.to_owned(),
        source,
    })?;
    Ok(Candidate {
        name: name.to_owned(),
        provider: Box::new(client),
        patience: Patience {
            retries: settings.retries,
            retry_after_limit: settings.retry_after_limit,
            total_timeout: settings.total_timeout,
        },
        gate: Gate::new(settings.max_concurrent, settings.requests_per_minute),
        price_list: settings.price_per_million_micros.map(|prices| PriceList {
            prices,
            currency: settings.currency.clone(),
        }),
        context_tokens: settings.context_tokens,
        grammar: settings.grammar,
        begins_in_thought: settings.begins_in_thought,
    })
}

/// Sets up a model that plays a file: without retries and limits.
fn scripted(
    name: &str,
    settings: &ScriptedSettings,
    scripts_dir: &Path,
) -> Result<Candidate, BuildModelError> {
    let script = scripts_dir.join(&settings.script);
    let script = Scripted::open(&script).map_err(|source| BuildModelError::Script {
        model: name.to_owned(),
        source,
    })?;
    Ok(Candidate {
        name: name.to_owned(),
        provider: Box::new(script),
        patience: Patience {
            retries: 0,
            retry_after_limit: Duration::ZERO,
            total_timeout: Duration::from_secs(24 * 60 * 60),
        },
        gate: Gate::new(usize::MAX, 0),
        // Playing a file costs nothing.
        price_list: Some(PriceList {
            prices: Prices::default(),
            currency: "USD".to_owned(),
        }),
        context_tokens: settings.context_tokens,
        grammar: GrammarUse::None,
        begins_in_thought: settings.begins_in_thought,
    })
}
