"""The official client of A2A, against agents that the test writes.

    a2a_clients.py ADDRESS

ADDRESS is `http://HOST:PORT` or `https://HOST:PORT`; SSL_CERT_FILE names the certificates that an https
server may have, TAVERN_KEY_FILE the file of the key that the client sends. It ends with exit code 0 if everything was as it should be.
"""

import argparse
import asyncio
import json
import os
import ssl

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client.auth import AuthInterceptor, CredentialService
from a2a.types import a2a_pb2
from a2a.utils import errors

BINDINGS = ["JSONRPC", "HTTP+JSON"]
VERSION = {"a2a-version": "1.0"}


def message(text, task_id=""):
    part = a2a_pb2.Part(text=text)
    said = a2a_pb2.Message(message_id=text, role=a2a_pb2.ROLE_USER, parts=[part], task_id=task_id)
    return a2a_pb2.SendMessageRequest(message=said)


async def refusal(error, answer):
    """Returns the error that an answer raises."""
    try:
        await answer
    except error as raised:
        return raised
    raise AssertionError(f"no {error.__name__} was raised")


async def whole(stream):
    """Returns everything that a stream reports."""
    return [update async for update in stream]


def answer_of(updates):
    """Puts the answer of a stream together, beginning again where it does."""
    text = ""
    for update in updates:
        if update.HasField("artifact_update"):
            pieces = "".join(part.text for part in update.artifact_update.artifact.parts)
            text = text + pieces if update.artifact_update.append else pieces
    return text


class Key(CredentialService):
    """The key that a client sends where a card asks for it."""

    def __init__(self, key):
        self.key = key

    async def get_credentials(self, security_scheme_name, context):
        return self.key


