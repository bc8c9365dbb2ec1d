"""How many choices a request asks for, so that an answer with fewer is known to be half of one."""

from proxy.call import Call, Surface


def num_choices(call: Call) -> int | None:
    """`n` for every prompt. None when the request spells it in a way that each server may read
    differently. 1 on surfaces without choices."""
    match call.surface:
        case Surface.CHAT:
            return _asked(call.fields.get("n"))
        case Surface.COMPLETIONS:
            each = _asked(call.fields.get("n"))
            return None if each is None else each * _num_prompts(call.fields.get("prompt"))
        case Surface.EMBEDDINGS | Surface.RESPONSES:
            return 1


def _asked(n: object) -> int | None:
    if n is None:
        return 1
    return n if type(n) is int and n > 0 else None


def _num_prompts(prompt: object) -> int:
    """One, also as token ids; or a list of prompts, as texts or as token ids."""
    if not isinstance(prompt, list) or all(isinstance(token, int) for token in prompt):
        return 1
    return len(prompt)
