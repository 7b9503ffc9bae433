// A server of node-opcua that calls itself by a name that nobody knows: server.js PORT [PORT_OF_DISCOVERY_SERVER].
// With a discovery server it registers there; without one it announces itself by multicast DNS.
const { OPCUAServer, RegisterServerMethod } = require("node-opcua-server");

async function main(port, discovery) {
  const server = new OPCUAServer({
    port,
    hostname: "node-opcua.invalid",
    resourcePath: "/UA/Node",
    serverInfo: { applicationUri: `urn:judge:node-opcua:${port}`, applicationName: { text: `node-opcua ${port}`, locale: "en" } },
    registerServerMethod: discovery ? RegisterServerMethod.LDS : RegisterServerMethod.MDNS,
    discoveryServerEndpointUrl: discovery ? `opc.tcp://127.0.0.1:${discovery}` : undefined,
    automaticallyAcceptUnknownCertificate: true,
  });
  await server.initialize();
  if (discovery) {
    server.on("serverRegistered", () => console.log("ready"));
    await server.start();
  } else {
    await server.start();
    console.log("ready");
  }
}

main(Number(process.argv[2]), Number(process.argv[3] ?? 0));
