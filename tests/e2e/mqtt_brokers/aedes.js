// A broker of aedes: aedes.js PORT.
const { Aedes } = require("aedes");
const net = require("net");

(async () => {
  const aedes = await Aedes.createBroker();
  net.createServer(aedes.handle).listen(Number(process.argv[2]), "127.0.0.1", () => console.log("ready"));
})();
