"""Checks what the functions sign for AWS by computing it again with botocore, AWS's own library for Python.

Serves one secret, the second argument, to requests whose signature holds, as Secrets Manager would; and speaks as much of
PostgreSQL's protocol as it takes to be sent a password, which must be a token of RDS IAM authentication. Prints both ports; then
for each password whether it is such a token.
"""

import datetime
import http.server
import json
import socket
import sys
import threading
import urllib.parse

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

REGION, SECRET = sys.argv[1:]
CREDENTIALS = Credentials("test", "test", "test/+=")


def at(stamp: str) -> None:
    """Stops botocore's clock at this time."""
    fixed = datetime.datetime.strptime(stamp, "%Y%m%dT%H%M%SZ")
    botocore.auth.get_current_datetime = lambda **_: fixed


class SecretsManager(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        given = self.headers["authorization"]
        at(self.headers["x-amz-date"])
        names = given.split("SignedHeaders=")[1].split(",")[0].split(";")
        assert {"host", "x-amz-target", "x-amz-security-token"} <= set(names), names
        own = ("x-amz-date", "x-amz-security-token", "host")
        headers = {name: self.headers[name] for name in names if name not in own}
        request = AWSRequest("POST", f"http://{self.headers['host']}/", headers=headers, data=body)
        botocore.auth.SigV4Auth(CREDENTIALS, "secretsmanager", REGION).add_auth(request)
        holds = request.headers["Authorization"].split("Signature=")[1] == given.split("Signature=")[1]
        answer = {"SecretString": SECRET} if holds else {"__type": "InvalidSignatureException"}
        content = json.dumps(answer).encode()
        self.send_response(200 if holds else 403)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_) -> None:
        pass


def is_token(password: str) -> bool:
    url = "https://" + password
    query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query))
    at(query["X-Amz-Date"])
    plain = urllib.parse.urlencode({"Action": "connect", "DBUser": query["DBUser"]})
    request = AWSRequest("GET", url.split("?")[0] + "?" + plain)
    botocore.auth.SigV4QueryAuth(CREDENTIALS, "rds-db", REGION, expires=900).add_auth(request)
    expected = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.url).query))
    return query == expected


def postgres(listener: socket.socket) -> None:
    while True:
        client, _ = listener.accept()
        client.recv(8)
        client.sendall(b"N")
        client.recv(4096)
        client.sendall(b"R\0\0\0\x08\0\0\0\x03")
        password = client.recv(65536)[5:].rstrip(b"\0").decode()
        print("token" if is_token(password) else f"no token: {password}", flush=True)
        client.close()


listener = socket.create_server(("127.0.0.1", 0))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SecretsManager)
threading.Thread(target=postgres, args=(listener,), daemon=True).start()
print(server.server_address[1], listener.getsockname()[1], flush=True)
server.serve_forever()
