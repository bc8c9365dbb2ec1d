"""A file of pages: found again after a restart, or not at all, but never misread.

    header   4 KiB: magic, length, JSON (format version, fingerprint, sizes, last purge), SHA-256
    slots    each 8 KiB of record (length, msgpack, SHA-256), then the page, up to a block's border

A record names its page's tokens, tags and digests, and has the SHA-256 of the page. It is written
after the page, so whatever stopped a write, the slot does not check and counts as free. One process
at a time has the file; it is as confidential as the prompts, and only its owner may read it.
"""

import fcntl
import hashlib
import logging
import mmap
import os
import struct
from pathlib import Path
from typing import Self

import msgspec

from engine.errors import EngineError
from engine.kv.tree import KnownPage
from engine.process.protocol import Moment

FORMAT_VERSION = 1
_MAGIC = b"RJKVPAGE"
_BLOCK_BYTES = 4096
_RECORD_BYTES = 2 * _BLOCK_BYTES
_LENGTH = struct.Struct("<I")
_SHA_BYTES = 32
_ROOM_BYTES = _RECORD_BYTES - _LENGTH.size - _SHA_BYTES

log = logging.getLogger("engine.kv.disk")


class FileBusy(EngineError):
    """Another engine has the file."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """What a file's pages have to be like, to be of use here."""

    fingerprint: str
    """In hex; see `engine.kv.fingerprint`."""
    page_bytes: int
    page_tokens: int


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    shape: Shape
    moment: Moment | None


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    digest: bytes
    parent: bytes
    token_ids: tuple[int, ...]
    tags: tuple[str, ...] | None
    page_sha256: bytes


class PageFile:
    """The file, open and locked. Raises OSError where the disk fails."""

    def __init__(self, descriptor: int, shape: Shape, *, moment: Moment | None) -> None:
        """Made by `open`."""
        self._descriptor = descriptor
        self._shape = shape
        self._slot_bytes = _RECORD_BYTES + _whole_blocks(shape.page_bytes)
        self._map: mmap.mmap | None = None
        self.moment = moment
        """The last purge that its pages have seen; None for a new file."""

    @classmethod
    def open(cls, path: Path, shape: Shape) -> Self:
        """Opens the file, or begins a new one where there is none or it is of no use: pages of
        another model or mode are erased, what is no such file at all is moved aside. Raises
        FileBusy, OSError."""
        descriptor = _locked(path)
        if os.fstat(descriptor).st_size and os.pread(descriptor, len(_MAGIC), 0) != _MAGIC:
            aside = path.with_name(f"{path.name}.aside")
            log.warning("%s is no file of pages: moved to %s", path, aside)
            path.rename(aside)
            os.close(descriptor)
            descriptor = _locked(path)
        header = _read_header(descriptor)
        if header is None or header.version != FORMAT_VERSION or header.shape != shape:
            file = cls(descriptor, shape, moment=None)
            file.clear(None)
            return file
        return cls(descriptor, shape, moment=header.moment)

    @property
    def page_tokens(self) -> int:
        return self._shape.page_tokens

    @property
    def slot_bytes(self) -> int:
        return self._slot_bytes

    @property
    def num_slots(self) -> int:
        """Slots that lie wholly in the file."""
        return max(os.fstat(self._descriptor).st_size - _BLOCK_BYTES, 0) // self._slot_bytes

    def pages(self) -> list[KnownPage]:
        """Everything whose record is whole. The pages themselves are checked when they are read."""
        found = []
        for slot in range(self.num_slots):
            first = self._at(slot)
            record = _decode(self._mapped()[first : first + _RECORD_BYTES])
            if record is not None:
                tags = None if record.tags is None else frozenset(record.tags)
                found.append(
                    KnownPage(
                        digest=record.digest,
                        parent=record.parent,
                        token_ids=record.token_ids,
                        place=slot,
                        tags=tags,
                    )
                )
        return found

    def read(self, slot: int) -> bytes | None:
        """The page in a slot; None where it is not what was written."""
        if slot >= self.num_slots:
            return None
        first = self._at(slot)
        record = _decode(self._mapped()[first : first + _RECORD_BYTES])
        if record is None:
            return None
        first += _RECORD_BYTES
        page = self._mapped()[first : first + self._shape.page_bytes]
        return page if hashlib.sha256(page).digest() == record.page_sha256 else None

    def write(self, page: KnownPage, slot: int, contents: bytes) -> None:
        """Into a free slot, or in place of what was there."""
        sha256 = hashlib.sha256(contents).digest()
        os.pwrite(self._descriptor, bytes(_RECORD_BYTES), self._at(slot))
        padding = bytes(self._slot_bytes - _RECORD_BYTES - len(contents))
        os.pwrite(self._descriptor, contents + padding, self._at(slot) + _RECORD_BYTES)
        os.pwrite(self._descriptor, _encode(page, sha256), self._at(slot))

    def retag(self, page: KnownPage, slot: int) -> None:
        """Write the tags that the page in the slot has by now."""
        # The map is the reader's, which may be another thread.
        record = _decode(os.pread(self._descriptor, _RECORD_BYTES, self._at(slot)))
        if record is not None:
            os.pwrite(self._descriptor, _encode(page, record.page_sha256), self._at(slot))

    def erase(self, slots: list[int], moment: Moment | None) -> None:
        """Overwrite them, for good; then say that the pages have seen the purge of `moment`."""
        for slot in slots:
            os.pwrite(self._descriptor, bytes(self._slot_bytes), self._at(slot))
        os.fdatasync(self._descriptor)
        self._write_header(moment)

    def clear(self, moment: Moment | None) -> None:
        """Begin anew, without a page."""
        self._unmap()
        os.ftruncate(self._descriptor, 0)
        self._write_header(moment)

    def close(self) -> None:
        """Gives the file back. Idempotent."""
        self._unmap()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _at(self, slot: int) -> int:
        return _BLOCK_BYTES + slot * self._slot_bytes

    def _write_header(self, moment: Moment | None) -> None:
        header = _Header(version=FORMAT_VERSION, shape=self._shape, moment=moment)
        text = msgspec.json.encode(header)
        block = _MAGIC + _LENGTH.pack(len(text)) + text
        block = block.ljust(_BLOCK_BYTES - _SHA_BYTES, b"\0")
        os.pwrite(self._descriptor, block + hashlib.sha256(block).digest(), 0)
        os.fdatasync(self._descriptor)
        self.moment = moment

    def _mapped(self) -> mmap.mmap:
        size = os.fstat(self._descriptor).st_size
        if self._map is None or len(self._map) != size:
            self._unmap()
            self._map = mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ)
        return self._map

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
            self._map = None


