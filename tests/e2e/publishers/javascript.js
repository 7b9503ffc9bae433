// javascript.js ciao|bonjour|multicast|matter NAME TYPE PORT KEY=VALUE: announces a service by @homebridge/ciao,
// bonjour-service, multicast-dns or the responder of matter.js. SIGUSR2 changes the TXT record to version=2 where the
// library can.
"use strict";
const os = require("os");

const [library, name, kind, port, ...pairs] = process.argv.slice(2);
const type = kind.split(".")[0].slice(1);
const txt = Object.fromEntries(pairs.map((pair) => pair.split("=")));
const address = os.networkInterfaces().eth0.find((ip) => ip.family === "IPv4").address;

function withCiao() {
  const responder = require("@homebridge/ciao").getResponder({ interface: "eth0" });
  const service = responder.createService({ name, type, port: Number(port), txt });
  service.advertise();
  process.on("SIGUSR2", () => service.updateTxt({ version: "2" }));
  process.on("SIGTERM", () => responder.shutdown().then(() => process.exit(0)));
}

// Both of the following bind to the address of `interface` otherwise, where no multicast question arrives.
function withBonjour() {
  const { Bonjour } = require("bonjour-service");
  const bonjour = new Bonjour({ interface: address, bind: "0.0.0.0" });
  bonjour.publish({ name, type, port: Number(port), txt });
  process.on("SIGTERM", () => bonjour.unpublishAll(() => bonjour.destroy(() => process.exit(0))));
}

// The library has no services: it begins in silence, and answers each question with exactly the record asked for.
function withMulticast() {
  const mdns = require("multicast-dns")({ interface: address, bind: "0.0.0.0" });
  const full = `${name}.${kind}.local`, host = `${os.hostname()}.local`;
  let text = pairs;
  const records = (ttl) => [
    { name: `${kind}.local`, type: "PTR", ttl, data: full },
    { name: full, type: "SRV", ttl, flush: true, data: { port: Number(port), target: host } },
    { name: full, type: "TXT", ttl, flush: true, data: text },
    { name: host, type: "A", ttl, flush: true, data: address },
  ];
  mdns.on("query", (query) => {
    const asked = (record) => query.questions.some((q) => q.name.toLowerCase() === record.name.toLowerCase() && q.type === record.type);
    const answers = records(120).filter(asked);
    if (answers.length) mdns.respond({ answers });
  });
  process.on("SIGUSR2", () => { text = ["version=2"]; mdns.respond({ answers: records(120) }); });
  process.on("SIGTERM", () => mdns.respond({ answers: records(0) }, () => process.exit(0)));
}

// The responder alone: a device of Matter has another random name after each start.
async function withMatter() {
  const matter = require("@matter/general");
  const { MdnsServer } = require("@matter/protocol");
  const { NodeJsNetwork } = require("@matter/nodejs");
  const socket = await matter.MdnsSocket.create(new NodeJsNetwork(), { netInterface: "eth0" });
  const server = new MdnsServer(socket);
  const full = `${name}.${kind}.local`, host = `${os.hostname()}.local`;
  const advertise = (text) => server.setRecordsGenerator(name, (_, { ipV4, ipV6 }) => [
    matter.PtrRecord(`${kind}.local`, full),
    matter.SrvRecord(full, { priority: 0, weight: 0, port: Number(port), target: host }),
    matter.TxtRecord(full, text),
    ...ipV4.map((ip) => matter.ARecord(host, ip)),
    ...ipV6.map((ip) => matter.AAAARecord(host, ip)),
  ]).then(() => server.broadcast(name));
  process.on("SIGUSR2", () => advertise(["version=2"]));
  process.on("SIGTERM", () => server.expireAnnouncements(name).then(() => process.exit(0)));
  await advertise(pairs);
}

({ ciao: withCiao, bonjour: withBonjour, multicast: withMulticast, matter: withMatter })[library]();
