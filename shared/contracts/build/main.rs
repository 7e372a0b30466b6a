//! Compiles every proto file below `proto/` without protoc, keeps the descriptor set, and makes
//! tables of the limits that the fields of our requests declare, and of the facts of our methods.

mod access;
mod rules;

use std::{borrow::Cow, env, error::Error, fs, path::Path, path::PathBuf};

use prost::encoding::bytes;
use prost_reflect::{DescriptorPool, FieldDescriptor};
use prost_types::{FileDescriptorSet, field_descriptor_proto};
use protox::Compiler;

/// The files that are ours.
const OURS: &str = "tavern/";

/// The directories of files that only describe options: they have no generated code.
const OPTIONS: [&str; 2] = ["buf/", "google/api/"];

/// Fields whose message our code keeps encoded, because the gateway passes it on unread. On the
/// wire a message and its bytes are the same.
const ENCODED: [(&str, &str); 3] = [
    ("tavern.run.v1.WatchRunResponse", "record"),
    ("tavern.registry.v1.InvokeCallsResponse", "record"),
    ("tavern.gateway.v1.InvokeTextResponse", "record"),
];

#[expect(
    clippy::print_stdout,
    reason = "cargo reads the directives of a build script there"
)]
fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());
    // A file is named from the first of them that holds it.
    let roots = [root.join("third_party"), root];
    let mut files = Vec::new();
    collect(&roots[0].join("lf"), &mut files)?;
    collect(&roots[1].join(OURS), &mut files)?;
    files.sort();

    let mut compiler = Compiler::new(&roots)?;
    compiler.include_imports(true).include_source_info(true);
    compiler.open_files(&files)?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(
        out.join("descriptor_set.bin"),
        descriptor_set(&roots, &compiler)?,
    )?;
    fs::write(
        out.join("rules.rs"),
        rules::tables(&compiler.descriptor_pool())?,
    )?;
    fs::write(
        out.join("access.rs"),
        access::table(&compiler.descriptor_pool())?,
    )?;
    let mut set = compiler.file_descriptor_set();
    let describes_options = |name: &str| OPTIONS.iter().any(|start| name.starts_with(start));
    set.file.retain(|file| !describes_options(file.name()));
    keep_encoded(&mut set);
    let secret = messages_with_secrets(&compiler.descriptor_pool());
    fs::write(out.join("secrets.rs"), without_secrets(&secret))?;
    let mut config = tonic_prost_build::Config::new();
    config.enable_type_names();
    config.skip_debug(secret.iter().map(|name| format!(".{name}")));
    config.bytes(ENCODED.map(|(message, field)| format!(".{message}.{field}")));
    tonic_prost_build::configure()
        .emit_rerun_if_changed(false)
        .codec_path("crate::codec::ProstCodec")
        .compile_fds_with_config(set, config)?;
    Ok(())
}

/// Returns the full names of messages that have a secret: a field with the option `debug_redact`.
fn messages_with_secrets(pool: &DescriptorPool) -> Vec<String> {
    let is_secret = |field: FieldDescriptor| {
        let redact = field
            .options()
            .get_field_by_name("debug_redact")
            .map(Cow::into_owned);
        redact.is_some_and(|redact| redact.as_bool() == Some(true))
    };
    let secret = pool
        .all_messages()
        .filter(|message| message.fields().any(is_secret));
    secret
        .map(|message| message.full_name().to_owned())
        .collect()
}

/// Returns the code that shows messages without their fields.
fn without_secrets(names: &[String]) -> String {
    let shown = names.iter().map(|name| {
        let path = name.replace('.', "::");
        format!(
            "impl std::fmt::Debug for crate::{path} {{\n    \
             fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{\n        \
             f.write_str(\"{name} {{ .. }}\")\n    }}\n}}\n"
        )
    });
    shown.collect()
}

/// Turns the fields that are kept encoded into bytes fields.
fn keep_encoded(set: &mut FileDescriptorSet) {
    for file in &mut set.file {
        let package = file.package().to_owned();
        for message in &mut file.message_type {
            let name = format!("{package}.{}", message.name());
            for field in &mut message.field {
                if ENCODED.contains(&(name.as_str(), field.name())) {
                    field.set_type(field_descriptor_proto::Type::Bytes);
                    field.type_name = None;
                }
            }
        }
    }
}

/// Encodes the files with their options, and with the comments of our own files.
fn descriptor_set(roots: &[PathBuf], compiler: &Compiler) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut set = Vec::new();
    for file in compiler.descriptor_pool().files() {
        if file.name().starts_with(OURS) {
            bytes::encode(1, &file.encode_to_vec(), &mut set);
        } else {
            let mut bare = Compiler::new(roots)?;
            set.extend(bare.open_file(file.name())?.encode_file_descriptor_set());
        }
    }
    Ok(set)
}

fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path
            .extension()
            .is_some_and(|extension| extension == "proto")
        {
            files.push(path);
        }
    }
    Ok(())
}