def _locked(path: Path) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise FileBusy(f"{path} is in use by another engine") from error
    return descriptor


def _read_header(descriptor: int) -> _Header | None:
    block = os.pread(descriptor, _BLOCK_BYTES, 0)
    if len(block) < _BLOCK_BYTES:
        return None
    written, sha256 = block[:-_SHA_BYTES], block[-_SHA_BYTES:]
    if hashlib.sha256(written).digest() != sha256:
        return None
    (length,) = _LENGTH.unpack_from(written, len(_MAGIC))
    first = len(_MAGIC) + _LENGTH.size
    try:
        return msgspec.json.decode(written[first : first + length], type=_Header)
    except msgspec.MsgspecError:
        return None  # of a version with other fields


def _decode(block: bytes) -> _Record | None:
    """None where the block is no whole record."""
    if len(block) < _RECORD_BYTES:
        return None
    (length,) = _LENGTH.unpack_from(block)
    if not 0 < length <= _ROOM_BYTES:
        return None
    written, sha256 = block[:-_SHA_BYTES], block[-_SHA_BYTES:]
    if hashlib.sha256(written).digest() != sha256:
        return None
    return msgspec.msgpack.decode(written[_LENGTH.size :][:length], type=_Record)


def _encode(page: KnownPage, page_sha256: bytes) -> bytes:
    """A record's block. Where there is no room for the tags, any purge takes the page."""
    record = _Record(
        digest=page.digest,
        parent=page.parent,
        token_ids=page.token_ids,
        tags=None if page.tags is None else tuple(sorted(page.tags)),
        page_sha256=page_sha256,
    )
    text = msgspec.msgpack.encode(record)
    if len(text) > _ROOM_BYTES:
        text = msgspec.msgpack.encode(msgspec.structs.replace(record, tags=None))
    block = (_LENGTH.pack(len(text)) + text).ljust(_RECORD_BYTES - _SHA_BYTES, b"\0")
    return block + hashlib.sha256(block).digest()


def _whole_blocks(num_bytes: int) -> int:
    return -(-num_bytes // _BLOCK_BYTES) * _BLOCK_BYTES
