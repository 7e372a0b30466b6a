//! Tools that exist and cannot be called for now, and tools that were removed.

use call_outcome::{Category, Failure};

/// The reason for which a tool that is or was there cannot be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotActive {
    /// An administrator of the tenant has switched it off.
    ToolOff,
    /// An administrator of the tenant has switched its plugin off.
    PluginOff(String),
    /// Required options of its plugin have no value.
    NotConfigured {
        /// The name of the plugin.
        plugin: String,
        /// The keys of the options, without the prefix of the plugin.
        missing: Vec<String>,
    },
    /// The plugin that brought it was removed, or does not bring it any more.
    Removed(String),
}

impl NotActive {
    /// Returns the code of the failure of a call.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ToolOff | Self::PluginOff(_) => "tool_not_available",
            Self::NotConfigured { .. } => "plugin_not_configured",
            Self::Removed(_) => "tool_removed",
        }
    }

    /// Returns the reason as a sentence about a tool.
    pub fn sentence(&self, tool: &str) -> String {
        match self {
            Self::ToolOff => format!("{tool} is switched off"),
            Self::PluginOff(plugin) => {
                format!("{tool} is not available, because the plugin {plugin} is switched off")
            }
            Self::NotConfigured { plugin, missing } => format!(
                "{tool} waits for options of the plugin {plugin}: {}",
                missing.join(", ")
            ),
            Self::Removed(plugin) => {
                format!(
                    "{tool} is gone: the plugin {plugin}, which brought it, was removed or changed"
                )
            }
        }
    }

    /// Returns the command or the change that makes the tool callable.
    pub fn remedy(&self, tool: &str) -> String {
        match self {
            Self::ToolOff => format!("Switch it on: tavern plugins enable --tool {tool}"),
            Self::PluginOff(plugin) => format!("Switch it on: tavern plugins enable {plugin}"),
            Self::NotConfigured { plugin, missing } => {
                let options = missing.iter().map(|key| format!(" {key}=..."));
                format!(
                    "Set them: tavern plugins options {plugin}{}",
                    options.collect::<String>()
                )
            }
            Self::Removed(plugin) => {
                format!("Install {plugin} again, or take the tool out of the profile or workflow.")
            }
        }
    }

    /// Returns the failure of a call of the tool.
    pub(super) fn into_failure(self, tool: &str) -> Failure {
        let message = format!("{}. {}", self.sentence(tool), self.remedy(tool));
        Failure::new(Category::Policy, self.code(), message)
    }
}
