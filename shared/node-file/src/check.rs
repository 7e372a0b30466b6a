//! The conditions that several members of a file make together.

use std::collections::BTreeSet;

use call_outcome::Violation;
use serde_json::Value;

use crate::file::{NodeFile, Setting, SettingConfig, json_type};

/// The setting that every node has in addition to its own.
const EXECUTION: &str = "execution";

/// The longest type within a plugin.
const MAX_NAME_BYTES: usize = 64;

/// Returns the violations of a file of the right form, and completes the file.
pub(crate) fn check(file: &mut NodeFile, plugin: &str) -> Vec<Violation> {
    let mut wrong = Vec::new();
    name(file, plugin, &mut wrong);
    handler(file, &mut wrong);
    modes(file, &mut wrong);
    let mut streams = BTreeSet::new();
    for (place, is_input, slot) in file.slots() {
        if let Some(default) = &slot.config.default
            && !(fits(&slot.data_flow_type, default) || slot.multi && default.is_array())
        {
            wrong.push(unfit(&format!("{place}/config"), &slot.data_flow_type));
        }
        if slot.is_stream && slot.multi {
            let message = "a slot for many values does not stream; remove isStream or multi";
            wrong.push(Violation::new(
                format!("{place}/isStream"),
                "invalid_slot",
                message,
            ));
        }
        if slot.is_stream && !is_input {
            let key = place.rsplit('/').next().unwrap_or_default().to_owned();
            streams.insert((key, slot.data_flow_type.as_str()));
        }
    }
    if streams.len() > 1 {
        let message = "one output may stream, as it is the standard output of the handler; let others be whole";
        wrong.push(Violation::new("/outputs", "invalid_slot", message));
    }
    if !streams.is_empty() && file.handler.tool.is_some() {
        let message = "the handler of a type with a streaming output is a script; remove isStream";
        wrong.push(Violation::new("/handler/tool", "invalid_handler", message));
    }
    for (key, setting) in &file.settings {
        setting_of(key, setting, &mut wrong);
    }
    wrong
}

fn name(file: &mut NodeFile, plugin: &str, wrong: &mut Vec<Violation>) {
    if let Some((of, name)) = file.name.split_once(':') {
        if of != plugin {
            let message = format!(
                "'{}' is a type of '{of}'; the types of this plugin begin with '{plugin}:'",
                file.name
            );
            wrong.push(Violation::new("/type", "foreign_type", message));
            return;
        }
        file.name = name.to_owned();
    }
    let mut characters = file.name.chars();
    let begins = characters.next().is_some_and(|c| c.is_ascii_alphabetic());
    let is_plain = characters.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if !begins || !is_plain || file.name.len() > MAX_NAME_BYTES {
        let message = format!(
            "the type must be a letter followed by letters, digits, '_' and '-', at most {MAX_NAME_BYTES} in all, \
             such as 'QrCode'"
        );
        wrong.push(Violation::new("/type", "invalid_type", message));
    }
}

fn handler(file: &NodeFile, wrong: &mut Vec<Violation>) {
    let handler = &file.handler;
    if handler.script.is_some() == handler.tool.is_some() {
        let message = "the handler is either a 'script' or a 'tool' of the plugin; state one";
        wrong.push(Violation::new("/handler", "invalid_handler", message));
    }
    let of_scripts = !handler.packages.is_empty() || handler.timeout.is_some();
    if handler.tool.is_some() && of_scripts {
        let message = "a tool has its own packages and time limit; remove 'packages' and 'timeout'";
        wrong.push(Violation::new("/handler", "invalid_handler", message));
    }
}

/// Checks the modes, and adds the setting that selects one if it is not declared.
fn modes(file: &mut NodeFile, wrong: &mut Vec<Violation>) {
    if file.mode_key.is_empty() != file.modes.is_empty() {
        let message = "'modes' and 'modeConfigKey', the setting that selects one, need each other";
        wrong.push(Violation::new("/modes", "invalid_modes", message));
    }
    let is_declared = file.settings.iter().any(|(key, _)| *key == file.mode_key);
    if file.mode_key.is_empty() || is_declared {
        return;
    }
    let setting = Setting {
        data_flow_type: "STRING".to_owned(),
        description: "The mode.".to_owned(),
        config: SettingConfig {
            options: file.modes.iter().map(|(id, _)| id.clone()).collect(),
            ..SettingConfig::default()
        },
        ..Setting::default()
    };
    file.settings.insert(0, (file.mode_key.clone(), setting));
}

fn setting_of(key: &str, setting: &Setting, wrong: &mut Vec<Violation>) {
    let place = format!("/configSchema/{key}");
    if key == EXECUTION {
        let message = "every node has this setting; choose another name";
        wrong.push(Violation::new(&*place, "name_reserved", message));
    }
    let config = &setting.config;
    if let Some(default) = &config.default {
        let offered = default
            .as_str()
            .is_some_and(|text| config.options.iter().any(|option| option == text));
        if !fits(&setting.data_flow_type, default) || !config.options.is_empty() && !offered {
            wrong.push(unfit(&format!("{place}/config"), &setting.data_flow_type));
        }
    }
    if !config.options.is_empty() && setting.data_flow_type != "STRING" {
        let message = "options are texts, so the setting must be of the type STRING";
        wrong.push(Violation::new(
            format!("{place}/config/options"),
            "type_mismatch",
            message,
        ));
    }
}

fn unfit(config: &str, data_flow_type: &str) -> Violation {
    let message =
        format!("the default is not of the type {data_flow_type}, or is not one of the options");
    Violation::new(format!("{config}/default"), "type_mismatch", message)
}

/// Whether a value is of a type.
fn fits(data_flow_type: &str, value: &Value) -> bool {
    let whole = |value: &Value| value.is_i64() || value.is_u64();
    match json_type(data_flow_type) {
        None => true,
        Some("string") => value.is_string(),
        Some("integer") => whole(value),
        Some("number") => value.is_number(),
        Some("boolean") => value.is_boolean(),
        Some("object") => value.is_object(),
        Some(_) => value.is_array(),
    }
}
