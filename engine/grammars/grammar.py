"""Constraints as grammars over the vocabulary, by llguidance: which tokens may come next."""

import json
import threading
from collections import OrderedDict
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from engine.errors import RequestRefused
from engine.grammars.constraint import Constraint, Function
from engine.grammars.matcher import Matcher, first_line
from engine.text.tokenizer import Tokenizer
from engine.text.toolformat import ToolFormat

_MAX_KEPT = 64
# White space is bounded: small models write it without end where nothing else is as likely.
_OPTIONS = {"whitespace_pattern": "[ \\n\\t]{1,24}"}


class Grammar:
    """A compiled constraint; each choice gets a matcher of its own."""

    def __init__(self, start: LLMatcher, *, vocab_size: int) -> None:
        self._start = start
        self._vocab_size = vocab_size

    def matcher(self) -> Matcher:
        return Matcher(self._start.deep_copy(), vocab_size=self._vocab_size)


class Grammars:
    """Compiles, and keeps the grammars used last. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer, tools: ToolFormat) -> None:
        self._tokenizer = tokenizer
        self._tools = tools
        self._vocabulary: LLTokenizer | None = None
        self._limits = LLParserLimits(verbose_errors=False)
        self._kept: OrderedDict[Constraint, Grammar] = OrderedDict()
        self._lock = threading.Lock()

    def kept(self, constraint: Constraint) -> Grammar | None:
        """The grammar, where it is compiled already."""
        with self._lock:
            grammar = self._kept.get(constraint)
            if grammar is not None:
                self._kept.move_to_end(constraint)
            return grammar

    def compile(self, constraint: Constraint) -> Grammar:
        """Takes up to seconds for a large schema (the library's limits bound it), without holding
        up other threads. Raises RequestRefused for what is no schema or cannot be enforced."""
        grammar = self.kept(constraint)
        if grammar is None:
            grammar = self._compiled(constraint)
            with self._lock:
                self._kept[constraint] = grammar
                if len(self._kept) > _MAX_KEPT:
                    self._kept.popitem(last=False)
        return grammar

    def _compiled(self, constraint: Constraint) -> Grammar:
        if self._vocabulary is None:
            self._vocabulary = _vocabulary(self._tokenizer)
        mark_id = self._tokenizer.silent_ids.get(self._tools.opening)
        lark = _lark(constraint, self._tools, mark_id)
        start = LLMatcher(self._vocabulary, lark, log_level=0, limits=self._limits)
        if start.is_error():
            raise RequestRefused(
                f"This cannot be enforced: {first_line(start.get_error())}",
                param=constraint.param,
            )
        return Grammar(start, vocab_size=self._tokenizer.vocab_size)


class _Vocabulary:
    """What llguidance reads of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = range(tokenizer.vocab_size)
        self.eos_token_id = min(tokenizer.end_ids)
        self.bos_token_id = None
        self.tokens = [tokenizer.bytes_of(i) or tokenizer.name(i).encode() for i in ids]
        self.special_token_ids = [i for i in ids if not tokenizer.bytes_of(i)]
        self._tokenizer = tokenizer

    def __call__(self, text: str | bytes) -> list[int]:
        """How the model would spell text that the grammar forces."""
        written = text if isinstance(text, str) else text.decode(errors="replace")
        return self._tokenizer.encode_plain(written)


def _vocabulary(tokenizer: Tokenizer) -> LLTokenizer:
    if not tokenizer.end_ids:
        raise RequestRefused("This model has no end token, which structured output needs.")
    return LLTokenizer(
        TokenizerWrapper(_Vocabulary(tokenizer)), eos_token=sorted(tokenizer.end_ids)
    )


def _lark(constraint: Constraint, tools: ToolFormat, mark_id: int | None) -> str:
    """The grammar in llguidance's dialect of Lark."""
    rules = []
    starts = []
    if constraint.schema is not None:
        starts.append("json")
        rules.append(f"json: {_json(constraint.schema, strict=constraint.strict)}")
    if constraint.tools:
        starts.append("calls")
        rules += _call_rules(constraint, tools, mark_id)
    return "\n".join([f"start: {' | '.join(starts)}", *rules])


def _call_rules(constraint: Constraint, tools: ToolFormat, mark_id: int | None) -> list[str]:
    parallel = constraint.parallel
    opening = f"<[{mark_id}]>" if mark_id is not None else _quoted(tools.opening)
    names = [f"call_{number}" for number in range(len(constraint.tools))]
    rules = [f"call: {' | '.join(names)}"]
    rules += [
        f"{name}: {_call(tool, tools)}" for name, tool in zip(names, constraint.tools, strict=True)
    ]
    if tools.is_list:
        more = ' (", " call)*' if parallel else ""
        return [f'calls: {opening} "[" call{more} "]"', *rules]
    if not tools.opening:
        return ["calls: call", *rules]
    more = ' ("\\n" marked)*' if parallel else ""
    marked = f'marked: {opening} "\\n" call {_quoted(chr(10) + tools.closing)}'
    return [f"calls: marked{more}", marked, *rules]


def _call(tool: Function, tools: ToolFormat) -> str:
    head = f'{{"name": {json.dumps(tool.name, ensure_ascii=False)}, "{tools.arguments}": '
    return f'{_quoted(head)} {_json(tool.schema, strict=tool.strict)} "}}"'


def _json(schema: str, *, strict: bool) -> str:
    decoded: dict[str, Any] = json.loads(schema)
    options = _OPTIONS | {"lenient": not strict}
    return f"%json {json.dumps(decoded | {'x-guidance': options})}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
