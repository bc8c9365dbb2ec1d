"""The names of pages in the prefix cache: a chain of digests, each over all that came before.

    root = SHA-256(domain, layout fingerprint, extra keys)
    page = SHA-256(domain, parent, token ids)

Every part is preceded by its length, and extra keys by their kind, so that no two different lists
of parts are the same bytes: tenant `ab` beside adapter `c` is not tenant `a` beside adapter `bc`.
"""

import hashlib
import sys
from array import array
from collections.abc import Mapping, Sequence

_ROOT_DOMAIN = b"rejoinder kv root 1"
_PAGE_DOMAIN = b"rejoinder kv page 1"


def root_digest(fingerprint: bytes, extra: Mapping[str, str]) -> bytes:
    """32 bytes. `fingerprint` is of all that decides what a token's keys and values are besides
    the tokens (`engine.kv.fingerprint`); `extra` says, by kind, who may share pages."""
    pairs = [part.encode() for pair in sorted(extra.items()) for part in pair]
    return _digest(_ROOT_DOMAIN, fingerprint, *pairs)


def page_digest(parent: bytes, token_ids: Sequence[int]) -> bytes:
    """32 bytes. `parent`: of the page before, or the root; `token_ids`: those of a full page."""
    return _digest(_PAGE_DOMAIN, parent, _packed(token_ids))


class PageChain:
    """The digests of one sequence's full pages, made as they are asked for."""

    def __init__(self, root: bytes, *, page_tokens: int, isolation: str = "") -> None:
        """`isolation`: what `root` says of who may share pages, for people to read."""
        self.isolation = isolation
        self._page_tokens = page_tokens
        self._digests = [root]

    def parent(self, index: int, token_ids: Sequence[int]) -> bytes:
        """Of page `index - 1`; the root for the first."""
        self._extend(token_ids, index)
        return self._digests[index]

    def page(self, index: int, token_ids: Sequence[int]) -> bytes:
        """Of page `index`, which `token_ids` fill. They only ever grow at their end."""
        self._extend(token_ids, index + 1)
        return self._digests[index + 1]

    def _extend(self, token_ids: Sequence[int], num_pages: int) -> None:
        for index in range(len(self._digests) - 1, num_pages):
            first = index * self._page_tokens
            page = token_ids[first : first + self._page_tokens]
            self._digests.append(page_digest(self._digests[-1], page))


def _packed(token_ids: Sequence[int]) -> bytes:
    """Four bytes a token, little endian."""
    packed = array("I", token_ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _digest(*parts: bytes) -> bytes:
    running = hashlib.sha256()
    for part in parts:
        running.update(len(part).to_bytes(8, "little"))
        running.update(part)
    return running.digest()
