"""Receives OTLP over gRPC and writes what arrives as JSON lines.

Usage: otlp_receiver.py --out FILE [--listen 127.0.0.1:0]

Prints `listening HOST:PORT` once it accepts calls, and runs until it has to end (SIGTERM,
SIGINT, or the end of its standard input with --until-eof). Every line of FILE is one object with
a `kind`:

* span: trace_id, span_id, parent_span_id (hex; empty for a root), name, span_kind, service, scope,
  attributes, events, links, status (unset, ok, error), status_message, start_ns, end_ns
* metric: name, unit, type, service, points (attributes with value, or with count and sum)
* log: trace_id, span_id, severity, body, service, attributes

A line is flushed before the sender gets its answer, so that a test that has seen an export succeed can
read its spans.
"""

import argparse
import json
import signal
import sys
import threading
from concurrent import futures

import grpc
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2_grpc as logs_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2_grpc as metrics_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc as traces_grpc

SPAN_KINDS = ["unspecified", "internal", "server", "client", "producer", "consumer"]
STATUSES = ["unset", "ok", "error"]


def plain(value):
    """Turns an AnyValue into what JSON can hold; bytes become hex."""
    which = value.WhichOneof("value")
    if which is None:
        return None
    inner = getattr(value, which)
    if which == "array_value":
        return [plain(item) for item in inner.values]
    if which == "kvlist_value":
        return attributes(inner.values)
    if which == "bytes_value":
        return inner.hex()
    return inner


def attributes(pairs):
    """Turns key-value pairs into an object."""
    return {pair.key: plain(pair.value) for pair in pairs}


def service_of(resource):
    """Returns the service name of a resource."""
    return attributes(resource.attributes).get("service.name", "")


class Journal:
    """The file that lines go to, one writer at a time."""

    def __init__(self, path):
        self._file = open(path, "a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, records):
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        with self._lock:
            self._file.write(text)
            self._file.flush()


def span_record(span, service, scope):
    """Describes one span."""
    return {
        "kind": "span",
        "trace_id": span.trace_id.hex(),
        "span_id": span.span_id.hex(),
        "parent_span_id": span.parent_span_id.hex(),
        "name": span.name,
        "span_kind": SPAN_KINDS[span.kind] if span.kind < len(SPAN_KINDS) else str(span.kind),
        "service": service,
        "scope": scope,
        "attributes": attributes(span.attributes),
        "events": [{"name": event.name, "attributes": attributes(event.attributes)} for event in span.events],
        "links": [{"trace_id": link.trace_id.hex(), "span_id": link.span_id.hex()} for link in span.links],
        "status": STATUSES[span.status.code] if span.status.code < len(STATUSES) else str(span.status.code),
        "status_message": span.status.message,
        "start_ns": span.start_time_unix_nano,
        "end_ns": span.end_time_unix_nano,
    }


class TraceService(traces_grpc.TraceServiceServicer):
    """Takes spans."""

    def __init__(self, journal):
        self._journal = journal

    def Export(self, request, context):
        self._journal.write(
            span_record(span, service_of(resource.resource), scope.scope.name)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        )
        return traces.ExportTraceServiceResponse()


def point_record(point):
    """Describes one data point of a number or of a histogram."""
    record = {"attributes": attributes(point.attributes)}
    if "value" in point.DESCRIPTOR.oneofs_by_name:
        record["value"] = getattr(point, point.WhichOneof("value") or "as_int")
    else:
        record.update(count=point.count, sum=point.sum)
    return record


class MetricsService(metrics_grpc.MetricsServiceServicer):
    """Takes metrics."""

    def __init__(self, journal):
        self._journal = journal

    def Export(self, request, context):
        records = []
        for resource in request.resource_metrics:
            service = service_of(resource.resource)
            for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                data = metric.WhichOneof("data")
                points = getattr(metric, data).data_points if data else []
                records.append(
                    {
                        "kind": "metric",
                        "name": metric.name,
                        "unit": metric.unit,
                        "type": data or "",
                        "service": service,
                        "points": [point_record(point) for point in points],
                    }
                )
        self._journal.write(records)
        return metrics.ExportMetricsServiceResponse()


class LogsService(logs_grpc.LogsServiceServicer):
    """Takes log records."""

    def __init__(self, journal):
        self._journal = journal

    def Export(self, request, context):
        self._journal.write(
            {
                "kind": "log",
                "trace_id": record.trace_id.hex(),
                "span_id": record.span_id.hex(),
                "severity": record.severity_text,
                "body": plain(record.body),
                "service": service_of(resource.resource),
                "attributes": attributes(record.attributes),
            }
            for resource in request.resource_logs
            for scope in resource.scope_logs
            for record in scope.log_records
        )
        return logs.ExportLogsServiceResponse()


def main():
    parser = argparse.ArgumentParser(description="Receives OTLP over gRPC and writes JSON lines.")
    parser.add_argument("--out", required=True, help="file that the lines are appended to")
    parser.add_argument("--listen", default="127.0.0.1:0", help="address; port 0 takes a free one")
    parser.add_argument("--until-eof", action="store_true", help="end with the standard input")
    arguments = parser.parse_args()

    journal = Journal(arguments.out)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=[("grpc.so_reuseport", 0)])
    traces_grpc.add_TraceServiceServicer_to_server(TraceService(journal), server)
    metrics_grpc.add_MetricsServiceServicer_to_server(MetricsService(journal), server)
    logs_grpc.add_LogsServiceServicer_to_server(LogsService(journal), server)
    port = server.add_insecure_port(arguments.listen)
    server.start()
    print(f"listening {arguments.listen.rsplit(':', 1)[0]}:{port}", flush=True)

    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    if arguments.until_eof:
        threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    ended.wait()
    server.stop(grace=1).wait()


if __name__ == "__main__":
    main()
