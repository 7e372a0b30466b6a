// Other people's clients, as a web page has them: connect-web, grpc-web and the browser's own
// EventSource. The descriptors come from the server under test, so nothing is generated.
import { createFileRegistry, fromBinary, fromJson, toBinary, toJson } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import { GrpcWebClientBase, MethodDescriptor, MethodType } from "grpc-web";

const baseUrl = location.origin;
const transports = {
  "Connect, JSON": createConnectTransport({ baseUrl }),
  "Connect, protobuf": createConnectTransport({ baseUrl, useBinaryFormat: true }),
  "Connect, GET": createConnectTransport({ baseUrl, useHttpGet: true }),
  "gRPC-Web by connect-web": createGrpcWebTransport({ baseUrl }),
};
const GRPC_WEB = "gRPC-Web by grpc-web";

let registry;

/** Takes a serialized FileDescriptorSet. */
function load(base64) {
  registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, base64Decode(base64)));
}

function find(path) {
  const [serviceName, methodName] = path.split("/");
  const service = registry.getService(serviceName);
  const method = service.methods.find(({ name }) => name === methodName);
  return { service, method };
}

const text = (method, message) => toJson(method.output, message, { registry });

/** Calls a method with one answer. */
async function unary(kind, path, request) {
  const { service, method } = find(path);
  const message = fromJson(method.input, request);
  if (kind !== GRPC_WEB) {
    return text(method, await createClient(service, transports[kind])[method.localName](message));
  }
  const answer = await new Promise((resolve, reject) => {
    const done = (error, response) => (error ? reject(error) : resolve(response));
    const client = new GrpcWebClientBase({ format: "text" });
    client.rpcCall(`${baseUrl}/${path}`, message, {}, descriptor(path, method, MethodType.UNARY), done);
  });
  return text(method, answer);
}

/** Calls a method with many answers, and gives up after `limit` of them. */
async function stream(kind, path, request, limit = Infinity) {
  const { service, method } = find(path);
  const message = fromJson(method.input, request);
  const messages = [];
  const add = (answer) => messages.push({ at: performance.now(), ...text(method, answer) });
  if (kind === GRPC_WEB) {
    const client = new GrpcWebClientBase({ format: "text" });
    const answers = client.serverStreaming(
      `${baseUrl}/${path}`, message, {}, descriptor(path, method, MethodType.SERVER_STREAMING));
    return new Promise((resolve, reject) => {
      answers.on("data", (answer) => {
        add(answer);
        if (messages.length < limit) return;
        answers.cancel();
        resolve({ messages, ended: "cancelled" });
      });
      answers.on("error", (error) => reject(new Error(error.message)));
      answers.on("end", () => resolve({ messages, ended: "end" }));
    });
  }
  const abort = new AbortController();
  try {
    const answers = createClient(service, transports[kind])[method.localName](message, { signal: abort.signal });
    for await (const answer of answers) {
      add(answer);
      if (messages.length >= limit) abort.abort();
    }
    return { messages, ended: "end" };
  } catch (error) {
    return { messages, ended: Code[ConnectError.from(error).code].toLowerCase() };
  }
}

/** Calls a method that refuses, and returns what the client makes of it. */
async function refusal(kind, path, request) {
  try {
    await unary(kind, path, request);
  } catch (error) {
    if (kind === GRPC_WEB) return { code: error.code, details: [] };
    const { code, details, rawMessage } = ConnectError.from(error);
    return { code, message: rawMessage, details: details.map(({ type }) => type) };
  }
  throw new Error("it was not refused");
}

function descriptor(path, method, type) {
  const write = (message) => toBinary(method.input, message);
  const read = (bytes) => fromBinary(method.output, bytes);
  return new MethodDescriptor(`/${path}`, type, Object, Object, write, read);
}

/** Follows a run by an EventSource to its end, over as many connections as that takes. */
function events(runId) {
  return new Promise((resolve) => {
    const source = new EventSource(`/v1/runs/${runId}/events`);
    const sequences = [];
    let connections = 0;
    source.onopen = () => connections++;
    source.addEventListener("event", ({ lastEventId, data }) => {
      sequences.push(Number(lastEventId));
      JSON.parse(data);
    });
    source.addEventListener("terminal", ({ data }) => {
      source.close();
      resolve({ sequences, connections, terminal: JSON.parse(data) });
    });
  });
}

globalThis.clients = { load, unary, stream, refusal, events, kinds: [...Object.keys(transports), GRPC_WEB] };
