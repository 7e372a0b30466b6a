"""Clients of the gateway's edges that share no code with Tavern.

    edge_clients.py ADDRESS openai|closing|session|people|cuts|tickets|page
    edge_clients.py ADDRESS ask AGENT MESSAGE

ADDRESS is `http://HOST:PORT` or `https://HOST:PORT`; SSL_CERT_FILE names the certificates that an https
server may have. TAVERN_KEY_FILE names the file of the key that every client sends. Each part ends with exit code 0 if everything was as it should be.
"""

import argparse
import asyncio
import collections
import http.client
import http.cookiejar
import itertools
import json
import os
import random
import ssl
import struct
import time
import urllib.error
import urllib.parse
import urllib.request

import websockets.asyncio.client
import websockets.exceptions

AGENT = "weather_guide"


def read_key():
    """Returns the key of the clients; empty if the server needs none."""
    if not (file := os.environ.get("TAVERN_KEY_FILE")):
        return ""
    with open(file, encoding="ascii") as opened:
        return opened.read().strip()


KEY = read_key()
AUTHORIZATION = {"authorization": f"Bearer {KEY}"} if KEY else {}
QUESTION = "What is the weather like, and who is player123?"


def connect(address):
    """Opens a connection by HTTP/1.1."""
    parts = urllib.parse.urlsplit(address)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.netloc, context=ssl.create_default_context())
    return http.client.HTTPConnection(parts.netloc)


class Socket:
    """A WebSocket that one thread uses: in a socket of TLS, two threads at once break older versions of Python."""

    def __init__(self, uri, **options):
        self._loop = asyncio.new_event_loop()
        try:
            self._socket = self._loop.run_until_complete(self._open(uri, options))
        except BaseException:
            self._loop.close()
            raise

    @staticmethod
    async def _open(uri, options):
        return await websockets.asyncio.client.connect(uri, **options)

    @property
    def close_code(self):
        return self._socket.close_code

    def send(self, frame):
        self._loop.run_until_complete(self._socket.send(frame))

    def recv(self, timeout=None):
        return self._loop.run_until_complete(asyncio.wait_for(self._socket.recv(), timeout))

    def __iter__(self):
        try:
            while True:
                yield self.recv()
        except websockets.exceptions.ConnectionClosedOK:
            return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._loop.run_until_complete(self._socket.close())
        self._loop.close()


def open_socket(address, path, additional_headers=AUTHORIZATION, **options):
    """Opens a WebSocket."""
    uri = f"{address.replace('http', 'ws', 1)}{path}"
    return Socket(uri, additional_headers=additional_headers, **options)


def chat_client(address):
    """Returns a client of the chat API."""
    # It takes a second to import, and most parts do without it.
    import openai

    return openai.OpenAI(base_url=f"{address}/v1", api_key=KEY or "none")


def post(address, method, request):
    """Calls a method by Connect and returns its answer."""
    connection = connect(address)
    headers = AUTHORIZATION | {"content-type": "application/json"}
    connection.request("POST", f"/{method}", json.dumps(request), headers)
    response = connection.getresponse()
    body = response.read()
    assert response.status == 200, body
    return json.loads(body)


def expect(error, call):
    """Returns the error that a call raises."""
    try:
        call()
    except error as raised:
        return raised
    raise AssertionError(f"no {error.__name__} was raised")


