"""A policy as it is written, and as it could be: a unified diff. Pure."""

import difflib
from typing import Any

import yaml

from proxy.analyzing.candidates import Candidate

_COMMENT = "# proposed by `rejoinder analyze`; nothing was changed"


def diff_of(name: str, written: dict[str, Any], chosen: tuple[Candidate, ...]) -> str:
    """`written`: the policy as its file has it."""
    if not chosen:
        return ""
    proposed = dict(written)
    for candidate in chosen:
        before = proposed.get(candidate.key) or []
        proposed[candidate.key] = [*before, candidate.value]
    lines = difflib.unified_diff(
        _lines(name, written),
        _lines(name, proposed),
        fromfile=f"policies.{name}",
        tofile=f"policies.{name} ({_COMMENT})",
        lineterm="",
    )
    return "\n".join(lines) + "\n"


def _lines(name: str, policy: dict[str, Any]) -> list[str]:
    text = yaml.safe_dump(
        {"policies": {name: policy}}, sort_keys=False, default_flow_style=False, width=1000
    )
    return text.splitlines()
