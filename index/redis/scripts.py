"""The Lua scripts: each runs in Redis as one step, over the keys of one shard.

They are put together from `lua/`. Each counts as one that writes, also those that only read: so a
replica refuses it, and nobody is answered from counters that lag behind. All but `put` run when
Redis is out of memory, above all purges.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec

from index.redis.wire import Argument, Refused, Wire

_FOLDER = Path(__file__).with_name("lua")


class Script(msgspec.Struct, frozen=True):
    """Its text, and the digest by which Redis knows it."""

    source: str
    digest: str

    async def run(self, wire: Wire, shard: str, *arguments: Argument) -> Any:
        """Run it on the server of `wire`, whose run id it gets as its first argument.

        Raises Refused, with the word `LOST` when the server's counters cannot be believed.
        """
        try:
            return await wire.call("EVALSHA", self.digest, 1, shard, wire.run_id, *arguments)
        except Refused as refusal:
            if refusal.word != "NOSCRIPT":
                raise
        return await wire.call("EVAL", self.source, 1, shard, wire.run_id, *arguments)


def _script(name: str, *parts: str, flags: str = "#!lua flags=allow-oom") -> Script:
    texts = [(_FOLDER / f"{part}.lua").read_text(encoding="utf-8") for part in (*parts, name)]
    source = "\n".join([flags, *texts])
    digest = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(source, digest)


_READING = ("shard", "counters")
_WRITING = ("shard", "counters", "writing")

ACQUIRE = _script("acquire")
ADOPT = _script("adopt", "shard")
CHANGES = _script("changes", *_READING)
CHECK = _script("check", *_READING)
DELETE = _script("delete", *_WRITING)
EXAMINE = _script("examine", *_READING)
FORGET = _script("forget", *_READING)
GET = _script("get", *_READING)
PURGE = _script("purge", *_WRITING)
PUT = _script("put", *_WRITING, flags="#!lua")
RELEASE = _script("release")
SNAPSHOT = _script("snapshot", *_READING)
STATS = _script("stats", *_READING)
SWEEP = _script("sweep", *_WRITING)
TALLY = _script("tally")
TOUCH = _script("touch", *_WRITING)
WALK = _script("walk", *_READING)
