"""A discovery handler: it finds those of some addresses that accept TCP connections.

discoveryDetails: '{"addresses": ["10.0.0.7:554", "10.0.0.8:554"]}'
"""
import json
import os
import socket
import time
from concurrent import futures

import grpc

import discovery_v0_pb2 as v0
import discovery_v0_pb2_grpc as v0_grpc

NAME = "reachable-python"
FOLDER = os.environ.get("DISCOVERY_HANDLERS_DIRECTORY", "/var/lib/akri")
SOCKET = f"{FOLDER}/{NAME}.sock"
POLL_SECONDS = 2


def addresses(details):
    """The host and the port of each address. An error is shown on the Configuration."""
    wanted = json.loads(details)["addresses"]
    pairs = [address.rsplit(":", 1) for address in wanted]
    return [(host, int(port)) for host, port in pairs]


def is_reachable(address):
    try:
        with socket.create_connection(address, timeout=1):
            return True
    except OSError:
        return False


def device(address):
    host, port = address
    # The id is the device's name for ever: its Instance is named after it.
    return v0.Device(id=f"{host}:{port}", properties={"ADDRESS": host, "PORT": str(port)})


class Handler(v0_grpc.DiscoveryHandlerServicer):
    def Discover(self, request, context):
        try:
            wanted = addresses(request.discovery_details)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"no list of host:port in `addresses`: {error!r}")
        last = None
        while context.is_active():
            found = [address for address in wanted if is_reachable(address)]
            if found != last:  # each message is the whole list
                yield v0.DiscoverResponse(devices=[device(address) for address in found])
                last = found
            time.sleep(POLL_SECONDS)


def register():
    """Tells the agent where this handler is. Once is enough: the agent keeps it."""
    request = v0.RegisterDiscoveryHandlerRequest(name=NAME, endpoint=SOCKET, endpoint_type="UDS", shared=True)
    while True:
        try:
            with grpc.insecure_channel(f"unix://{FOLDER}/agent-registration.sock") as channel:
                return v0_grpc.RegistrationStub(channel).RegisterDiscoveryHandler(request, timeout=5)
        except grpc.RpcError as error:
            print(f"not registered yet: {error.code()}: {error.details()}", flush=True)
            time.sleep(5)


if __name__ == "__main__":
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16))  # each Configuration takes one
    v0_grpc.add_DiscoveryHandlerServicer_to_server(Handler(), server)
    server.add_insecure_port(f"unix://{SOCKET}")
    server.start()
    register()
    print("registered", flush=True)
    server.wait_for_termination()
