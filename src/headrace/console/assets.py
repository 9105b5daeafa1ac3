"""The files of the console's pages: scripts, styles and the one HTML page, from `console/assets`.

Vite names files by their contents, so browsers keep them for ever; only the HTML page is asked for
again. Every path that is not a file gets the HTML page: the router in the browser shows it.
"""

import gzip
import mimetypes
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from headrace.console.console_request import ConsoleRequest
from headrace.service.errors import HttpError, StartFailure
from headrace.service.responses import HttpContent

FOLDER = Path(__file__).parent / "assets"
COMPRESSED = frozenset({".css", ".html", ".js", ".json", ".svg"})
PAGE = "/index.html"
FOR_EVER = "public, max-age=31536000, immutable"

SECURITY_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; font-src 'self'; manifest-src 'self'; base-uri 'none'; "
        "form-action 'self'; frame-ancestors 'none'; require-trusted-types-for 'script'; "
        "trusted-types 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""On every response of the console."""


class Assets:
    """The files by their paths, in memory from when they are first asked for or all are read."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files
        self._content = cache(_content)

    def read_all(self) -> None:
        """Reads and compresses all files, so that they stay when another version is installed."""
        for path in self._files.values():
            self._content(path)

    async def serve(self, request: ConsoleRequest) -> object:
        """The file of a path, or the page."""
        path = unquote(request.path["path"])
        if path.startswith("/api/"):
            raise HttpError(404, "HTTP 404 Not Found")
        found = self._files.get(path)
        if found is None and path.startswith("/assets/"):
            raise HttpError(404, f"{path[:200]} is not a file of this version; reload the page")
        return self._content(found or self._files[PAGE])


def load_assets(folder: Path = FOLDER) -> Assets:
    """Finds the files; raises StartFailure if they have not been built."""
    if not (folder / "index.html").is_file():
        raise StartFailure(
            "this installation has no console pages; in a checkout run `make console`, "
            "otherwise install a wheel of headrace"
        )
    return Assets(
        {
            f"/{path.relative_to(folder).as_posix()}": path
            for path in folder.rglob("*")
            if path.is_file()
        }
    )


def _content(path: Path) -> HttpContent:
    body = path.read_bytes()
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    headers = {"cache-control": FOR_EVER if path.parent.name == "assets" else "no-cache"}
    if path.suffix in COMPRESSED:
        # All browsers accept gzip.
        body = gzip.compress(body, mtime=0)
        headers["content-encoding"] = "gzip"
        kind += "; charset=utf-8"
    return HttpContent(body, kind, headers)
