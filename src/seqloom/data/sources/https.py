"""An answer from a server, over https alone: also where a redirection leads."""

from http.client import HTTPMessage
from typing import IO, Protocol
from urllib import request
from urllib.parse import urlsplit

from seqloom.data.problems import escaped
from seqloom.errors import DataError
from seqloom.version import __version__

TIMEOUT = 30.0  # seconds in which nothing comes


class Answer(Protocol):
    """The body of what a server sends."""

    length: int | None  # bytes still to come, where the server said how many

    def read(self, size: int, /) -> bytes:
        """The next bytes; none at the end."""

    def close(self) -> None:
        """End the connection."""


class HttpsOnly(request.HTTPRedirectHandler):
    """Follows a redirection only to https."""

    def redirect_request(
        self, req: request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> request.Request | None:
        require_https(newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def require_https(url: str) -> None:
    """Raise DataError for an address of another scheme."""
    if urlsplit(url).scheme != "https":
        raise DataError(f"only https is spoken, and the address is {escaped(url)}", fix="find an https address")


def open_https(url: str, transport: request.BaseHandler | None = None) -> Answer:
    """The answer of the server at this address; OSError says why there is none. Tests give a transport of their own."""
    require_https(url)
    director = request.OpenerDirector()  # bare: `build_opener` would speak http, ftp and file as well
    director.addheaders = [("User-Agent", f"seqloom/{__version__}")]
    for handler in (
        request.ProxyHandler(),
        transport or request.HTTPSHandler(),
        request.HTTPDefaultErrorHandler(),
        request.HTTPErrorProcessor(),
        HttpsOnly(),
    ):
        director.add_handler(handler)
    answer: Answer = director.open(url, timeout=TIMEOUT)
    return answer
