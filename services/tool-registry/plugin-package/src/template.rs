//! The files of a new plugin.

use tool_domain::package::PackageFile;

use crate::MANIFEST;

/// The longest name of a new plugin, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// Marks the place of the plugin's name in the texts below.
const NAME: &str = "{name}";

const FILES: [(&str, &str); 4] = [
    (
        MANIFEST,
        r#"name: "{name}"
version: 0.1.0
description: Greets people.

tools:
  entry: ./tools
"#,
    ),
    (
        "tools/greet.tool.json",
        r#"{
  "id": "{name}:greet",
  "displayName": "Greet",
  "description": "Returns a greeting for a person.",
  "implementation": {
    "type": "script",
    "command": "python scripts/greet.py"
  },
  "parameters": {
    "type": "object",
    "properties": {
      "person": {
        "type": "string",
        "description": "The name of the person.",
        "minLength": 1,
        "maxLength": 100
      }
    },
    "required": ["person"],
    "additionalProperties": false
  },
  "readOnly": true,
  "idempotent": true,
  "parallelSafe": true
}
"#,
    ),
    (
        "scripts/greet.py",
        r#""""Greets a person: reads {"person"} from standard input, and writes JSON to standard output."""

import json
import sys


def main():
    arguments = json.load(sys.stdin)
    json.dump({"greeting": f"Hello, {arguments['person']}!"}, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
"#,
    ),
    (
        "README.md",
        r#"# {name}

A plugin with one tool, `{name}:greet`, which is the script `scripts/greet.py`.

Try the script, in this directory:

    echo '{"person": "Ada"}' | python3 scripts/greet.py

Check the plugin; every problem is named with its file:

    tavern plugins check .

Call the tool: put this directory into `plugins` of the deploy directory, where it is in force within 3 s, and

    tavern tools call {name}:greet '{"person": "Ada"}'
"#,
    ),
];

/// Returns the files of a new plugin with one tool, a script in Python; nothing for a name that is not made of 1 to 64
/// lower-case letters of ASCII, digits and `-`, or begins with `-`. They pass [`check`](crate::check()) without a
/// violation.
pub fn template(name: &str) -> Option<Vec<PackageFile>> {
    let is_plain = |character: char| matches!(character, 'a'..='z' | '0'..='9' | '-');
    if name.is_empty()
        || name.len() > MAX_NAME_BYTES
        || name.starts_with('-')
        || !name.chars().all(is_plain)
    {
        return None;
    }
    let files = FILES.into_iter();
    let files = files.map(|(path, text)| PackageFile {
        path: path.to_owned(),
        content: text.replace(NAME, name).into_bytes(),
    });
    Some(files.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PluginFiles, check};

    #[test]
    fn a_new_plugin_has_no_fault_whatever_its_name() {
        let longest = "x".repeat(MAX_NAME_BYTES);
        for name in ["demo", "a", "my-plugin-2", "123", "null", "1e3", &longest] {
            let checked = check(&PluginFiles::new(template(name).unwrap()).unwrap());
            assert_eq!(checked.violations, []);
            let plugin = checked.plugin.unwrap();
            assert_eq!(plugin.manifest.name.as_str(), name);
            assert_eq!(plugin.manifest.diagnostics, []);
            assert_eq!(plugin.tools[0].diagnostics, []);
            assert_eq!(plugin.tools[0].id.as_str(), format!("{name}:greet"));
        }
    }

    #[test]
    fn a_name_that_is_no_plain_word_gets_no_files() {
        let long = "x".repeat(MAX_NAME_BYTES + 1);
        for name in ["", "-a", "A", "a b", "a/b", "..", ".a", "a:b", "é", &long] {
            assert!(template(name).is_none(), "{name:?}");
        }
    }
}
