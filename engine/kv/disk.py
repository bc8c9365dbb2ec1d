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

    def is_of(self, page: KnownPage) -> bool:
        """A digest finds a page, the tokens confirm it."""
        return self.digest == page.digest and self.token_ids == page.token_ids


class PageFile:
    """The file, open and locked. Raises OSError where the disk fails."""

    def __init__(self, descriptor: int, shape: Shape, *, moment: Moment | None) -> None:
        """Made by `open`."""
        self._descriptor = descriptor
        self._shape = shape
        self._slot_bytes = _RECORD_BYTES + _whole_blocks(shape.page_bytes)
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
        if header is not None and header.version == FORMAT_VERSION and header.shape == shape:
            return cls(descriptor, shape, moment=header.moment)
        file = cls(descriptor, shape, moment=None)
        try:
            file.clear(None)
        except OSError:
            file.close()
            raise
        return file

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
        """Everything whose record is whole; `place` is the slot. The pages themselves are checked
        when they are read."""
        found = []
        for slot in range(self.num_slots):
            record = self._record(slot)
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

    def read(self, page: KnownPage) -> bytes | None:
        """What lies at its place; None where that is not this page as it was written."""
        record = self._record(page.place)
        if record is None or not record.is_of(page):
            return None
        first = self._at(page.place) + _RECORD_BYTES
        contents = os.pread(self._descriptor, self._shape.page_bytes, first)
        return contents if hashlib.sha256(contents).digest() == record.page_sha256 else None

    def write(self, page: KnownPage, contents: bytes) -> None:
        """At its place, whatever was there."""
        sha256 = hashlib.sha256(contents).digest()
        first = self._at(page.place)
        self._write(bytes(_RECORD_BYTES), first)
        padding = bytes(self._slot_bytes - _RECORD_BYTES - len(contents))
        self._write(contents + padding, first + _RECORD_BYTES)
        self._write(_encode(page, sha256), first)

    def retag(self, page: KnownPage) -> None:
        """Write the tags that the page has by now, if it lies at its place."""
        record = self._record(page.place)
        if record is not None and record.is_of(page):
            self._write(_encode(page, record.page_sha256), self._at(page.place))

    def blank(self, slot: int) -> None:
        """Overwrite what is there."""
        self._write(bytes(self._slot_bytes), self._at(slot))

    def erase(self, slots: list[int], moment: Moment | None) -> None:
        """Overwrite them, for good; then say that the pages have seen the purge of `moment`."""
        for slot in slots:
            self.blank(slot)
        os.fdatasync(self._descriptor)
        self._write_header(moment)

    def clear(self, moment: Moment | None) -> None:
        """Begin anew, without a page. The space is given back to the file system, which nobody can
        read it through any more; it is not overwritten."""
        os.ftruncate(self._descriptor, 0)
        self._write_header(moment)

    def keep(self, num_slots: int) -> None:
        """Give back what lies beyond the first ones."""
        if self.num_slots >= num_slots:
            os.ftruncate(self._descriptor, self._at(num_slots))

    def close(self) -> None:
        """Gives the file back. Idempotent."""
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
        self._write(block + hashlib.sha256(block).digest(), 0)
        os.fdatasync(self._descriptor)
        self.moment = moment

    def _record(self, slot: int) -> _Record | None:
        return _decode(os.pread(self._descriptor, _RECORD_BYTES, self._at(slot)))

    def _write(self, data: bytes, offset: int) -> None:
        """Whole, or OSError: a full disk takes a part first, and says so when asked again."""
        while data:
            num_written = os.pwrite(self._descriptor, data, offset)
            data, offset = data[num_written:], offset + num_written


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
