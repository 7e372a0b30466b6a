//! Loading: defaults, then file, then environment, then command line, every problem collected.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use figment::{
    error::{Actual, Kind},
    value::{Dict, Value},
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    effective,
    layers::{self, Layer},
    names,
    problem::{Problem, Problems, SettingsError, Source},
};

/// The most problems that are looked for.
const MAX_PROBLEMS: usize = 100;

/// The settings of one program.
pub trait Settings: Default + Serialize + DeserializeOwned + JsonSchema {
    /// The beginning of the program's environment variables, such as `TAVERN_GATEWAY`.
    const PREFIX: &'static str;

    /// The keys of earlier versions, each with the remedy for settings that still have it.
    const REPLACED: &'static [(&'static str, &'static str)] = &[];

    /// Checks ranges and fields that depend on each other, adding every problem.
    fn check(&self, problems: &mut Problems);
}

/// Settings, and the source of each value.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The settings.
    pub settings: T,
    layers: Vec<Layer>,
}

impl<T: Settings> Loaded<T> {
    /// Returns the settings in force in `program` as TOML: behind a header with the beginning of
    /// the environment variables, each value whose key is `shown`, with its meaning, its source and
    /// its default. Secrets are redacted.
    pub fn effective(&self, program: &str, shown: impl Fn(&str) -> bool) -> String {
        let prefix = T::PREFIX;
        let values = effective::print(&self.settings, |path| source_of(&self.layers, path), shown);
        format!("# {program}: environment variables {prefix}__…\n\n{values}")
    }
}

/// Loads settings from `file` (or the file that `<PREFIX>_CONFIG` names), the environment and `flags`,
/// the values of the command line by their keys.
///
/// # Errors
/// [`SettingsError`] with every problem.
pub fn load<T: Settings>(
    file: Option<&Path>,
    flags: &[(&str, String)],
) -> Result<Loaded<T>, SettingsError> {
    load_from(file, std::env::vars_os(), flags)
}

/// Loads settings like [`load`], from the environment variables `vars`.
///
/// # Errors
/// [`SettingsError`] with every problem.
pub fn load_from<T: Settings>(
    file: Option<&Path>,
    vars: impl IntoIterator<Item = (OsString, OsString)>,
    flags: &[(&str, String)],
) -> Result<Loaded<T>, SettingsError> {
    let vars: Vec<(OsString, OsString)> = vars.into_iter().collect();
    let named = format!("{}_CONFIG", T::PREFIX);
    let file = file.map(Path::to_path_buf).or_else(|| {
        vars.iter()
            .find(|(name, _)| *name == *named)
            .map(|(_, path)| PathBuf::from(path))
    });

    let mut problems = Vec::new();
    let mut layers = Vec::new();
    names::find_unknown(T::PREFIX, &vars, &mut problems);
    match file.map(|path| Layer::from_file(&path)).transpose() {
        Ok(layer) => layers.extend(layer),
        Err(problem) => problems.push(problem),
    }
    layers.push(Layer::from_environment(T::PREFIX, vars, &mut problems));
    layers.push(Layer::from_command_line(flags));

    let settings: Option<T> = extract(&mut layers, &mut problems);
    if let Some(settings) = &settings {
        find_unknown(settings, &layers, &mut problems);
        let mut own = Problems::default();
        settings.check(&mut own);
        problems.extend(own.resolve(|path| source_of(&layers, path)));
    }
    match settings {
        Some(settings) if problems.is_empty() => Ok(Loaded { settings, layers }),
        _ => Err(SettingsError { problems }),
    }
}

/// Deserialises, and as long as that fails removes the value at fault and tries again, so that
/// every bad value is found. A removed value falls back to the layer below or the default.
fn extract<T: Settings>(layers: &mut [Layer], problems: &mut Vec<Problem>) -> Option<T> {
    // The program's own defaults are the lowest layer, so that setting one field of a table keeps
    // this program's other fields.
    let defaults = match Value::serialize(T::default()) {
        Ok(Value::Dict(_, defaults)) => defaults,
        _ => Dict::new(),
    };
    let mut first_complaint: Option<(Vec<String>, Kind)> = None;
    while problems.len() < MAX_PROBLEMS {
        let error = match layers::overlay(&defaults, layers).deserialize::<T>() {
            Ok(settings) => return Some(settings),
            Err(error) => error,
        };
        let mut path = error.path.clone();
        match &error.kind {
            Kind::UnknownField(name, _) => path.push(name.clone()),
            Kind::MissingField(name) => path.push(name.to_string()),
            _ => {}
        }
        let parts: Vec<&str> = path.iter().map(String::as_str).collect();
        let at_fault = layers.iter_mut().rev().find(|layer| layer.contains(&path));
        let Some(layer) = at_fault else {
            problems.push(describe(&path, Source::Default, &error.kind));
            return None;
        };
        if is_scalar_mismatch(&error.kind) && layer.take_as_text(&path) {
            first_complaint = Some((path, error.kind));
            continue;
        }
        let kind = match first_complaint.take() {
            Some((known, kind)) if known == path => kind,
            _ => error.kind,
        };
        problems.push(describe(&path, layer.source(&parts), &kind));
        layer.remove(&path);
    }
    None
}

