"""A process of its own with a store open, for tests of several on one file or one Redis.

PATH is that of a SQLite file, or the URL of a Redis (with a filter of keys where it ends in
`#filter`).

python store_process.py serve PATH         calls on stdin, answers on stdout, one JSON a line
python store_process.py write PATH         puts and purges for ever, a line for each that is done
python store_process.py contend PATH SHARED SEED NUM_CALLS
python store_process.py fill PATH BYTES    puts under a limit on the size of files
"""

import asyncio
import json
import mmap
import random
import resource
import subprocess
import sys
from pathlib import Path

from sample_entries import NOW, entry, key_of

from index.errors import StoreFault
from index.redis import RedisStore
from index.sqlite import SqliteStore
from index.store import Purge, Stored

TAGS = 8


class Process:
    """Such a process, as the tests see it."""

    def __init__(self, *arguments):
        self.process = subprocess.Popen(
            [sys.executable, __file__, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def call(self, name, argument):
        self.process.stdin.write(json.dumps([name, argument]) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self, *, kill=False):
        """Kill it, or let it end; the answers that were not read yet, but for a torn last line."""
        if kill:
            self.process.kill()
        self.process.stdin.close()
        rest = self.process.stdout.read().splitlines(keepends=True)
        self.process.stdout.close()
        self.process.wait()
        return [json.loads(line) for line in rest if line.endswith("\n")]


async def open_store(path):
    if path.startswith("redis:"):
        url, _, filtered = path.partition("#")
        return await RedisStore.open(
            url,
            memory_bytes=2**22,
            max_bytes=2**28,
            filter_bytes=2**16 if filtered else 0,
            deadline_s=30,
            patient_s=30,
        )
    return await SqliteStore.open(Path(path), memory_bytes=2**22, disk_bytes=2**28)


def say(value):
    print(json.dumps(value), flush=True)


async def serve(path):
    store = await open_store(path)
    say("open")
    for line in sys.stdin:
        call, argument = json.loads(line)
        if call == "get":
            lookup = await store.get(key_of(argument), now=NOW)
            say([lookup.reason, lookup.entry and lookup.entry.payload.decode()])
        elif call == "put":
            name, payload, tags = argument
            one = entry(name, await store.snapshot(), payload=payload.encode(), extra_tags=tags)
            say(isinstance(await store.put(one), Stored))
        elif call == "purge":
            say((await store.purge(Purge(tags=(argument,)), now=NOW)).sequence)
        elif call == "delete":
            say(await store.delete(key_of(argument)))
    await store.close()


async def write(path):
    """Batches of puts, a purge after each: `doc:<batch>` of the batch before."""
    store = await open_store(path)
    batch = (await store.snapshot()).sequence
    while True:
        snapshot = await store.snapshot()

        async def put(number, batch=batch, snapshot=snapshot):
            name = f"{batch}-{number}"
            one = entry(name, snapshot, payload=name.encode() * 500, extra_tags=(f"doc:{batch}",))
            if isinstance(await store.put(one), Stored):
                say(["put", batch, name])

        await asyncio.gather(*map(put, range(20)))
        say(["purging", batch - 1, ""])
        await store.purge(Purge(tags=(f"doc:{batch - 1}",)), now=NOW)
        say(["purge", batch - 1, ""])
        batch += 1


async def contend(path, shared, seed, num_calls):
    """Put, get and purge at random. `shared` holds S of the last purge that returned, by tag."""
    chance = random.Random(int(seed))
    store = await open_store(path)
    hits = purges = violations = 0
    with Path(shared).open("r+b") as file, mmap.mmap(file.fileno(), TAGS * 8) as purged:
        for _ in range(int(num_calls)):
            tag = chance.randrange(TAGS)
            known = int.from_bytes(purged[tag * 8 : tag * 8 + 8], "big")
            lookup = await store.get(key_of(str(tag)), now=NOW)
            if lookup.entry is not None:
                hits += 1
                violations += lookup.entry.snapshot.sequence < known
            elif chance.random() < 0.5:
                await asyncio.sleep(chance.random() * 0.002)  # the answer is made
                one = entry(str(tag), lookup.snapshot, extra_tags=(f"doc:{tag}",))
                await store.put(one)
            if chance.random() < 0.05:
                sequence = (await store.purge(Purge(tags=(f"doc:{tag}",)), now=NOW)).sequence
                purged[tag * 8 : tag * 8 + 8] = sequence.to_bytes(8, "big")
                purges += 1
            if chance.random() < 0.01:
                await store.sweep(now=NOW)
    await store.close()
    say({"hits": hits, "purges": purges, "violations": violations})


async def fill(path, max_bytes):
    """What a full disk does: a write that fails in the middle. Then there is room again."""
    store = await open_store(path)
    snapshot = await store.snapshot()
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(max_bytes), hard))
    stored, fault = [], None
    while fault is None:
        name = str(len(stored))
        try:
            await store.put(entry(name, snapshot, payload=bytes(20_000)))
            stored.append(name)
        except StoreFault as error:
            fault = str(error)
    found = [(await store.get(key_of(name), now=NOW)).reason for name in stored]
    absent = (await store.get(key_of(name), now=NOW)).reason
    try:
        await store.purge(Purge(everything=True), now=NOW)
        purged = "purged"
    except StoreFault:
        purged = "fault"
    after = [(await store.get(key_of(one), now=NOW)).reason for one in stored]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    again = await store.put(entry("again", await store.snapshot()))
    await store.check_integrity()
    await store.close()
    say(
        {
            "stored": len(stored), "found": sorted(set(found)), "absent": absent, "fault": fault,
            "purged": purged, "after": sorted(set(after)), "again": isinstance(again, Stored),
        }
    )  # fmt: skip


if __name__ == "__main__":
    commands = {"serve": serve, "write": write, "contend": contend, "fill": fill}
    asyncio.run(commands[sys.argv[1]](*sys.argv[2:]))
