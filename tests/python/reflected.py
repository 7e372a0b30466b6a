"""Calls gRPC methods knowing nothing but the server's address.

The message types come from server reflection alone; there are no generated stubs.
"""

import json

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase


class Method:
    """One method of a server, called with and answering plain objects."""

    def __init__(self, channel, descriptor):
        self._descriptor = descriptor
        self._request = message_factory.GetMessageClass(descriptor.input_type)
        self._response = message_factory.GetMessageClass(descriptor.output_type)
        path = f"/{descriptor.containing_service.full_name}/{descriptor.name}"
        open_call = channel.unary_stream if self.server_streaming else channel.unary_unary
        self._call = open_call(
            path,
            request_serializer=self._request.SerializeToString,
            response_deserializer=self._response.FromString,
        )

    @property
    def server_streaming(self):
        proto = descriptor_pb2.MethodDescriptorProto()
        self._descriptor.CopyToProto(proto)
        return proto.server_streaming

    def __call__(self, request, timeout=None, metadata=None):
        """Calls the method; a stream is answered as the grpc call, whose items are messages."""
        message = json_format.ParseDict(request, self._request())
        return self._call(message, timeout=timeout, metadata=metadata)


class Server:
    """A server that explains itself by reflection, at `HOST:PORT` or `https://HOST:PORT`."""

    def __init__(self, address):
        host = address.removeprefix("https://")
        if host == address:
            self.channel = grpc.insecure_channel(host)
        else:
            # GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names the certificates that the server may have.
            self.channel = grpc.secure_channel(host, grpc.ssl_channel_credentials())
        self._database = ProtoReflectionDescriptorDatabase(self.channel)
        self._pool = descriptor_pool.DescriptorPool(self._database)

    def services(self):
        """Returns the names of the services that the server offers."""
        return sorted(self._database.get_services())

    def method(self, service, name):
        """Returns a method by the full name of its service."""
        descriptor = self._pool.FindServiceByName(service).FindMethodByName(name)
        return Method(self.channel, descriptor)

    def close(self):
        """Ends every call and the connection."""
        self.channel.close()


def plain(message):
    """Turns a message into what JSON can hold, with the names of the proto file.

    64-bit integers become strings, as in the JSON form of protobuf.
    """
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def print_line(record):
    """Prints one object as a line."""
    print(json.dumps(record, ensure_ascii=False), flush=True)
