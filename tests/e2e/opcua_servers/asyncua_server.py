"""A server of asyncua: asyncua_server.py PORT."""

import asyncio
import sys

from asyncua import Server


async def main(port: int) -> None:
    server = Server()
    await server.init()
    server.set_endpoint(f"opc.tcp://127.0.0.1:{port}/asyncua/")
    server.set_server_name("asyncua judge")
    await server.set_application_uri("urn:judge:asyncua")
    async with server:
        print("ready", flush=True)
        await asyncio.Event().wait()


asyncio.run(main(int(sys.argv[1])))
