"""A knowledge base over SQLite in the place of Tavern's own: `tavern.plugin.v1.KnowledgeBaseService`.

Usage: server.py --database FILE [--listen 127.0.0.1:50061]

Make the stubs first, see docs/guide.md. Prints `listening HOST:PORT` and runs until SIGTERM.
"""

import argparse
import hashlib
import re
import signal
import sqlite3
import threading
import uuid
from concurrent import futures

import grpc
from grpc_reflection.v1alpha import reflection

from tavern.agent.v1 import knowledge_service_pb2 as agent
from tavern.plugin.v1 import knowledge_base_pb2 as wire
from tavern.plugin.v1 import knowledge_base_pb2_grpc as services

# Entries are stored as encoded messages; their words are indexed beside them.
SCHEMA = """
CREATE TABLE IF NOT EXISTS base (tenant TEXT, kb TEXT, message BLOB NOT NULL, PRIMARY KEY (tenant, kb));
CREATE TABLE IF NOT EXISTS entry (id INTEGER PRIMARY KEY, tenant TEXT, kb TEXT, caiu TEXT, enabled INTEGER,
    from_document INTEGER, message BLOB NOT NULL, UNIQUE (tenant, kb, caiu));
CREATE VIRTUAL TABLE IF NOT EXISTS word USING fts5 (words, tokenize='porter unicode61');
CREATE TABLE IF NOT EXISTS request (tenant TEXT, kb TEXT, name TEXT, digest TEXT, answer BLOB NOT NULL,
    PRIMARY KEY (tenant, kb, name));
"""
MAX_ENTRIES = 10_000
# A character of Chinese, Japanese or Korean is a word of its own.
WORDS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")
IS_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def terms(query):
    """Returns the FTS5 expression of a query: any of its words, and of CJK two characters at a time."""
    words = WORDS.findall(query)
    found = [word for word in words if not IS_CJK.match(word)]
    cjk = [run for run in re.findall(IS_CJK.pattern + "+", query)]
    for run in cjk:
        found += [" ".join(run[at : at + 2]) for at in range(max(1, len(run) - 1))]
    return " OR ".join('"' + term.replace('"', "") + '"' for term in found[:64])


