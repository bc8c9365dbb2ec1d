"""A Bloom filter: which keys were surely never added. Pure.

Bloom (1970); two hashes stand for all (Kirsch and Mitzenmacher 2006); it grows by further slices
(Almeida and others 2007), each for twice as many keys, so that nobody has to know their number.
"""

BITS_A_KEY = 12
NUM_PROBES = 8
"""With so many bits and probes about 1 in 300 keys that were never added seem to be there."""
FIRST_KEYS = 2**14
"""What the first slice has room for."""

_HALF = (1 << 32) - 1


class BloomFilter:
    """Never forgets a key. Python's own hash of strings is what is used: of use in one process."""

    def __init__(self, *, max_bytes: int) -> None:
        """`max_bytes`: it does not grow beyond; then it is `full`."""
        self.max_bytes = max_bytes
        self._slices = [_Slice(min(FIRST_KEYS, max_bytes * 8 // BITS_A_KEY))]

    def __contains__(self, key: str) -> bool:
        """False: surely never added. True: added, or it seems so."""
        digest = hash(key)
        return any(one.has(digest) for one in self._slices)

    def add(self, key: str) -> None:
        """From now on it is there, unless the filter is `full`. A no-op when it is already."""
        if key in self:
            return
        last = self._slices[-1]
        if not last.room:
            size_bytes = 2 * len(last.bits)
            if self.num_bytes + size_bytes > self.max_bytes:
                return
            last = _Slice(size_bytes * 8 // BITS_A_KEY)
            self._slices.append(last)
        last.add(hash(key))

    @property
    def full(self) -> bool:
        """Keys were turned away, or will be: it cannot say any more what was never added."""
        last = self._slices[-1]
        return not last.room and self.num_bytes + 2 * len(last.bits) > self.max_bytes

    @property
    def num_bytes(self) -> int:
        """What it takes."""
        return sum(len(one.bits) for one in self._slices)


class _Slice:
    """A filter of fixed size, with `room` for so many keys more."""

    def __init__(self, num_keys: int) -> None:
        self.room = num_keys
        self.bits = bytearray(max(1, num_keys * BITS_A_KEY // 8))
        self._num_bits = len(self.bits) * 8

    def has(self, digest: int) -> bool:
        at, step = digest & _HALF, (digest >> 32) | 1
        for _ in range(NUM_PROBES):
            bit = at % self._num_bits
            if not self.bits[bit >> 3] & 1 << (bit & 7):
                return False
            at += step
        return True

    def add(self, digest: int) -> None:
        at, step = digest & _HALF, (digest >> 32) | 1
        for _ in range(NUM_PROBES):
            bit = at % self._num_bits
            self.bits[bit >> 3] |= 1 << (bit & 7)
            at += step
        self.room -= 1
