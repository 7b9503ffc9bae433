// An RTSP server of rtsp-streaming-server: rtsp.js PORT, on all addresses.
const RtspServer = require("rtsp-streaming-server").default;
const port = Number(process.argv[2]);
new RtspServer({ serverPort: port + 1, clientPort: port, rtpPortStart: 20000, rtpPortCount: 100 }).start();
