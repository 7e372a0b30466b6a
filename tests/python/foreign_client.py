"""Follows a run the way any gRPC client in any language would.

Usage: foreign_client.py ADDRESS (--model-text TEXT | --user-message TEXT | --text-file FILE)
           [--profile ID] [--request-id ID] [--break-after N] [--timeout SECONDS]

It knows the address and the names of the service and its methods; everything else it learns from
server reflection. It starts a run by `InvokeText`, follows it, breaks the connection after N
events (never, where N is 0), opens a new one, and continues by `WatchRun` behind the last sequence
it has. Afterwards it reads the whole run again from the beginning.

It prints one JSON object per line: every event as it arrives (`{"event": ..}`), the other records of
the watch, `{"broken_after": SEQUENCE}` where it broke the connection, and at the end
`{"summary": {run_id, events, last_sequence, resumed, state, result_json}}`.

It ends with 1 and says why on standard error if a sequence is missing, repeated or out of order, if
an event differs between the first and the second reading, or if no terminal record arrives.
"""

import argparse
import sys

import grpc

from reflected import Server, plain, print_line

SERVICE = "tavern.gateway.v1.GatewayService"
RUN_SERVICE = "tavern.run.v1.RunService"

# A server that goes away says so by a drain record; the run continues, and so does the client.
MOST_DRAINS = 10


class Broken(Exception):
    """What the server did against the contract."""


class Follower:
    """Collects the events of one run and holds them against the watch convention."""

    def __init__(self):
        self.run_id = ""
        self.events = []
        self.terminal = None

    @property
    def last_sequence(self):
        return self.events[-1]["sequence"] if self.events else 0

    def take(self, response):
        """Takes one response of InvokeText or WatchRun; returns what kind of record it held."""
        message = plain(response)
        self.run_id = self.run_id or message.get("run_id", "")
        record = message.get("record", {})
        print_line(record)
        if "event" in record:
            self._take_event(record["event"])
            return "event"
        if "gap" in record:
            raise Broken(f"a gap was reported in a run that was never compacted: {record['gap']}")
        if "heartbeat" in record:
            high_water = int(record["heartbeat"].get("high_water_sequence", 0))
            if high_water < self.last_sequence:
                raise Broken(f"the high-water mark {high_water} is below the event {self.last_sequence}")
            return "heartbeat"
        if "terminal" in record:
            self.terminal = record["terminal"]["run"]
            return "terminal"
        return "drain" if "drain" in record else "nothing"

    def _take_event(self, event):
        sequence = int(event.get("sequence", 0))
        if sequence != self.last_sequence + 1:
            raise Broken(f"event {sequence} follows event {self.last_sequence}")
        self.events.append({**event, "sequence": sequence})


def follow(call, follower, break_after=0):
    """Follows a stream and returns why it stopped: terminal, drain, break or end."""
    try:
        for response in call:
            kind = follower.take(response)
            if kind in ("terminal", "drain"):
                return kind
            if kind == "event" and break_after and len(follower.events) >= break_after:
                return "break"
    finally:
        call.cancel()
    return "end"


def resume(address, follower, timeout):
    """Opens a new connection and continues behind the last event, again after every drain."""
    for _ in range(MOST_DRAINS):
        server = Server(address)
        try:
            watch = server.method(RUN_SERVICE, "WatchRun")
            request = {"run_id": follower.run_id, "after_sequence": follower.last_sequence}
            if follow(watch(request, timeout=timeout), follower) != "drain":
                return
        finally:
            server.close()


def invoke_request(arguments):
    """Builds the request of InvokeText."""
    model_text = arguments.model_text
    if arguments.text_file is not None:
        with open(arguments.text_file, encoding="utf-8", newline="") as file:
            model_text = file.read()
    if arguments.profile:
        agent = {"profile_id": arguments.profile}
        if arguments.user_message is not None:
            agent["user_message"] = arguments.user_message
        else:
            agent["model_text"] = model_text
        request = {"agent": agent}
    else:
        request = {"calls": {"text": model_text}}
    if arguments.request_id:
        request["request_id"] = arguments.request_id
    return request


def run(arguments):
    """Follows one run with a break in between, then reads it a second time."""
    follower = Follower()
    server = Server(arguments.address)
    try:
        if SERVICE not in server.services():
            raise Broken(f"reflection does not name {SERVICE}")
        invoke = server.method(SERVICE, "InvokeText")
        call = invoke(invoke_request(arguments), timeout=arguments.timeout)
        stopped = follow(call, follower, arguments.break_after)
    finally:
        server.close()
    if not follower.run_id:
        raise Broken("no response named the run")
    if stopped in ("break", "drain"):
        print_line({"broken_after": follower.last_sequence})
        resume(arguments.address, follower, arguments.timeout)
    elif arguments.break_after:
        raise Broken(f"the run ended before its event {arguments.break_after}; break earlier")
    if follower.terminal is None:
        raise Broken("the stream ended without a terminal record")

    again = Follower()
    again.run_id = follower.run_id
    resume(arguments.address, again, arguments.timeout)
    if again.events != follower.events:
        raise Broken("the run read a second time differs from the run as it was followed")
    if again.terminal != follower.terminal:
        raise Broken("the terminal record read a second time differs from the first")

    outcome = follower.terminal.get("outcome", {})
    print_line(
        {
            "summary": {
                "run_id": follower.run_id,
                "events": len(follower.events),
                "last_sequence": follower.last_sequence,
                "resumed": stopped in ("break", "drain"),
                "state": follower.terminal.get("state", ""),
                "result_json": outcome.get("result_json", ""),
            }
        }
    )


def main():
    parser = argparse.ArgumentParser(description="Follows a run over gRPC with server reflection only.")
    parser.add_argument("address", help="the gateway, as HOST:PORT or https://HOST:PORT")
    text = parser.add_mutually_exclusive_group(required=True)
    text.add_argument("--model-text", help="what a model wrote")
    text.add_argument("--text-file", help="a file with what a model wrote")
    text.add_argument("--user-message", help="what a user says to the agent of --profile")
    parser.add_argument("--profile", help="the agent that gets the text")
    parser.add_argument("--request-id", default="", help="name of the request, for a repeated start")
    parser.add_argument("--break-after", type=int, default=0, help="events after which to break the connection")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds that each call may take")
    arguments = parser.parse_args()
    if arguments.user_message is not None and not arguments.profile:
        parser.error("--user-message needs the agent of --profile")
    try:
        run(arguments)
    except Broken as broken:
        sys.exit(f"foreign client: {broken}")
    except grpc.RpcError as error:
        sys.exit(f"foreign client: {error.code().name}: {error.details()}")


if __name__ == "__main__":
    main()