async def use(http, card, binding, agents, interceptors):
    """An agent is found by its card, and asked, steered, answered and cancelled."""
    config = ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])
    factory = ClientFactory(config)
    clock = factory.create(card, interceptors)
    updates = await whole(clock.send_message(message(f"hello by {binding}")))
    assert answer_of(updates) == "It is late, and the inn is closed.", updates
    task = updates[0].task
    assert updates[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED, updates
    read = await clock.get_task(a2a_pb2.GetTaskRequest(id=task.id, history_length=1))
    assert read.id == task.id and len(read.history) == 1, read
    listing = a2a_pb2.ListTasksRequest(
        context_id=task.context_id, page_size=1, status=a2a_pb2.TASK_STATE_COMPLETED, include_artifacts=True
    )
    listed = await clock.list_tasks(listing)
    assert [one.id for one in listed.tasks] == [task.id] and listed.tasks[0].artifacts, listed
    extended = await clock.get_extended_agent_card(a2a_pb2.GetExtendedAgentCardRequest())
    assert extended == card, extended

    once = ClientFactory(ClientConfig(httpx_client=http, supported_protocol_bindings=[binding], streaming=False))
    herbalist = once.create(agents["herbalist"], interceptors)
    asked = (await whole(herbalist.send_message(message(f"cough by {binding}"))))[0].task
    assert asked.status.state == a2a_pb2.TASK_STATE_INPUT_REQUIRED, asked
    answered = (await whole(herbalist.send_message(message("sage", asked.id))))[0].task
    assert answered.status.state == a2a_pb2.TASK_STATE_COMPLETED, answered

    sloth = factory.create(agents["sloth"], interceptors)
    running = sloth.send_message(message(f"wait by {binding}"))
    begun = (await anext(running)).task
    following = sloth.subscribe(a2a_pb2.SubscribeToTaskRequest(id=begun.id))
    assert (await anext(following)).task.id == begun.id
    cancelled = await sloth.cancel_task(a2a_pb2.CancelTaskRequest(id=begun.id))
    assert cancelled.status.state == a2a_pb2.TASK_STATE_CANCELED, cancelled
    for stream in [running, following]:
        last = (await whole(stream))[-1]
        assert last.status_update.status.state == a2a_pb2.TASK_STATE_CANCELED, last

    unknown = clock.get_task(a2a_pb2.GetTaskRequest(id="turn_1"))
    await refusal(errors.TaskNotFoundError, unknown)
    await refusal(errors.TaskNotFoundError, clock.get_task(a2a_pb2.GetTaskRequest(id=begun.id)))
    again = sloth.cancel_task(a2a_pb2.CancelTaskRequest(id=begun.id))
    await refusal(errors.TaskNotCancelableError, again)
    ended = whole(sloth.subscribe(a2a_pb2.SubscribeToTaskRequest(id=begun.id)))
    await refusal(errors.UnsupportedOperationError, ended)
    pushed = a2a_pb2.TaskPushNotificationConfig(task_id=begun.id, url="https://app.example")
    await refusal(errors.PushNotificationNotSupportedError, sloth.create_task_push_notification_config(pushed))
    file = message("file")
    file.message.parts[0].url = "https://app.example/file"
    await refusal(errors.ContentTypeNotSupportedError, whole(clock.send_message(file)))


async def refuse(http, address):
    """What is not A2A of this version is refused in the words of its binding; what is newer is ignored."""
    ask = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "Hello.", "mood": 1}], "urgency": {}}
    sent = {"tenant": "clock", "message": ask, "hurry": True}
    call = {"jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": sent}

    async def post(body, path="/a2a", headers=VERSION):
        content = body if isinstance(body, str) else json.dumps(body)
        kind = {"content-type": "application/json"}
        answer = await http.post(f"{address}{path}", content=content, headers=kind | headers)
        return answer.status_code, answer.json()

    status, answer = await post(call)
    assert status == 200 and answer["id"] == 7 and "error" not in answer, answer
    task = answer["result"]["task"]["id"]
    for path in ["/a2a/message:send", "/a2a/clock/message:send", "/lf.a2a.v1.A2AService/SendMessage"]:
        status, answer = await post(sent, path)
        assert status == 200 and answer["task"]["id"] == task, (path, answer)

    for body, identity, code in [
        ("{", None, -32700),
        ([call], None, -32600),
        (call | {"jsonrpc": "1.0"}, 7, -32600),
        (call | {"id": None}, None, -32600),
        (call | {"id": "x" * 300}, None, -32600),
        (call | {"id": "x", "method": "message/send"}, "x", -32601),
        (call | {"params": [1]}, 7, -32602),
        (call | {"params": {"tenant": "clock"}}, 7, -32602),
        (call | {"params": sent | {"tenant": "ghost"}}, 7, -32602),
        (call | {"params": sent | {"tenant": 5}}, 7, -32602),
        (call | {"method": "SendStreamingMessage", "params": sent | {"tenant": "ghost"}}, 7, -32602),
    ]:
        status, answer = await post(body)
        assert (status, answer["id"], answer["error"]["code"]) == (200, identity, code), (body, answer)
    _, answer = await post(call, headers={"a2a-version": "0.3"})
    assert answer["error"]["code"] == -32009, answer

    for path, headers, code, name in [
        ("/a2a/clock/tasks/turn_1", VERSION, 404, "NOT_FOUND"),
        ("/a2a/clock/tasks?pageSize=many", VERSION, 400, "INVALID_ARGUMENT"),
        ("/a2a/clock/tasks", {"a2a-version": "0.3"}, 400, "UNIMPLEMENTED"),
        ("/a2a/clock/message:send", VERSION, 405, "UNIMPLEMENTED"),
        ("/a2a/clock/nothing", VERSION, 404, "NOT_FOUND"),
        ("/a2a/ghost/.well-known/agent-card.json", {}, 404, "NOT_FOUND"),
    ]:
        answer = await http.get(f"{address}{path}", headers={"a2a-version": ""} | headers)
        assert (answer.status_code, answer.json()["error"]["status"]) == (code, name), (path, answer.text)
    form = await http.post(f"{address}/a2a", data={"a": "b"})
    assert form.status_code == 415, form.text


async def play(address):
    verify = ssl.create_default_context() if address.startswith("https:") else True
    key = None
    if file := os.environ.get("TAVERN_KEY_FILE"):
        with open(file, encoding="ascii") as opened:
            key = opened.read().strip()
    async with httpx.AsyncClient(verify=verify, timeout=60) as http:
        agents = {}
        for agent in ["clock", "herbalist", "sloth"]:
            agents[agent] = await A2ACardResolver(http, f"{address}/a2a/{agent}").get_agent_card()
        root = await A2ACardResolver(http, address).get_agent_card()
        assert root == agents["clock"], root
        urls = {one.protocol_binding: (one.url, one.tenant) for one in root.supported_interfaces}
        at = (f"{address}/a2a", "clock")
        assert urls == {"JSONRPC": at, "HTTP+JSON": at, "GRPC": (address, "clock")}, urls
        assert root.name == "The clock" and root.skills[0].id == "system:get_current_time", root
        if key:
            assert root.security_schemes and root.security_requirements, root
        for binding in BINDINGS:
            await use(http, root, binding, agents, [AuthInterceptor(Key(key))])
        if key:
            http.headers["authorization"] = f"Bearer {key}"
        await refuse(http, address)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    asyncio.run(play(parser.parse_args().address))


if __name__ == "__main__":
    main()
