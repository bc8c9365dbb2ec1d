"""A policy as its config has it, and as it could be: a unified diff. Pure."""

import difflib
from typing import Any

from proxy.analyzing.candidates import Candidate
from proxy.analyzing.tiers import Written
from proxy.analyzing.written import write_lines

_COMMENT = "# proposed by `rejoinder analyze`; nothing was changed"


def diff_of(
    name: str,
    document: dict[str, Any],
    chosen: tuple[Candidate, ...],
    *,
    tier: Written | None,
    embedder: str,
) -> str:
    """`document`: the config, as `read_written` has it. `tier`: what a policy without `semantic` is
    to begin with, by the model `embedder`."""
    if not chosen and tier is None:
        return ""
    written = (document.get("policies") or {}).get(name) or {}
    proposed = dict(written)
    for candidate in chosen:
        before = proposed.get(candidate.key) or []
        proposed[candidate.key] = [*before, candidate.value]
    if tier is not None:
        proposed["semantic"] = dict(tier)
    is_lacking = tier is not None and not document.get("embedder")
    lines = difflib.unified_diff(
        write_lines({"policies": {name: written}}),
        write_lines(
            ({"embedder": {"model": embedder}} if is_lacking else {})
            | {"policies": {name: proposed}}
        ),
        fromfile=f"policies.{name}",
        tofile=f"policies.{name} ({_COMMENT})",
        lineterm="",
    )
    return "\n".join(lines) + "\n"
