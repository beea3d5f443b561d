"""An app that knows two headers: X-User-Id on its pages, and the Authorization of its publications.

HUB_TOKEN is a publisher's token: hubgate token --iss SITE --aud SITE/.well-known/hub --key @FILE --publish '*'
"""
import os
import sys
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import Request, urlopen

SITE = os.environ.get("SITE", "http://localhost:8080")
SESSIONS = {"s-alice": "alice", "s-bob": "bob"}


class App(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get("session")
        user = SESSIONS.get(cookie.value) if cookie else None
        path = urlsplit(self.path)
        if path.path == "/notify":
            notify(parse_qs(path.query)["user"][0], "hello")
        self.answer(f"hello, {user or 'guest'}", user if path.path != "/logout" else None)

    def answer(self, text, user):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if user:
            self.send_header("X-User-Id", user)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def notify(user, text):
    fields = {"topic": f"{SITE}/users/{user}/notes", "data": text, "private": "on"}
    request = Request(f"{SITE}/.well-known/hub", data=urlencode(fields).encode())
    request.add_header("Authorization", f"Bearer {os.environ['HUB_TOKEN']}")
    urlopen(request).close()


server = ThreadingHTTPServer(("localhost", int(os.environ.get("APP_PORT", "3000"))), App)
print("app: listening", file=sys.stderr, flush=True)
server.serve_forever()
