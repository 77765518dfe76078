"""Text that may leave this machine: without home folders, peers' paths, passwords and keys."""

from __future__ import annotations

import os
import re
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

MAX_LENGTH = 400
_READ_LENGTH = 4000

_URL_SECRET = re.compile(r"(?P<scheme>[a-zA-Z][\w+.-]*://)[^\s/@:]*(?::[^\s@]*)?@")
_QUERY_SECRET = re.compile(
    r"(?i)\b(?P<name>(?:api[_-]?key|access[_-]?token|token|password|passwd|secret)\s*[=:]\s*)"
    r"(?P<value>[^\s&,;'\"]+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{6,}")
_HOMES = re.compile(r"(?:/home/|/Users/)[^\s/'\":,;)]+|/root(?=/|\b)")
_SECRET_NAME = re.compile(r"(?i)(key|token|secret|password|passwd|credential)")


def hide_passwords(url: str) -> str:
    """A URL, or text that holds URLs, without the user and password in them."""
    return _URL_SECRET.sub(r"\g<scheme>***@", url)


class Scrubber:
    """Takes out of a text what must not be stored or shown.

    Args:
        paths: what to replace by which label, such as ``{"/opt/peer": "<peer NAME>"}``; longer
            paths are replaced first.
    """

    def __init__(self, paths: Mapping[str, str] | None = None) -> None:
        known = {str(Path(p).expanduser()): label for p, label in (paths or {}).items() if p}
        for path, label in list(known.items()):
            known.setdefault(os.path.realpath(path), label)
        for folder in (*sys.path, *(sysconfig.get_paths().get(k) or "" for k in ("stdlib",))):
            if folder and os.path.isabs(folder):
                known.setdefault(folder, "")
        known.setdefault(sys.prefix, "<python>")
        known.setdefault(os.path.realpath(tempfile.gettempdir()), "<tmp>")
        known.setdefault(os.getcwd(), ".")
        known.setdefault(os.path.expanduser("~"), "~")
        self._paths = sorted(
            ((p, label) for p, label in known.items() if len(p) > 1), key=lambda x: -len(x[0])
        )
        self._secrets = sorted(
            (v for k, v in os.environ.items() if _SECRET_NAME.search(k) and len(v) >= 8),
            key=lambda v: -len(v),
        )

    def __call__(self, text: str, limit: int = MAX_LENGTH) -> str:
        """The scrubbed text on one line, at most ``limit`` characters long."""
        if len(text) > _READ_LENGTH:  # a word that is cut could be half a secret
            text = text[:_READ_LENGTH].rsplit(None, 1)[0]
        text = text.encode("utf-8", "replace").decode()
        for secret in self._secrets:
            text = text.replace(secret, "***")
        text = hide_passwords(text)
        text = _QUERY_SECRET.sub(r"\g<name>***", text)
        text = _BEARER.sub(r"\1 ***", text)
        for path, label in self._paths:
            text = _replace_path(text, path, label)
        text = _HOMES.sub("~", text)
        text = " ".join(text.replace("\x00", " ").split())
        return text if len(text) <= limit else text[: limit - 1] + "…"


def _replace_path(text: str, path: str, label: str) -> str:
    """Replace a folder where it stands as a whole path, not as the beginning of another name."""
    if path not in text:
        return text
    tail = r"(?:/|(?![\w.-]))" if not label else r"(?![\w.-])"
    return re.sub(re.escape(path) + tail, lambda _: label, text)