def use_openai(address):
    """A chat client gets an agent whose tools run."""
    import openai

    client = chat_client(address)
    assert AGENT in [model.id for model in client.models.list()]
    assert client.models.retrieve(AGENT).id == AGENT

    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello. <ACTION><system:get_current_time/></ACTION>"},
        {"role": "assistant", "content": "Hello!"},
    ]
    messages = [{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]
    whole = client.chat.completions.create(model=AGENT, messages=messages, temperature=0.5)
    choice = whole.choices[0]
    assert choice.finish_reason == "stop", whole
    assert choice.message.content and choice.message.tool_calls is None, whole
    assert "succeeded" in choice.message.reasoning_content, whole
    assert whole.created > 0 and whole.usage.total_tokens >= 0, whole

    options = {"include_usage": True}
    chunks = list(
        client.chat.completions.create(
            model=AGENT, messages=messages, stream=True, stream_options=options
        )
    )
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert choices[0].delta.role == "assistant", chunks[0]
    text = "".join(choice.delta.content or "" for choice in choices)
    # The stream has what the agent says on the way; the answer in one piece is the outcome.
    assert text.endswith(whole.choices[0].message.content), text
    assert choices[-1].finish_reason == "stop", chunks[-2:]
    assert not chunks[-1].choices and chunks[-1].usage is not None, chunks[-1]
    assert len({chunk.id for chunk in chunks}) == 1

    def ask(model=AGENT, messages=messages):
        return client.chat.completions.create(model=model, messages=messages)

    # The calls of a history are data.
    resent = ask(messages=history + messages).choices[0]
    assert resent.finish_reason == "stop", resent
    assert not hasattr(resent.message, "reasoning_content"), resent

    unknown = expect(openai.NotFoundError, lambda: ask(model="unknown"))
    assert (unknown.code, unknown.param) == ("model_not_found", "model"), unknown
    # An API that is not there is refused as this one refuses.
    missing = expect(openai.NotFoundError, lambda: client.embeddings.create(model=AGENT, input="x"))
    assert (missing.code, missing.type) == ("unknown_url", "invalid_request_error"), missing
    verb = expect(openai.APIStatusError, lambda: client.get("/chat/completions", cast_to=object))
    assert (verb.status_code, verb.code) == (405, "unknown_url"), verb
    expect(openai.BadRequestError, lambda: ask(messages=history))
    expect(openai.BadRequestError, lambda: ask(messages=[{"role": "tool", "content": "x"}]))

    # What would be dropped in silence is refused by name; what asks for nothing is not.
    for name, value in [
        ("n", 2),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("stop", "x"),
        ("top_p", 0.5),
        ("seed", 7),
        ("logprobs", True),
        ("temperature", 3),
    ]:
        refused = expect(
            openai.BadRequestError,
            lambda: client.chat.completions.create(model=AGENT, messages=messages, **{name: value}),
        )
        assert name in refused.param, (name, refused)
    neutral = {"n": 1, "tools": [], "response_format": {"type": "text"}, "top_p": 1, "logprobs": False}
    client.chat.completions.create(model=AGENT, messages=messages, max_tokens=200, **neutral)


def ask(address, agent, message):
    """Prints an agent's answer."""
    client = chat_client(address)
    messages = [{"role": "user", "content": message}]
    answer = client.chat.completions.create(model=agent, messages=messages)
    print(answer.choices[0].message.content)


def close_openai(address):
    """A chat client that closes its stream ends the turn, unless it can ask for it again."""
    client = chat_client(address)
    messages = [{"role": "user", "content": "How late is it?"}]
    for headers, state in [
        ({}, "RUN_STATE_CANCELLED"),
        ({"Idempotency-Key": "again"}, "RUN_STATE_SUCCEEDED"),
    ]:
        stream = client.chat.completions.create(
            model="early_bird", messages=messages, stream=True, extra_headers=headers
        )
        run_id = next(iter(stream)).id.removeprefix("chatcmpl-")
        stream.close()
        kind, end = list(by_connect(address, run_id, 0))[-1]
        assert kind == "terminal" and end["run"]["outcome"]["state"] == state, end


def use_session(address):
    """A chat page sends, follows and cancels over one socket."""
    with open_socket(address, "/v1/session") as socket:
        calls = {"text": "<ACTION><system:get_current_time/></ACTION>"}
        socket.send(json.dumps({"id": "a", "invokeText": {"calls": calls}}))
        frames = list(until_end(socket, "a"))
        records = [frame["message"]["record"] for frame in frames[:-1]]
        assert "terminal" in records[-1] and frames[-1]["end"] == {}, frames[-2:]
        run_id = frames[0]["message"]["runId"]
        sequences = [int(record["event"]["sequence"]) for record in records[:-1]]
        assert sequences == list(range(1, len(sequences) + 1)), sequences

        socket.send(json.dumps({"id": "b", "watchRun": {"runId": run_id, "afterSequence": "2"}}))
        again = [frame["message"]["record"] for frame in list(until_end(socket, "b"))[:-1]]
        assert again[:-1] == records[2:-1], again
        socket.send(json.dumps({"id": "c", "cancelRun": {"runId": run_id}}))
        cancelled = list(until_end(socket, "c"))
        assert cancelled[0]["message"]["run"]["runId"] == run_id, cancelled
        socket.send(json.dumps({"id": "d", "watchRun": {"runId": "turn_none"}}))
        assert next(until_end(socket, "d"))["end"]["error"]["code"] == "not_found"
        socket.send(json.dumps({"id": "e", "watchRun": {"runId": 5}}))
        assert next(until_end(socket, "e"))["end"]["error"]["code"] == "invalid_argument"
        refuse_frames(socket)

    with open_socket(address, f"/v1/runs/{run_id}/events?after_sequence=2") as socket:
        followed = [json.loads(frame) for frame in socket]
        assert followed == again, followed
        assert socket.close_code == 1000
    with open_socket(address, "/v1/runs/turn_none/events") as socket:
        assert json.loads(socket.recv())["end"]["error"]["code"] == "not_found"
        closed = expect(websockets.exceptions.ConnectionClosed, socket.recv)
        assert closed.rcvd.code == 1008, closed
    refused = {"additional_headers": AUTHORIZATION | {"Origin": "https://attacker.example"}}
    for path in ["/v1/session", f"/v1/runs/{run_id}/events"]:
        error = expect(
            websockets.exceptions.InvalidStatus,
            lambda path=path: open_socket(address, path, **refused),
        )
        assert error.response.status_code == 403, error


def refuse_frames(socket):
    """A frame that is no request ends neither the socket nor what is followed over it."""
    slow = "<ACTION><system:get_current_time/></ACTION>" * 40
    socket.send(json.dumps({"id": "open", "invokeText": {"calls": {"text": slow}}}))
    refused = [
        ("no request", None),
        (b'{"id": "f", "watchRun": {}}', None),
        ("[]", None),
        ("", None),
        ('{"id": "f"', None),
        ('{"watchRun": {}}', None),
        ('{"id": 7, "watchRun": {}}', None),
        (json.dumps({"id": "f" * 65, "watchRun": {}}), None),
        ('{"id": "f"}', "f"),
        ('{"id": "f", "watchRun": {}, "cancelRun": {}}', "f"),
        ('{"id": "f", "deleteRun": {}}', "f"),
        ('{"id": "f", "watchRun": {"runId": "turn_none"}, "authorization": 7}', "f"),
        ('{"id": "f", "watchRun": {"runId": "turn_none"}, "authorization": "a\\nb"}', "f"),
    ]
    for frame, _ in refused:
        socket.send(frame)
    open_ended, answers = False, []
    while not open_ended or len(answers) < len(refused):
        answer = json.loads(socket.recv())
        if answer.get("id") == "open":
            open_ended = "end" in answer
            assert not open_ended or answer["end"] == {}, answer
        else:
            assert answer["end"]["error"]["code"] == "invalid_argument", answer
            answers.append(answer.get("id"))
    assert answers == [request for _, request in refused], answers
    socket.send(json.dumps({"id": "later", "watchRun": {"runId": "turn_none"}}))
    assert next(until_end(socket, "later"))["end"]["error"]["code"] == "not_found"


def use_session_of_people(address):
    """A chat page answers a question, steers a turn and decides an approval over one socket."""
    key = f"Bearer {os.environ['TAVERN_APPROVER_KEY']}"
    with open_socket(address, "/v1/session") as socket:

        frames = collections.defaultdict(list)

        def receive(request):
            """Returns the next frame of a request; those of others are kept."""
            while not frames[request]:
                frame = json.loads(socket.recv(timeout=60))
                frames[frame["id"]].append(frame)
            return frames[request].pop(0)

        def begin(agent):
            target = {"profileId": agent, "userMessage": "Hello."}
            socket.send(json.dumps({"id": agent, "invokeText": {"agent": target}}))
            return receive(agent)["message"]["runId"]

        def ask(kind, request, **more):
            """Sends a request beside the turn that is open, and returns its answer and its end."""
            socket.send(json.dumps({"id": kind, kind: request, **more}))
            first = receive(kind)
            return (None, first["end"]) if "end" in first else (first["message"], receive(kind)["end"])

        def wait_for(method, field, request):
            """Returns the first item of a list once there is one, within a minute."""
            patience = time.monotonic() + 60
            while not (found := post(address, method, request).get(field)):
                assert time.monotonic() < patience, f"{method} lists nothing"
                time.sleep(0.05)
            return found[0]

        def end_of(agent):
            """Reads the turn to its end."""
            while "terminal" not in (frame := receive(agent))["message"]["record"]:
                pass
            assert receive(agent) == {"id": agent, "end": {}}
            return frame["message"]["record"]["terminal"]["run"]["outcome"]

        begin("herbalist")
        question = wait_for("tavern.run.v1.RunService/ListQuestions", "questions", {})
        answer = {"runId": question["runId"], "waitId": question["wait"]["waitId"], "answerJson": '"rue"'}
        _, end = ask("answerWait", answer)
        assert end["error"]["code"] == "invalid_argument", end
        answered, end = ask("answerWait", answer | {"answerJson": '"sage"'})
        assert answered is not None and end == {}, end
        assert end_of("herbalist")["state"] == "RUN_STATE_SUCCEEDED"

        run_id = begin("sloth")
        steered, end = ask("steerTurn", {"runId": run_id, "message": "Hurry.", "interrupt": True})
        assert int(steered["acceptedSequence"]) > 0 and end == {}, (steered, end)
        cancelled, end = ask("cancelRun", {"runId": run_id})
        assert cancelled is not None and end == {}, end
        assert end_of("sloth")["state"] == "RUN_STATE_CANCELLED"

        run_id = begin("scribe")
        approval = wait_for("tavern.registry.v1.ApprovalService/ListApprovals", "approvals", {"runId": run_id})
        decision = {
            "approvalId": approval["approvalId"],
            "argumentsDigest": approval["argumentsDigest"],
            "verdict": "APPROVAL_VERDICT_REJECT",
        }
        for wrong in [{}, {"authorization": "Bearer of another"}]:
            _, end = ask("decideApproval", decision, **wrong)
            assert end["error"]["code"] == "unauthenticated", end
        decided, end = ask("decideApproval", decision, authorization=key)
        assert decided["approval"]["state"] == "APPROVAL_STATE_REJECTED" and end == {}, (decided, end)
        # The key was that of one request.
        _, end = ask("decideApproval", decision)
        assert end["error"]["code"] == "unauthenticated", end
        assert (end := end_of("scribe"))["state"] == "RUN_STATE_SUCCEEDED", end


def until_end(socket, request):
    """Yields the frames of a request, its end included."""
    while True:
        frame = json.loads(socket.recv())
        assert frame["id"] == request, frame
        yield frame
        if "end" in frame:
            return


def by_websocket(address, run_id, after):
    """Yields the records after a sequence as kind and content."""
    path = f"/v1/runs/{run_id}/events?after_sequence={after}"
    # While its queue is full this client does not read that the server closes as well.
    with open_socket(address, path, max_queue=None) as socket:
        for frame in socket:
            yield next(iter(json.loads(frame).items()))


def by_sse(address, run_id, after):
    """The same by server-sent events, as an EventSource reads them."""
    headers = AUTHORIZATION | ({"last-event-id": str(after)} if after else {})
    yield from read_events(address, f"/v1/runs/{run_id}/events?after_sequence=0", headers)


def read_events(address, path, headers):
    """Yields the server-sent events at a path as kind and content."""
    connection = connect(address)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    assert response.getheader("content-type") == "text/event-stream", response.read()
    event = {}
    try:
        while line := response.readline():
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                event[name] = value
            elif "event" in event:
                content = json.loads(event["data"])
                if event["event"] == "event":
                    assert event["id"] == content["sequence"], event
                if event["event"] == "terminal":
                    assert event["id"].endswith(".end"), event
                yield event["event"], content
                event = {}
            else:
                event = {}
    finally:
        connection.close()


def by_connect(address, run_id, after):
    """The same by the streaming protocol of Connect."""
    request = json.dumps({"runId": run_id, "afterSequence": str(after)}).encode()
    connection = connect(address)
    headers = AUTHORIZATION | {"content-type": "application/connect+json"}
    body = struct.pack(">BI", 0, len(request)) + request
    connection.request("POST", "/tavern.run.v1.RunService/WatchRun", body, headers)
    response = connection.getresponse()
    try:
        while True:
            flags, length = struct.unpack(">BI", response.read(5))
            message = json.loads(response.read(length))
            if flags & 2:
                assert "error" not in message, message
                return
            yield next(iter(message["record"].items()))
    finally:
        connection.close()


def cut_often(address):
    """Clients that are cut again and again see every event once, in order."""
    cuts = int(os.environ.get("TAVERN_TEST_CUTS", "30"))
    seed = int(os.environ.get("TAVERN_TEST_SEED", str(random.randrange(2**32))))
    print(f"{cuts} cuts, TAVERN_TEST_SEED={seed}")
    choose = random.Random(seed)
    edges = itertools.cycle([by_websocket, by_sse, by_connect])
    made = 0
    while made < cuts:
        text = "<ACTION>" + "<system:get_current_time/>" * 12 + "</ACTION>"
        request = {"calls": {"text": text}}
        run = post(address, "tavern.gateway.v1.GatewayService/StartText", request)["run"]
        seen, ended = [], False
        while not ended:
            edge = next(edges)
            left = choose.randrange(1, 8)
            records = edge(address, run["runId"], len(seen))
            for kind, content in records:
                if kind == "terminal":
                    ended = True
                elif kind == "event":
                    seen.append(int(content["sequence"]))
                    assert seen[-1] == len(seen), (edge.__name__, seen)
                left -= 1
                if left == 0 and not ended:
                    made += 1
                    break
            records.close()
        log = [content for kind, content in by_sse(address, run["runId"], 0) if kind == "event"]
        assert len(log) == len(seen), (len(log), len(seen))
    connection = connect(address)
    path = f"/v1/runs/{run['runId']}/events"
    connection.request("GET", path, headers=AUTHORIZATION | {"last-event-id": f"{len(seen)}.end"})
    assert connection.getresponse().status == 204


def use_tickets(address):
    """A page that cannot send a key from where it opens sockets and event streams sends tickets."""
    own = {"Origin": address}

    def ticket():
        connection = connect(address)
        connection.request("POST", "/v1/ticket", headers=AUTHORIZATION)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        return json.load(response)["ticket"]

    def refuse(path):
        with open_socket(address, path, own) as socket:
            assert json.loads(socket.recv())["end"]["error"]["code"] == "unauthenticated"
            closed = expect(websockets.exceptions.ConnectionClosed, socket.recv)
            assert closed.rcvd.code == 1008, closed

    session = f"/v1/session?ticket={ticket()}"
    with open_socket(address, session, own) as socket:
        calls = {"text": "<ACTION><system:get_current_time/></ACTION>"}
        socket.send(json.dumps({"id": "a", "invokeText": {"calls": calls}}))
        frames = list(until_end(socket, "a"))
        assert frames[-1]["end"] == {} and "terminal" in frames[-2]["message"]["record"], frames[-2:]
        # The ticket is used up, and the session lasts.
        refuse(session)
        run_id = frames[0]["message"]["runId"]
        socket.send(json.dumps({"id": "b", "watchRun": {"runId": run_id}}))
        again = [frame["message"]["record"] for frame in list(until_end(socket, "b"))[:-1]]
    assert again == [frame["message"]["record"] for frame in frames[:-1]], again

    events = f"/v1/runs/{run_id}/events"
    with open_socket(address, f"{events}?ticket={ticket()}", own) as socket:
        followed = [json.loads(frame) for frame in socket]
    assert followed == again, followed
    streamed = read_events(address, f"{events}?ticket={ticket()}", own)
    assert [{kind: content} for kind, content in streamed] == again
    refuse(events)
    with open_socket(address, "/v1/session", own) as socket:
        socket.send(json.dumps({"id": "c", "watchRun": {"runId": run_id}}))
        assert next(until_end(socket, "c"))["end"]["error"]["code"] == "unauthenticated"


def use_page(address):
    """The page for people loads, logs in by its cookie, lists runs, and logs out."""
    cookies = http.cookiejar.CookieJar()
    handlers = [urllib.request.HTTPCookieProcessor(cookies), urllib.request.ProxyHandler({})]
    browser = urllib.request.build_opener(*handlers)

    def read(path, body=None, headers={}):
        """Sends a request as the page does, and returns the status, the headers and the body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", "origin": address, "sec-fetch-site": "same-origin"} | headers
        request = urllib.request.Request(f"{address}{path}", data, headers)
        try:
            with browser.open(request) as response:
                return response.status, response.headers, response.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.headers, refused.read()

    def list_runs():
        status, _, body = read("/tavern.run.v1.RunService/ListRuns", {})
        return status, json.loads(body)

    for path, kind, part in [
        ("/console", "text/html", b"/console/console.js"),
        ("/console/console.js", "text/javascript", b"/v1/login"),
        ("/console/console.css", "text/css", b"{"),
    ]:
        status, headers, body = read(path)
        assert status == 200 and part in body, (path, status)
        assert headers["content-type"].startswith(kind), (path, headers)
    assert list_runs()[0] == 401
    assert read("/v1/login", {"key": f"{KEY}x"})[0] == 401 and not list(cookies)
    assert read("/v1/login", {"key": KEY})[0] == 204
    (cookie,) = cookies
    assert cookie.secure == address.startswith("https:"), cookie
    assert cookie.path == "/" and cookie.has_nonstandard_attr("HttpOnly"), cookie
    assert cookie.get_nonstandard_attr("SameSite") == "Strict" and KEY not in cookie.value, cookie
    assert time.time() < cookie.expires, cookie
    status, listed = list_runs()
    assert status == 200 and isinstance(listed.get("runs", []), list), listed
    # The cookie of the page counts for no other one.
    elsewhere = {"origin": "https://attacker.example", "sec-fetch-site": "cross-site"}
    assert read("/tavern.run.v1.RunService/ListRuns", {}, elsewhere)[0] == 403
    assert read("/v1/logout", {})[0] == 204 and not list(cookies)
    assert list_runs()[0] == 401


PARTS = {
    "ask": ask,
    "openai": use_openai,
    "closing": close_openai,
    "session": use_session,
    "people": use_session_of_people,
    "cuts": cut_often,
    "tickets": use_tickets,
    "page": use_page,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("rest", nargs="*")
    arguments = parser.parse_args()
    PARTS[arguments.part](arguments.address, *arguments.rest)


if __name__ == "__main__":
    main()
