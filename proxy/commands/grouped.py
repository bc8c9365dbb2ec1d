"""A server's figures in lines for people: in groups under headings, with their units."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from proxy.commands.output import figure, money, share, size, span

_SHARES = frozenset({"hit_rate", "bound", "wrong_at_least", "wrong_at_most", "max_error"})

Row = tuple[str, str]


def stats_lines(stats: Mapping[str, Any]) -> Iterator[str]:
    """What `/cache/stats` says. Figures that this version does not know are shown as they are."""
    for number, (heading, rows) in enumerate(_groups(stats)):
        if number:
            yield ""
        yield heading
        yield from _aligned(list(rows))


def _groups(stats: Mapping[str, Any]) -> Iterator[tuple[str, Iterable[Row]]]:
    rest = dict(stats)
    requests, rate = rest.pop("requests", {}), rest.pop("hit_rate", None)
    yield "requests", (*_of_all(requests), ("hit rate", share(rate)))
    saved = rest.pop("saved", {})
    if saved:
        yield "saved since the start", _saved(saved)
    yield "now", _rows({name: one for name, one in rest.items() if _is_figure(one)})
    for name, value in rest.items():
        if isinstance(value, list) and value:
            yield name, map(_item, value)
        elif isinstance(value, dict):
            yield from _below(name, value)


def _below(name: str, value: Mapping[str, Any]) -> Iterator[tuple[str, Iterable[Row]]]:
    if value and all(isinstance(one, dict) for one in value.values()):
        for key, one in value.items():
            yield f"{name}: {key}", _rows(one)
    elif value:
        yield name, _rows(value)


def _of_all(requests: Mapping[str, int]) -> Iterator[Row]:
    total = sum(requests.values())
    for outcome, number in sorted(requests.items(), key=lambda item: -item[1]):
        yield outcome, f"{number:,}  {share(number / total):>6}"


def _saved(saved: Mapping[str, Any]) -> Iterator[Row]:
    yield "tokens", figure(saved["tokens"])
    yield "time", span(saved["seconds"])
    for currency, amount in saved["money"].items():
        yield "money", f"{money(amount)} {currency}"


def _item(one: Mapping[str, Any]) -> Row:
    """Named by its texts."""
    name = " ".join(value for value in one.values() if isinstance(value, str))
    figures = {key: value for key, value in one.items() if not isinstance(value, str)}
    counted = (f"{key.replace('_', ' ')} {value}" for key, value in _rows(figures))
    return name, ", ".join(counted)


def _rows(figures: Mapping[str, Any]) -> Iterator[Row]:
    for name, value in figures.items():
        if name.endswith("_bytes"):
            yield name.removesuffix("_bytes"), size(value)
        elif name in _SHARES and isinstance(value, float | int):
            yield name, share(value)
        else:
            yield name, figure(value)


def _aligned(rows: list[Row]) -> Iterator[str]:
    longest = max((len(name) for name, _ in rows), default=0)
    widest = max((len(value) for _, value in rows), default=0)
    for name, value in rows:
        yield f"  {name.replace('_', ' '):<{longest}}  {value:>{widest}}".rstrip()


def _is_figure(value: Any) -> bool:
    return not isinstance(value, dict | list)
