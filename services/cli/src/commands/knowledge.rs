//! `tavern knowledge`: knowledge bases and their entries.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Subcommand};
use contracts::tavern::agent::v1::knowledge_service_client::KnowledgeServiceClient;
use contracts::tavern::agent::v1::{
    DeleteKnowledgeBaseRequest, DeleteKnowledgeEntryRequest, FoundEntry, KnowledgeBase,
    KnowledgeEntry, ListKnowledgeBasesRequest, ListKnowledgeEntriesRequest,
    PutKnowledgeBaseRequest, QueryKnowledgeRequest, WriteKnowledgeEntryRequest,
};

use super::{Remote, documents, json, list, print, refusal};

/// The commands about knowledge bases.
#[derive(Subcommand)]
pub enum Command {
    /// List knowledge bases by id.
    List,
    /// Store a file as a knowledge base, in place of the knowledge base with the same id.
    Put {
        /// A knowledge file.
        file: PathBuf,
    },
    /// Delete a knowledge base with every entry, or one entry of it.
    Delete {
        /// The id of the knowledge base.
        kb_id: String,
        /// The id of an entry.
        entry_id: Option<String>,
    },
    /// List the entries of a knowledge base by id, including hidden ones.
    Entries {
        /// The id of the knowledge base.
        kb_id: String,
    },
    /// Find entries by words, the best match first.
    Find {
        /// The id of the knowledge base.
        kb_id: String,
        /// The words.
        query: String,
    },
    /// Write an entry that agents find, new or in place of another, such as a suggestion of an
    /// agent.
    Write(Write),
}

/// An entry to write.
#[derive(Args)]
pub struct Write {
    /// The id of the knowledge base.
    kb_id: String,
    /// The text.
    text: String,
    /// The id of the entry. Default: a new one.
    #[arg(long)]
    id: Option<String>,
    /// The kind of the entry, such as `lore_detail`.
    #[arg(long)]
    entry_type: Option<String>,
    /// The title.
    #[arg(long)]
    name: Option<String>,
    /// A search keyword; may be given several times.
    #[arg(long)]
    tag: Vec<String>,
    /// The request id; the same id writes once.
    #[arg(long)]
    request_id: Option<String>,
}

type Knowledge = KnowledgeServiceClient<grpc_kit::Outbound>;

const ENTRY_HEAD: [&str; 5] = ["ENTRY", "NAME", "FOUND", "AUTHOR", "TEXT"];

impl Command {
    pub(super) async fn execute(self, remote: &Remote) -> anyhow::Result<ExitCode> {
        let mut knowledge = Knowledge::new(remote.connect()?);
        let refused = |status: tonic::Status| refusal(&status);
        match self {
            Self::List => list(&mut knowledge, remote.json).await?,
            Self::Put { file } => {
                let request = PutKnowledgeBaseRequest {
                    knowledge_json: documents::read(&file)?,
                    ..PutKnowledgeBaseRequest::default()
                };
                let stored = knowledge.put_knowledge_base(request).await;
                let stored = stored.map_err(refused)?.into_inner();
                let base = stored.knowledge_base.context("the answer has none")?;
                match remote.json {
                    true => json::print_line(&base)?,
                    false => print(&format!("{}\n", base.kb_id)),
                }
            }
            Self::Delete {
                kb_id,
                entry_id: None,
            } => {
                let request = DeleteKnowledgeBaseRequest {
                    kb_id,
                    etag: String::new(),
                };
                let deleted = knowledge.delete_knowledge_base(request).await;
                deleted.map_err(refused)?;
            }
            Self::Delete {
                kb_id,
                entry_id: Some(caiu_id),
            } => {
                let request = DeleteKnowledgeEntryRequest { kb_id, caiu_id };
                let deleted = knowledge.delete_knowledge_entry(request).await;
                deleted.map_err(refused)?;
            }
            Self::Entries { kb_id } => entries(&mut knowledge, kb_id, remote.json).await?,
            Self::Find { kb_id, query } => {
                let request = QueryKnowledgeRequest {
                    kb: kb_id,
                    query,
                    ..QueryKnowledgeRequest::default()
                };
                let row = |found: &FoundEntry| row(&found.entry.clone().unwrap_or_default());
                list::print_all(remote.json, ENTRY_HEAD, row, async |_| {
                    let found = knowledge.query_knowledge(request.clone()).await?;
                    Ok((found.into_inner().entries, String::new()))
                })
                .await?;
            }
            Self::Write(write) => {
                let written = knowledge.write_knowledge_entry(write.request()).await;
                let written = written.map_err(refused)?.into_inner();
                match remote.json {
                    true => json::print_line(&written)?,
                    false => print(&format!("{}\n", written.caiu_id)),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Write {
    fn request(self) -> WriteKnowledgeEntryRequest {
        WriteKnowledgeEntryRequest {
            conversation_id: String::new(),
            request_id: self.request_id.unwrap_or_default(),
            kb: self.kb_id,
            caiu_id: self.id.unwrap_or_default(),
            text: self.text,
            entry_type: self.entry_type.unwrap_or_default(),
            display_name: self.name.unwrap_or_default(),
            tags: self.tag,
        }
    }
}

async fn list(knowledge: &mut Knowledge, as_json: bool) -> anyhow::Result<()> {
    let row = |base: &KnowledgeBase| {
        [
            base.kb_id.clone(),
            base.name.clone(),
            documents::source(base.from_file, base.shared),
            base.entry_count.to_string(),
            base.description.replace('\n', " "),
        ]
    };
    let head = ["KNOWLEDGE BASE", "NAME", "SOURCE", "ENTRIES", "DESCRIPTION"];
    documents::print_all(as_json, head, row, async |page_token| {
        let request = ListKnowledgeBasesRequest {
            page_token,
            ..ListKnowledgeBasesRequest::default()
        };
        let page = knowledge.list_knowledge_bases(request).await?.into_inner();
        Ok((page.knowledge_bases, page.diagnostics, page.next_page_token))
    })
    .await
}

async fn entries(knowledge: &mut Knowledge, kb_id: String, as_json: bool) -> anyhow::Result<()> {
    list::print_all(as_json, ENTRY_HEAD, row, async |page_token| {
        let request = ListKnowledgeEntriesRequest {
            kb_id: kb_id.clone(),
            page_token,
            ..ListKnowledgeEntriesRequest::default()
        };
        let page = knowledge
            .list_knowledge_entries(request)
            .await?
            .into_inner();
        Ok((page.entries, page.next_page_token))
    })
    .await
}

fn row(entry: &KnowledgeEntry) -> [String; 5] {
    let is_found = if entry.is_enabled { "yes" } else { "no" };
    [
        entry.caiu_id.clone(),
        entry.display_name.clone(),
        is_found.to_owned(),
        entry.author_profile_id.clone(),
        entry.text.replace('\n', " "),
    ]
}
