"""A proxy to a registry that counts requests."""

import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self


class CountingProxy:
    """Hands requests on to `target`; `requests` are their methods and paths, in order."""

    def __init__(self, target: str) -> None:
        self.requests: list[str] = []
        self.logins: list[str | None] = []
        self.failures_left = 0
        """So many requests are answered with 503."""
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def _pass(self) -> None:
                proxy.requests.append(f"{self.command} {self.path}")
                proxy.logins.append(self.headers.get("Authorization"))
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if proxy.failures_left:
                    proxy.failures_left -= 1
                    status, answer = 503, b"{}"
                else:
                    status, answer = forward(target + self.path, self.command, body)
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = _pass

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # How long a stop waits: half a second unless told otherwise, for every test.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def forward(url: str, method: str, body: bytes) -> tuple[int, bytes]:
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(url, body or None, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