class KnowledgeBase(services.KnowledgeBaseServiceServicer):
    """Keeps the knowledge bases of all tenants in one file."""

    def __init__(self, path):
        self.lock = threading.Lock()
        self.db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;" + SCHEMA)

    def base(self, tenant, kb, context):
        """Returns a knowledge base, or refuses."""
        row = self.db.execute("SELECT message FROM base WHERE tenant = ? AND kb = ?", (tenant, kb)).fetchone()
        if row is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no knowledge base is called {kb}")
        return agent.KnowledgeBase.FromString(row[0])

    def entry(self, tenant, kb, caiu):
        """Returns an entry with its row; none if there is none."""
        row = self.db.execute(
            "SELECT id, message FROM entry WHERE tenant = ? AND kb = ? AND caiu = ?", (tenant, kb, caiu)
        ).fetchone()
        return (row[0], agent.KnowledgeEntry.FromString(row[1])) if row else None

    def count(self, tenant, kb):
        return self.db.execute("SELECT count(*) FROM entry WHERE tenant = ? AND kb = ?", (tenant, kb)).fetchone()[0]

    def remove(self, row):
        self.db.execute("DELETE FROM word WHERE rowid = ?", (row,))
        self.db.execute("DELETE FROM entry WHERE id = ?", (row,))

    def store(self, tenant, entry, from_document):
        """Stores an entry in the place of an earlier one, under the next version."""
        before = self.entry(tenant, entry.kb_id, entry.caiu_id)
        entry.version = before[1].version + 1 if before else 1
        entry.update_time.GetCurrentTime()
        if before:
            self.remove(before[0])
        named = (tenant, entry.kb_id, entry.caiu_id, entry.is_enabled, from_document)
        row = self.db.execute(
            "INSERT INTO entry (tenant, kb, caiu, enabled, from_document, message) VALUES (?, ?, ?, ?, ?, ?)",
            (*named, entry.SerializeToString()),
        )
        text = " ".join([entry.display_name, entry.text, *entry.tags])
        words = " ".join(WORDS.findall(text))
        self.db.execute("INSERT INTO word (rowid, words) VALUES (?, ?)", (row.lastrowid, words))

    def ListBases(self, request, context):
        rows = self.db.execute(
            "SELECT message FROM base WHERE tenant = ? AND kb > ? ORDER BY kb LIMIT ?",
            (tenant_of(context), request.after, request.limit),
        ).fetchall()
        bases = [agent.KnowledgeBase.FromString(message) for (message,) in rows]
        for base in bases:
            base.entry_count = self.count(tenant_of(context), base.kb_id)
        return wire.ListBasesResponse(bases=bases)

    def PutBase(self, request, context):
        tenant, base = tenant_of(context), request.base
        present = self.db.execute("SELECT message FROM base WHERE tenant = ? AND kb = ?", (tenant, base.kb_id)).fetchone()
        etag = agent.KnowledgeBase.FromString(present[0]).etag if present else ""
        if request.expected_etag and request.expected_etag != etag:
            context.abort(grpc.StatusCode.ABORTED, "the etag is not the current one")
        base.entry_count = len(request.entries)
        if not request.validate_only:
            self.db.execute("INSERT OR REPLACE INTO base VALUES (?, ?, ?)", (tenant, base.kb_id, base.SerializeToString()))
            new = {entry.caiu_id for entry in request.entries}
            old = self.db.execute(
                "SELECT id, caiu FROM entry WHERE tenant = ? AND kb = ? AND from_document", (tenant, base.kb_id)
            ).fetchall()
            for row, caiu in old:
                if caiu not in new:
                    self.remove(row)
            for entry in request.entries:
                entry.kb_id = base.kb_id
                self.store(tenant, entry, True)
            base.entry_count = self.count(tenant, base.kb_id)
        return wire.PutBaseResponse(base=base)

    def DeleteBase(self, request, context):
        tenant, kb = tenant_of(context), request.kb_id
        base = self.base(tenant, kb, context)
        if request.expected_etag and request.expected_etag != base.etag:
            context.abort(grpc.StatusCode.ABORTED, "the etag is not the current one")
        for (row,) in self.db.execute("SELECT id FROM entry WHERE tenant = ? AND kb = ?", (tenant, kb)).fetchall():
            self.remove(row)
        self.db.execute("DELETE FROM request WHERE tenant = ? AND kb = ?", (tenant, kb))
        self.db.execute("DELETE FROM base WHERE tenant = ? AND kb = ?", (tenant, kb))
        return wire.DeleteBaseResponse()

    def ListEntries(self, request, context):
        tenant = tenant_of(context)
        self.base(tenant, request.kb_id, context)
        rows = self.db.execute(
            "SELECT message FROM entry WHERE tenant = ? AND kb = ? AND caiu > ? ORDER BY caiu LIMIT ?",
            (tenant, request.kb_id, request.after, request.limit),
        )
        return wire.ListEntriesResponse(entries=[agent.KnowledgeEntry.FromString(message) for (message,) in rows])

    def GetEntry(self, request, context):
        found = self.entry(tenant_of(context), request.kb_id, request.caiu_id)
        if found is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no entry is called {request.caiu_id}")
        return wire.GetEntryResponse(entry=found[1])

    def FindEntries(self, request, context):
        tenant, expression = tenant_of(context), terms(request.query)
        marks = ", ".join("?" * len(request.kb_ids))
        rows = self.db.execute(
            "SELECT message FROM word JOIN entry ON entry.id = word.rowid WHERE word MATCH ? AND tenant = ? AND enabled"
            f" AND kb IN ({marks}) ORDER BY rank, caiu LIMIT ?",
            (expression, tenant, *request.kb_ids, request.limit),
        ).fetchall() if expression else []
        return wire.FindEntriesResponse(entries=[agent.KnowledgeEntry.FromString(message) for (message,) in rows])

    def WriteEntry(self, request, context):
        tenant, entry = tenant_of(context), request.entry
        kb, digest = entry.kb_id, hashlib.sha256(entry.SerializeToString(deterministic=True)).hexdigest()
        self.base(tenant, kb, context)
        seen = self.db.execute(
            "SELECT digest, answer FROM request WHERE tenant = ? AND kb = ? AND name = ?", (tenant, kb, request.request_id)
        ).fetchone()
        if seen and seen[0] != digest:
            context.abort(grpc.StatusCode.ALREADY_EXISTS, "the request id was used with another entry")
        if seen:
            answer = wire.WriteEntryResponse.FromString(seen[1])
            answer.replayed = True
            return answer
        entry.caiu_id = entry.caiu_id or f"caiu_{uuid.uuid4().hex}"
        if self.entry(tenant, kb, entry.caiu_id) is None and self.count(tenant, kb) >= MAX_ENTRIES:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{kb} has {MAX_ENTRIES} entries, which is the most")
        self.store(tenant, entry, False)
        answer = wire.WriteEntryResponse(caiu_id=entry.caiu_id, version=entry.version)
        if request.request_id:
            self.db.execute(
                "INSERT INTO request VALUES (?, ?, ?, ?, ?)",
                (tenant, kb, request.request_id, digest, answer.SerializeToString()),
            )
        return answer

    def DeleteEntry(self, request, context):
        found = self.entry(tenant_of(context), request.kb_id, request.caiu_id)
        if found is None:
            context.abort(grpc.StatusCode.NOT_FOUND, f"no entry is called {request.caiu_id}")
        self.remove(found[0])
        return wire.DeleteEntryResponse()


def tenant_of(context):
    """Returns the tenant of a call; the default one is not named."""
    return dict(context.invocation_metadata()).get("tavern-tenant", "default")


class OneTransaction(grpc.ServerInterceptor):
    """Carries each method out alone, and whole or not at all."""

    def __init__(self, knowledge):
        self.knowledge = knowledge

    def intercept_service(self, continuation, details):
        handler = continuation(details)
        if handler is None or not handler.unary_unary:
            return handler

        def whole(request, context):
            with self.knowledge.lock:
                self.knowledge.db.execute("BEGIN IMMEDIATE")
                try:
                    answer = handler.unary_unary(request, context)
                    self.knowledge.db.execute("COMMIT")
                    return answer
                except BaseException:
                    if self.knowledge.db.in_transaction:
                        self.knowledge.db.execute("ROLLBACK")
                    raise

        return grpc.unary_unary_rpc_method_handler(whole, handler.request_deserializer, handler.response_serializer)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", required=True)
    parser.add_argument("--listen", default="127.0.0.1:50061")
    options = parser.parse_args()
    knowledge = KnowledgeBase(options.database)
    server = grpc.server(futures.ThreadPoolExecutor(8), interceptors=[OneTransaction(knowledge)])
    services.add_KnowledgeBaseServiceServicer_to_server(knowledge, server)
    name = wire.DESCRIPTOR.services_by_name["KnowledgeBaseService"].full_name
    reflection.enable_server_reflection((name, reflection.SERVICE_NAME), server)
    port = server.add_insecure_port(options.listen)
    server.start()
    print(f"listening {options.listen.rsplit(':', 1)[0]}:{port}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: server.stop(1))
    server.wait_for_termination()


if __name__ == "__main__":
    main()
