"""A stored answer in lines for people."""

from proxy.commands.adminapi import Entry
from proxy.commands.output import age, one_line, print_line, size

_PROMPT_CHARACTERS = 90


def print_entry(entry: Entry, *, now: float) -> None:
    """The whole key on a line of its own, so that it can be copied; then what it is."""
    left = entry.expires_at - now
    fresh = f"fresh for {age(left)}" if left > 0 else f"stale since {age(-left)}"
    tokens = f"{entry.input_tokens}+{entry.output_tokens} tokens"
    print_line(entry.key)
    print_line(
        f"  {entry.surface}  {entry.model} ({entry.upstream})  tenant {entry.tenant}"
        f"  {age(now - entry.created_at)} old, {fresh}  {tokens}  {size(entry.size_bytes)}"
    )
    if entry.prompt:
        print_line(f"  {one_line(entry.prompt, longest=_PROMPT_CHARACTERS)}")
    if entry.tags:
        print_line(f"  tags: {', '.join(entry.tags)}")
