"""The engine: requests in, text and finish reasons out, one step at a time. Not thread-safe."""

import itertools
import time

from torch.profiler import record_function

from engine.advancing import Event, advance
from engine.batch import Chunk, build_batch
from engine.errors import RequestRefused
from engine.grammars.grammar import Grammar
from engine.kv.dropping import Dropper
from engine.kv.paging import Paging
from engine.kv.pins import Pins
from engine.kv.pool import PagePool
from engine.kv.purges import EVERYTHING, Scope
from engine.kv.retention import Retention, Selection, retention
from engine.longcontext import LongContext
from engine.models.model import Model
from engine.phases import MODEL, SAMPLING, SCHEDULING
from engine.process.protocol import (
    Failed,
    Finished,
    Occupancy,
    Outline,
    Outlined,
    Purge,
    Purged,
    Sharing,
)
from engine.sampler import Pick, Sampler
from engine.sampling import Sampling
from engine.scheduler import Plan, Scheduled, Scheduler
from engine.sequence import Sequence
from engine.text.answer import Answer
from engine.text.tokenizer import Tokenizer

_WITH_ALL = Sharing()
_WHOLE = LongContext()


class Engine:
    """Continuous batching over one model and one pool of pages."""

    def __init__(
        self,
        *,
        model: Model,
        tokenizer: Tokenizer,
        pool: PagePool,
        paging: Paging,
        pins: Pins,
        max_context: int,
        max_batch: int,
        step_tokens: int,
        long_context: LongContext = _WHOLE,
    ) -> None:
        """`long_context`: of requests that do not say."""
        layout = pool.layout
        self.pages = paging.pages
        self._max_positions = min(max_context, model.shape.max_positions)
        self._long_context = long_context
        self._model = model
        self._tokenizer = tokenizer
        self._pool = pool
        self._paging = paging
        self._pins = pins
        self._dropper = Dropper(model, pool)
        self._scheduler = Scheduler(
            paging.pages,
            paging.prefix,
            slots=paging.slots,
            meter=paging.meter,
            page_tokens=layout.page_tokens,
            max_batch=max_batch,
            step_tokens=step_tokens,
            prepare=paging.archive.prepare,
        )
        self._sampler = Sampler(tokenizer)
        self._sequence_ids = itertools.count()
        self._num_steps = 0
        self._num_generated = 0

    @property
    def max_context(self) -> int:
        """Tokens of prompt and answer together, of requests that do not say how much stays."""
        return self._longest(self._retention(self._long_context, num_prompt=0))

    @property
    def max_positions(self) -> int:
        """Tokens of prompt and answer together, of any request."""
        return self._max_positions

    @property
    def num_steps(self) -> int:
        """That computed something, since the start."""
        return self._num_steps

    @property
    def busy(self) -> bool:
        """A step would do something."""
        return self._scheduler.num_running + self._scheduler.num_waiting > 0

    def add(
        self,
        request_id: int,
        prompt_ids: list[int],
        *,
        sampling: Sampling,
        num_choices: int = 1,
        sharing: Sharing = _WITH_ALL,
        grammar: Grammar | None = None,
        shown_ids: frozenset[int] = frozenset(),
        long_context: LongContext | None = None,
    ) -> None:
        """Queue a request. Each choice follows the grammar; control tokens in `shown_ids` become
        text; `long_context` None: as the engine's requests do. Raises RequestRefused for what can
        never be served."""
        kept = self._retention(long_context or self._long_context, num_prompt=len(prompt_ids))
        room = self._room(prompt_ids, sampling, longest=self._longest(kept))
        choices: list[Sequence] = []
        for index in range(num_choices):
            choices.append(
                Sequence(
                    sequence_id=next(self._sequence_ids),
                    request_id=request_id,
                    index=index,
                    prompt_ids=prompt_ids,
                    max_new_tokens=room,
                    sampling=sampling,
                    answer=Answer(
                        self._tokenizer, sampling.stop, shown_ids=shown_ids, after=prompt_ids[-1]
                    ),
                    chain=self._paging.archive.chain(sharing.isolation),
                    tags=None if sharing.tags is None else frozenset(sharing.tags),
                    num_pinned=self._pins.num_pinned(prompt_ids),
                    leader=choices[0] if choices and kept.shares else None,
                    matcher=None if grammar is None else grammar.matcher(),
                    retention=kept,
                )
            )
        if not self._paging.archive.receive(choices, sharing.as_of):
            self._unpublish(EVERYTHING)
        for sequence in choices:
            sequence.publishes = sequence.publishes and sharing.publishes
            self._scheduler.add(sequence)

    def abort(self, request_id: int) -> None:
        """Drop a request and free its pages at once. A no-op when it is unknown or done."""
        for sequence in self._scheduler.of_request(request_id):
            self._scheduler.remove(sequence)

    def step(self) -> list[Event]:
        """Compute one batch: what became of each sequence that got a token. Empty when idle."""
        with record_function(SCHEDULING):
            plan = self._plan()
        if not plan.work:
            return []
        sampled = [item.sequence for item in plan.work if item.samples]
        picks = self._compute(plan, sampled)
        with record_function(SCHEDULING):
            self._computed(plan)
        self._num_steps += 1
        events: list[Event] = []
        failed: set[int] = set()
        for sequence, pick in zip(sampled, picks, strict=True):
            if sequence.request_id in failed:
                continue
            self._num_generated += pick is not None
            happened = advance(sequence, pick, end_ids=self._tokenizer.end_ids)
            events += happened
            match happened[-1] if happened else None:
                case Finished():
                    self._scheduler.remove(sequence)
                case Failed(request_id=request_id):
                    failed.add(request_id)
                    self.abort(request_id)
        return events

    def purge(self, purge: Purge) -> Purged:
        """Drop the pages that it covers, on disk too, and let nothing in flight publish any that it
        would have covered. A dry run counts."""
        scope = Scope(tags=frozenset(purge.tags), everything=purge.everything)
        done = self._paging.archive.purge(scope, purge.moment, dry_run=purge.dry_run)
        if not purge.dry_run:
            self._unpublish(done.scope, done.places)
        return Purged(num_pages=done.num_pages)

    def occupancy(self) -> Occupancy:
        """What is in use now."""
        kept = self._paging.archive.holdings()
        counted = self._scheduler.counters
        return Occupancy(
            num_pages=self.pages.num_pages,
            free_pages=self.pages.num_available,
            cached_pages=kept.cached,
            pinned_pages=kept.pinned,
            disk_pages=kept.on_disk,
            swapped_pages=self._paging.slots.num_taken,
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting,
            preemptions=counted.preemptions,
            swaps=counted.swaps,
            prompt_tokens=counted.prompt_tokens,
            cached_tokens=counted.cached_tokens,
            restored_tokens=kept.restored * self._pool.layout.page_tokens,
            generated_tokens=self._num_generated,
            steps=self._num_steps,
            attention_calls=dict(self._model.attention_calls),
        )

    def outline(self, wanted: Outline) -> Outlined:
        """The prefix tree as it is now; on disk there is no such thing to see."""
        return self._paging.archive.outline(max_nodes=wanted.max_nodes)

    def _plan(self) -> Plan:
        """What to compute; its pages are in place."""
        plan = self._scheduler.plan()
        self._move(plan)
        return plan

    def _computed(self, plan: Plan) -> None:
        for item in plan.work:
            self._drop(item)
            self._scheduler.computed(item)
            self._paging.archive.file(item.sequence)

    def _move(self, plan: Plan) -> None:
        """Copy pages; what it took tells how dear the next preemption is."""
        started = time.perf_counter()
        self._paging.mover.run(plan.moves)
        self._paging.meter.copied(len(plan.moves), time.perf_counter() - started)

    def _compute(self, plan: Plan, sampled: list[Sequence]) -> list[Pick | None]:
        """One pass through the model; for each sequence that gets a token what the sampler says."""
        started = time.perf_counter()
        batch = build_batch(
            [self._chunk(item) for item in plan.work], page_tokens=self._pool.layout.page_tokens
        )
        with record_function(MODEL):
            logits = self._model.forward(batch, self._pool)
        with record_function(SAMPLING):
            picks = self._sampler.sample(logits, sampled)
        num_tokens = sum(item.num_tokens for item in plan.work)
        self._paging.meter.computed(num_tokens, time.perf_counter() - started)
        return picks

    def _unpublish(self, scope: Scope, places: frozenset[int] = frozenset()) -> None:
        """Sequences in flight that depend on what was purged publish nothing any more: those that
        carry a tag or hold a page of it, and those of which it cannot be told, being swapped out.
        """
        for sequence in self._scheduler.sequences():
            holds = not places.isdisjoint(self.pages.table(sequence.sequence_id))
            if scope.covers(sequence.tags) or holds or sequence.slots:
                sequence.publishes = False

    def _drop(self, item: Scheduled) -> None:
        """Of a prompt that this step has finished, what need not stay."""
        sequence, selection = item.sequence, item.sequence.retention
        ends_prompt = sequence.num_computed + item.num_tokens == sequence.num_prompt
        if isinstance(selection, Selection) and ends_prompt:
            num_pages = self._pool.layout.num_pages(sequence.num_prompt)
            pages = self.pages.table(sequence.sequence_id)[:num_pages]
            self._dropper.drop(sequence.token_ids[: sequence.num_prompt], pages, selection)

    def _retention(self, wanted: LongContext, *, num_prompt: int) -> Retention:
        return retention(
            wanted,
            num_prompt=num_prompt,
            page_tokens=self._pool.layout.page_tokens,
            model_window=max((window or 0 for window in self._model.shape.windows), default=0),
        )

    def _longest(self, kept: Retention) -> int:
        """What the model has positions for and the pages hold what stays of."""
        pool_tokens = self.pages.num_pages * self._pool.layout.page_tokens
        return min(self._max_positions, kept.longest(pool_tokens))

    def _room(self, prompt_ids: list[int], sampling: Sampling, *, longest: int) -> int:
        """The most tokens that the answer may have."""
        if not prompt_ids:
            raise RequestRefused("The prompt is empty.", param="prompt")
        # Models often have more rows than there are tokens, up to a round number.
        vocab_size = min(self._model.shape.vocab_size, self._tokenizer.vocab_size)
        if not all(0 <= token_id < vocab_size for token_id in prompt_ids):
            raise RequestRefused(f"Token ids lie in 0 … {vocab_size - 1}.", param="prompt")
        if not all(0 <= token_id < vocab_size for token_id in sampling.logit_bias):
            raise RequestRefused(f"Token ids lie in 0 … {vocab_size - 1}.", param="logit_bias")
        wanted = sampling.max_tokens
        if len(prompt_ids) + (1 if wanted is None else wanted) > longest:
            raise RequestRefused(
                f"This model's maximum context length is {longest} tokens. The prompt "
                f"has {len(prompt_ids)}, and {1 if wanted is None else wanted} more were asked "
                "for. Shorten the prompt or ask for less.",
                param="max_tokens" if len(prompt_ids) < longest else None,
                code="context_length_exceeded",
            )
        return longest - len(prompt_ids) if wanted is None else wanted

    def _chunk(self, item: Scheduled) -> Chunk:
        sequence = item.sequence
        first = sequence.num_computed
        return Chunk(
            token_ids=sequence.token_ids[first : first + item.num_tokens],
            first=first,
            pages=self.pages.table(sequence.sequence_id),
            samples=item.samples,
            num_lost=sequence.num_lost,
        )
