"""A gRPC backend that remembers every call it was given, for proving that no effect runs twice.

Usage: ledger_backend.py --out FILE [--listen 127.0.0.1:0] [--certificate FILE --key FILE]

With a certificate and its key it speaks TLS. Prints `listening HOST:PORT` once it accepts calls and runs until SIGTERM or SIGINT. It offers the
service `tavern.test.v1.Ledger`, defined at run time, and explains it by server reflection:

* Append(key, note, delay_ms) appends a line to FILE, makes it durable, waits, and answers with
  `index` (lines before this one), `effect_id` and `appended`. The line stands before the wait, so
  that a caller who dies while waiting has caused the effect without having seen the answer.
* Read(key) answers with the lines of that key, or with all of them where the key is empty.

A line is a JSON object: index, key, note, effect_id (the `tavern-effect-id` of the call's metadata,
empty if it has none), traceparent and time_ns.
"""

import argparse
import json
import os
import signal
import threading
import time
from concurrent import futures

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection

PACKAGE = "tavern.test.v1"
SERVICE = f"{PACKAGE}.Ledger"
LONGEST_DELAY_MS = 60_000

STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
INT64 = descriptor_pb2.FieldDescriptorProto.TYPE_INT64
UINT32 = descriptor_pb2.FieldDescriptorProto.TYPE_UINT32
BOOL = descriptor_pb2.FieldDescriptorProto.TYPE_BOOL

ENTRY = [("index", INT64), ("key", STRING), ("note", STRING), ("effect_id", STRING), ("traceparent", STRING)]


def define():
    """Adds the service's file to the default pool, as an import of generated code would."""
    file = descriptor_pb2.FileDescriptorProto(name="tavern/test/v1/ledger.proto", package=PACKAGE, syntax="proto3")

    def message(name, fields):
        proto = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, start=1):
            proto.field.add(
                name=field,
                number=number,
                type=kind,
                label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            )
        return proto

    message("AppendRequest", [("key", STRING), ("note", STRING), ("delay_ms", UINT32)])
    message("AppendResponse", [("index", INT64), ("effect_id", STRING), ("appended", BOOL)])
    message("Entry", ENTRY)
    message("ReadRequest", [("key", STRING)])
    entries = message("ReadResponse", [])
    entries.field.add(
        name="entries",
        number=1,
        type=descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{PACKAGE}.Entry",
        label=descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED,
    )
    service = file.service.add(name="Ledger")
    for name in ("Append", "Read"):
        service.method.add(name=name, input_type=f".{PACKAGE}.{name}Request", output_type=f".{PACKAGE}.{name}Response")
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    names = ("AppendRequest", "AppendResponse", "Entry", "ReadRequest", "ReadResponse")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in names}


class Ledger:
    """The durable list of calls."""

    def __init__(self, path, messages):
        self._messages = messages
        self._lock = threading.Lock()
        self._file = open(path, "a+", encoding="utf-8")
        self._file.seek(0)
        self._entries = [json.loads(line) for line in self._file if line.endswith("\n")]

    def append(self, request, context):
        """Handles Append."""
        if request.delay_ms > LONGEST_DELAY_MS:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"delay_ms is above {LONGEST_DELAY_MS}; ask for less")
        metadata = dict(context.invocation_metadata())
        entry = {
            "key": request.key,
            "note": request.note,
            "effect_id": metadata.get("tavern-effect-id", ""),
            "traceparent": metadata.get("traceparent", ""),
            "time_ns": time.time_ns(),
        }
        with self._lock:
            entry = {"index": len(self._entries), **entry}
            self._file.write(json.dumps(entry, ensure_ascii=False) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
            self._entries.append(entry)
        # A cancelled call is not waited for: the line stands, the answer would be lost.
        gone = threading.Event()
        if context.add_callback(gone.set):
            gone.wait(request.delay_ms / 1_000)
        return self._messages["AppendResponse"](index=entry["index"], effect_id=entry["effect_id"], appended=True)

    def read(self, request, context):
        """Handles Read."""
        with self._lock:
            wanted = [entry for entry in self._entries if request.key in ("", entry["key"])]
        names = [name for name, _ in ENTRY]
        entry_class = self._messages["Entry"]
        entries = [entry_class(**{name: entry[name] for name in names}) for entry in wanted]
        return self._messages["ReadResponse"](entries=entries)


def add_port(server, arguments):
    """Opens the port, with TLS where a certificate is given, and returns its number."""
    if not arguments.certificate:
        return server.add_insecure_port(arguments.listen)
    with open(arguments.certificate, "rb") as certificate, open(arguments.key, "rb") as key:
        pair = (key.read(), certificate.read())
    return server.add_secure_port(arguments.listen, grpc.ssl_server_credentials([pair]))


def main():
    parser = argparse.ArgumentParser(description="Remembers every call it was given.")
    parser.add_argument("--out", required=True, help="file that the lines are appended to")
    parser.add_argument("--listen", default="127.0.0.1:0", help="address; port 0 takes a free one")
    parser.add_argument("--certificate", help="file with the certificate of the server")
    parser.add_argument("--key", help="file with the key of the certificate")
    arguments = parser.parse_args()

    messages = define()
    ledger = Ledger(arguments.out, messages)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            handler,
            request_deserializer=messages[f"{name}Request"].FromString,
            response_serializer=messages[f"{name}Response"].SerializeToString,
        )
        for name, handler in (("Append", ledger.append), ("Read", ledger.read))
    }
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
    reflection.enable_server_reflection([SERVICE, reflection.SERVICE_NAME], server)
    port = add_port(server, arguments)
    server.start()
    print(f"listening {arguments.listen.rsplit(':', 1)[0]}:{port}", flush=True)

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    ended.wait()
    server.stop(grace=1).wait()


if __name__ == "__main__":
    main()
