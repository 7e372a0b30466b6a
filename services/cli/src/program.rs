//! The command line of a program that has these commands.

use std::sync::OnceLock;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Command, Parser};

/// The name of the program, once its command line is read.
static NAME: OnceLock<&str> = OnceLock::new();

/// The options of [`crate::Remote`] that commands do not use.
const UNUSED: [(&str, &[&str]); 3] = [
    ("play", &["json"]),
    ("healthcheck", &["json", "key_file", "token_file"]),
    ("certs", &["address", "key_file", "token_file"]),
];

/// Returns the name under which a person calls the program.
pub(crate) fn name() -> &'static str {
    NAME.get().copied().unwrap_or("tavern")
}

/// Reads the command line of the program `name`, and ends the program if it is wrong or requests
/// help.
///
/// `unused` lists more commands with the options of [`crate::Remote`] that they do not use: such an
/// option is not in their help, and is refused.
pub fn read<A: Parser>(name: &'static str, unused: &[(&str, &[&str])]) -> A {
    // The help names the program; a program has one name.
    let _ = NAME.set(name);
    let unused = [unused, &UNUSED].concat();
    parse(parser(A::command().name(name), &unused), &unused).unwrap_or_else(|error| error.exit())
}

/// Hides the options that a command does not use.
fn parser(mut command: Command, unused: &[(&str, &[&str])]) -> Command {
    // Only after this do the commands have the global options.
    command.build();
    unused.iter().fold(command, |command, (name, unused)| {
        command.mut_subcommand(name, |command| {
            command.mut_args(|arg| match unused.contains(&arg.get_id().as_str()) {
                true => arg.hide(true),
                false => arg,
            })
        })
    })
}

/// Parses the command line, and refuses an option that the command does not use.
fn parse<A: Parser>(mut command: Command, unused: &[(&str, &[&str])]) -> Result<A, clap::Error> {
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    let name = matches.subcommand_name().unwrap_or_default();
    let unused = unused.iter().find(|(known, _)| *known == name);
    for option in unused.map_or(&[][..], |(_, options)| options) {
        if matches.value_source(option) == Some(ValueSource::CommandLine) {
            let option = option.replace('_', "-");
            let message = format!("`{} {name}` has no option `--{option}`", self::name());
            return Err(command.error(ErrorKind::UnknownArgument, message));
        }
    }
    A::from_arg_matches(&matches)
}
