// A discovery server of node-opcua, which takes registrations: lds.js PORT.
const { OPCUADiscoveryServer } = require("node-opcua-server-discovery");

async function main(port) {
  const server = new OPCUADiscoveryServer({ port, hostname: "127.0.0.1", automaticallyAcceptUnknownCertificate: true });
  await server.start();
  console.log("ready");
}

main(Number(process.argv[2]));