fn is_scalar_mismatch(kind: &Kind) -> bool {
    matches!(
        kind,
        Kind::InvalidType(
            Actual::Bool(_) | Actual::Unsigned(_) | Actual::Signed(_) | Actual::Float(_),
            _
        )
    )
}

fn describe(path: &[String], source: Source, kind: &Kind) -> Problem {
    let (what, remedy) = match kind {
        Kind::InvalidType(actual, expected) | Kind::InvalidValue(actual, expected) => (
            format!("is {}", shown(path, actual)),
            format!("give {expected}"),
        ),
        Kind::InvalidLength(length, expected) => {
            (format!("has {length} entries"), format!("give {expected}"))
        }
        Kind::UnknownVariant(name, known) => (
            format!("is `{name}`"),
            format!("use one of {}", known.join(", ")),
        ),
        Kind::UnknownField(_, known) => (
            "is unknown".to_owned(),
            format!("remove it, or use one of {}", known.join(", ")),
        ),
        Kind::MissingField(_) => ("is missing".to_owned(), "set it".to_owned()),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => (
            "is out of range".to_owned(),
            "give a smaller number".to_owned(),
        ),
        other => (
            "is wrong".to_owned(),
            figment::Error::from(other.clone()).to_string(),
        ),
    };
    Problem {
        key: path.join("."),
        source,
        what,
        remedy,
    }
}

/// Returns a value for a message, unless its key looks like the key of a secret.
fn shown(path: &[String], actual: &Actual) -> String {
    const SECRETIVE: [&str; 5] = ["key", "token", "secret", "password", "credential"];
    let name = path.last().map(String::as_str).unwrap_or_default();
    match actual {
        _ if SECRETIVE.iter().any(|word| name.contains(word)) => "of the wrong kind".to_owned(),
        Actual::Bool(value) => format!("`{value}`"),
        Actual::Unsigned(value) => format!("`{value}`"),
        Actual::Signed(value) => format!("`{value}`"),
        Actual::Float(value) => format!("`{value}`"),
        Actual::Str(value) => format!("`{value}`"),
        Actual::Seq => "a list".to_owned(),
        Actual::Map => "a table".to_owned(),
        other => other.to_string(),
    }
}

/// Finds keys that were set but are no settings: they are absent from the serialised settings.
fn find_unknown<T: Settings>(settings: &T, layers: &[Layer], problems: &mut Vec<Problem>) {
    let Ok(Value::Dict(_, known)) = Value::serialize(settings) else {
        return;
    };
    for layer in layers {
        layers::each_leaf(&layer.values, &mut |path, _| {
            if let Some((depth, siblings)) = first_unknown(&known, path) {
                let key = path[..=depth].join(".");
                let source = layer.source(path);
                if problems
                    .iter()
                    .any(|known| known.key == key && known.source == source)
                {
                    return;
                }
                let replaced = T::REPLACED.iter().find(|(earlier, _)| *earlier == key);
                if let Some((_, remedy)) = replaced {
                    problems.push(Problem {
                        key,
                        source,
                        what: "is no longer a setting".to_owned(),
                        remedy: (*remedy).to_owned(),
                    });
                    return;
                }
                problems.push(Problem {
                    key,
                    source,
                    what: "is unknown".to_owned(),
                    remedy: match names::nearest(path[depth], siblings.iter().map(String::as_str)) {
                        Some(meant) => format!("use {meant}, or remove it"),
                        None => format!("remove it, or use one of {}", siblings.join(", ")),
                    },
                });
            }
        });
    }
}

fn first_unknown(known: &Dict, path: &[&str]) -> Option<(usize, Vec<String>)> {
    let mut table = known;
    for (depth, key) in path.iter().enumerate() {
        match table.get(*key) {
            None => return Some((depth, table.keys().cloned().collect())),
            Some(Value::Dict(_, inner)) => table = inner,
            Some(_) => return None,
        }
    }
    None
}

fn source_of(layers: &[Layer], path: &[&str]) -> Source {
    layers
        .iter()
        .rev()
        .find(|layer| layers::find(&layer.values, path).is_some())
        .map_or(Source::Default, |layer| layer.source(path))
}
