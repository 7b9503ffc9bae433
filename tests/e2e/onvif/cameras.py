#!/usr/bin/env python3
"""Cameras for tests/e2e/onvif/judge.py: they answer probes, and check both kinds of credentials.

    cameras.py MODE COUNT     in a network namespace with the addresses 10.77.1.1 to 10.77.1.COUNT

MODE is open, token, digest or sha256: what GetNetworkInterfaces and GetDeviceInformation want. The user is `admin` and the password
`hunter2`. The clocks of the cameras are wrong. Each line of the output is a call: the address, the operation, and how it came.
"""
import base64
import hashlib
import re
import select
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MODE, COUNT = sys.argv[1], int(sys.argv[2])
USER, PASSWORD, REALM = "admin", "hunter2", "camera"
AHEAD = -86_400 * 400
NONCES = {}


def answer(number, relates_to):
    return f"""<?xml version="1.0" encoding="UTF-8"?><SOAP-ENV:Envelope xmlns:SOAP-ENV="http://www.w3.org/2003/05/soap-envelope"
 xmlns:wsa="http://schemas.xmlsoap.org/ws/2004/08/addressing" xmlns:d="http://schemas.xmlsoap.org/ws/2005/04/discovery"
 xmlns:dn="http://www.onvif.org/ver10/network/wsdl"><SOAP-ENV:Header><wsa:MessageID>uuid:{number}-{time.time()}</wsa:MessageID>
<wsa:RelatesTo>{relates_to}</wsa:RelatesTo></SOAP-ENV:Header><SOAP-ENV:Body><d:ProbeMatches><d:ProbeMatch><wsa:EndpointReference>
<wsa:Address>urn:uuid:00000000-0000-4000-a000-{number:012}</wsa:Address></wsa:EndpointReference><d:Types>dn:NetworkVideoTransmitter</d:Types>
<d:Scopes>onvif://www.onvif.org/type/video_encoder onvif://www.onvif.org/name/Camera%20{number} onvif://www.onvif.org/hardware/T1</d:Scopes>
<d:XAddrs>http://10.77.1.{number}/onvif/device_service</d:XAddrs><d:MetadataVersion>1</d:MetadataVersion></d:ProbeMatch></d:ProbeMatches>
</SOAP-ENV:Body></SOAP-ENV:Envelope>""".encode()


def probes():
    group = socket.inet_aton("239.255.255.250")
    heard = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    heard.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    heard.bind(("", 3702))
    heard.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + socket.inet_aton("10.77.1.1"))
    own = []
    for number in range(1, COUNT + 1):
        each = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        each.bind((f"10.77.1.{number}", 3702))
        own.append(each)
    while True:
        for ready in select.select([heard, *own], [], [])[0]:
            message, source = ready.recvfrom(65536)
            if not re.search(rb"Probe>|Probe ", message):
                continue
            relates_to = re.search(rb"MessageID[^>]*>([^<]*)<", message).group(1).decode()
            for number, each in enumerate(own, 1):
                if ready in (heard, each):
                    each.sendto(answer(number, relates_to), source)


class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, body, *headers):
        body = f'<?xml version="1.0"?><s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body>{body}</s:Body></s:Envelope>'.encode()
        self.send_response(status)
        for header in headers:
            self.send_header("WWW-Authenticate", header)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def token_is_right(self, text):
        parts = [re.search(rf"<wsse:{n}(?: [^>]*)?>([^<]*)<", text) for n in ("Username", "Password", "Nonce")]
        created = re.search(r"<wsu:Created>([^<]*)<", text)
        if not all(parts) or not created:
            return False
        user, digest, nonce = (part.group(1) for part in parts)
        right = hashlib.sha1(base64.b64decode(nonce) + created.group(1).encode() + PASSWORD.encode()).digest()
        own = time.time() + AHEAD
        sent = time.mktime(time.strptime(created.group(1), "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
        return user == USER and base64.b64decode(digest) == right and abs(own - sent) < 5

    def digest_is_right(self):
        header = self.headers.get("Authorization", "")
        if not header.startswith("Digest "):
            return False
        value = {k: a or b for k, a, b in re.findall(r'(\w+)=(?:"([^"]*)"|([^,\s]*))', header)}
        name, function = ("MD5", hashlib.md5) if MODE == "digest" else ("SHA-256", hashlib.sha256)

        def of(*words):
            return function(":".join(words).encode()).hexdigest()

        count = int(value["nc"], 16)
        is_new = count > NONCES.get(value["nonce"], 1 << 30)
        NONCES[value["nonce"]] = max(count, NONCES.get(value["nonce"], 0))
        right = of(of(USER, REALM, PASSWORD), value["nonce"], value["nc"], value["cnonce"], "auth", of("POST", self.path))
        return value["algorithm"] == name and value["username"] == USER and value["response"] == right and is_new

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        operation = re.search(r"<t:(\w+)", text).group(1)
        how = "digest" if "Authorization" in self.headers else "token" if "UsernameToken" in text else "none"
        assert PASSWORD not in text and PASSWORD not in str(self.headers)
        print(self.connection.getsockname()[0], operation, how, flush=True)
        if operation == "GetSystemDateAndTime":
            now = time.gmtime(time.time() + AHEAD)
            self.reply(200, "<t:GetSystemDateAndTimeResponse xmlns:t='http://www.onvif.org/ver10/device/wsdl'><UTCDateTime><Time>"
                       f"<Hour>{now.tm_hour}</Hour><Minute>{now.tm_min}</Minute><Second>{now.tm_sec}</Second></Time><Date><Year>{now.tm_year}</Year>"
                       f"<Month>{now.tm_mon}</Month><Day>{now.tm_mday}</Day></Date></UTCDateTime></t:GetSystemDateAndTimeResponse>")
            return
        is_right = {"open": lambda: True, "token": lambda: self.token_is_right(text)}.get(MODE, self.digest_is_right)()
        if not is_right:
            algorithm = {"digest": "MD5", "sha256": "SHA-256"}.get(MODE)
            nonce = hashlib.md5(str(time.time()).encode()).hexdigest()
            NONCES[nonce] = 0
            challenge = [f'Digest realm="{REALM}", nonce="{nonce}", algorithm={algorithm}, qop="auth"'] if algorithm else []
            self.reply(401 if challenge else 400, "<s:Fault><s:Code><s:Value>s:Sender</s:Value><s:Subcode><s:Value>ter:NotAuthorized</s:Value>"
                       "</s:Subcode></s:Code><s:Reason><s:Text>no</s:Text></s:Reason></s:Fault>", *challenge)
            return
        number = self.connection.getsockname()[0].split(".")[3]
        body = {
            "GetNetworkInterfaces": "<r:GetNetworkInterfacesResponse xmlns:r='x'><r:NetworkInterfaces><Info><HwAddress>AA-BB-CC-00-00-%02x"
                                    "</HwAddress></Info></r:NetworkInterfaces></r:GetNetworkInterfacesResponse>" % int(number),
            "GetDeviceInformation": "<r:GetDeviceInformationResponse xmlns:r='x'><r:Manufacturer>Test</r:Manufacturer><r:Model>T1</r:Model>"
                                    f"<r:SerialNumber>S{number}</r:SerialNumber></r:GetDeviceInformationResponse>",
        }
        self.reply(200, body[operation])


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True


threading.Thread(target=probes, daemon=True).start()
Server(("", 80), Service).serve_forever()
