"""Names that are not ours to choose, as labels of metrics."""

MAX_NAMES = 100
OTHER = "other"


class Names:
    """Clients and upstreams name models as they like, and each name stays in the metrics for good:
    those beyond the first hundred are counted together, as `other`."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """The name itself, while there is room."""
        if name not in self._known:
            if len(self._known) >= MAX_NAMES:
                return OTHER
            self._known.add(name)
        return name
