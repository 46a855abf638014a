"""A small OIDC issuer: authorization code with PKCE (S256) and nothing else. It checks what a real one checks."""

import hashlib
import json
import secrets
import threading
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stack import base64url

CLIENT_ID = "holdfast-console"


class Issuer:
    """`token` is what the next person who signs in gets; `refuse` is an error to answer instead."""

    def __init__(self, port, console):
        self.redirect_uri = f"{console}/console"
        self.origin = console
        self.token = None
        self.refuse = None
        self.codes = {}
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                url = urllib.parse.urlsplit(self.path)
                asked = dict(urllib.parse.parse_qsl(url.query))
                fits = (url.path == "/authorize" and asked.get("client_id") == CLIENT_ID and asked.get("redirect_uri") == issuer.redirect_uri
                        and asked.get("response_type") == "code" and asked.get("code_challenge_method") == "S256" and len(asked.get("state", "")) >= 40
                        and len(asked.get("code_challenge", "")) == 43 and "openid" in asked.get("scope", ""))
                if not fits:
                    self.answer(400, {"error": "invalid_request", "error_description": self.path})
                    return
                code = secrets.token_urlsafe(24)
                issuer.codes[code] = asked["code_challenge"]
                sent = {"error": issuer.refuse, "error_description": "Not today.", "state": asked["state"]} if issuer.refuse else {"code": code, "state": asked["state"]}
                self.send_response(302)
                self.send_header("location", f"{issuer.redirect_uri}?{urllib.parse.urlencode(sent)}")
                self.end_headers()

            def do_POST(self):
                form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
                # A code is good once, and only for whoever can show what its challenge was made of.
                challenge = issuer.codes.pop(form.get("code"), None)
                proved = base64url(hashlib.sha256(form.get("code_verifier", "").encode()).digest()) == challenge
                fits = self.path == "/token" and form.get("grant_type") == "authorization_code" and form.get("redirect_uri") == issuer.redirect_uri and form.get("client_id") == CLIENT_ID
                if proved and fits:
                    self.answer(200, {"access_token": issuer.token, "token_type": "Bearer", "expires_in": 3600})
                else:
                    self.answer(400, {"error": "invalid_grant"})

            def answer(self, status, document):
                body = json.dumps(document).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.send_header("access-control-allow-origin", issuer.origin)
                self.end_headers()
                self.wfile.write(body)

        self.server = ThreadingHTTPServer(("127.0.0.1", port), Handler)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
