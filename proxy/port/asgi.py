"""ASGI's callables as this proxy uses them (https://asgi.readthedocs.io, HTTP)."""

from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Coroutine[Any, Any, None]]
"""Of scope, receive and send, whose types each library spells in its own way."""
