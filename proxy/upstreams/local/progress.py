"""What is said while a model comes and loads."""

from collections.abc import Callable

from engine.process.protocol import Loading


def in_quarters(model_id: str, say: Callable[[str], None]) -> Callable[[Loading], None]:
    """Say only what crosses a quarter, and every beginning."""
    said = ""

    def hear(loading: Loading) -> None:
        nonlocal said
        quarter = int(loading.fraction * 4) / 4
        line = f"loading {model_id} {quarter:.0%}"
        if loading.downloading:
            line = f"downloading {model_id}"
        if line != said:
            said = line
            say(line)

    return hear
