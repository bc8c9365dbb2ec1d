"""The engine: requests in, text and finish reasons out, one step at a time. Not thread-safe."""

import itertools

from engine.answer import Answer
from engine.batch import Chunk, build_batch
from engine.blocks import PageAllocator
from engine.errors import GrammarFault, RequestRefused
from engine.grammar import Grammar
from engine.model import Model
from engine.pool import PagePool
from engine.protocol import Delta, Failed, Finished, Occupancy
from engine.sampler import Pick, Sampler
from engine.sampling import Sampling
from engine.scheduler import Scheduled, Scheduler
from engine.sequence import Sequence
from engine.tokenizer import Tokenizer

Event = Delta | Finished | Failed


class Engine:
    """Continuous batching over one model and one pool of pages."""

    def __init__(
        self,
        *,
        model: Model,
        tokenizer: Tokenizer,
        pool: PagePool,
        max_context: int,
        max_batch: int,
        step_tokens: int,
    ) -> None:
        layout = pool.layout
        self.pages = PageAllocator(pool.storage.shape[0])
        self.max_context = min(
            max_context, model.shape.max_positions, self.pages.num_pages * layout.page_tokens
        )
        self._model = model
        self._tokenizer = tokenizer
        self._pool = pool
        self._scheduler = Scheduler(
            self.pages,
            page_tokens=layout.page_tokens,
            max_batch=max_batch,
            step_tokens=step_tokens,
        )
        self._sampler = Sampler(tokenizer)
        self._sequence_ids = itertools.count()
        self._num_steps = 0

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
        grammar: Grammar | None = None,
        shown_ids: frozenset[int] = frozenset(),
    ) -> None:
        """Queue a request. Each choice follows the grammar; control tokens in `shown_ids` become
        text. Raises RequestRefused for what can never be served."""
        room = self._room(prompt_ids, sampling)
        for index in range(num_choices):
            self._scheduler.add(
                Sequence(
                    sequence_id=next(self._sequence_ids),
                    request_id=request_id,
                    index=index,
                    prompt_ids=prompt_ids,
                    max_new_tokens=room,
                    sampling=sampling,
                    answer=Answer(self._tokenizer, sampling.stop, shown_ids=shown_ids),
                    matcher=None if grammar is None else grammar.matcher(),
                )
            )

    def abort(self, request_id: int) -> None:
        """Drop a request and free its pages at once. A no-op when it is unknown or done."""
        for sequence in self._scheduler.of_request(request_id):
            self._scheduler.remove(sequence)

    def step(self) -> list[Event]:
        """Compute one batch: what became of each sequence that got a token. Empty when idle."""
        planned = self._scheduler.plan()
        if not planned:
            return []
        batch = build_batch(
            [self._chunk(item) for item in planned], page_tokens=self._pool.layout.page_tokens
        )
        logits = self._model.forward(batch, self._pool)
        sampled = [item.sequence for item in planned if item.samples]
        picks = self._sampler.sample(logits, sampled)
        for item in planned:
            item.sequence.num_computed += item.num_tokens
        self._num_steps += 1
        events: list[Event] = []
        failed: set[int] = set()
        for sequence, pick in zip(sampled, picks, strict=True):
            if sequence.request_id not in failed:
                events += self._advance(sequence, pick)
            if events and isinstance(events[-1], Failed):
                failed.add(sequence.request_id)
        return events

    def occupancy(self) -> Occupancy:
        """What is in use now."""
        return Occupancy(
            num_pages=self.pages.num_pages,
            free_pages=self.pages.num_free,
            running=self._scheduler.num_running,
            waiting=self._scheduler.num_waiting,
            preemptions=self._scheduler.num_preemptions,
            steps=self._num_steps,
            attention_calls=dict(self._model.attention_calls),
        )

    def _room(self, prompt_ids: list[int], sampling: Sampling) -> int:
        """The most tokens that the answer may have."""
        if not prompt_ids:
            raise RequestRefused("The prompt is empty.", param="prompt")
        vocab_size = self._model.shape.vocab_size
        if not all(0 <= token_id < vocab_size for token_id in prompt_ids):
            raise RequestRefused(f"Token ids lie in 0 … {vocab_size - 1}.", param="prompt")
        if not all(0 <= token_id < vocab_size for token_id in sampling.logit_bias):
            raise RequestRefused(f"Token ids lie in 0 … {vocab_size - 1}.", param="logit_bias")
        wanted = sampling.max_tokens
        if len(prompt_ids) + (1 if wanted is None else wanted) > self.max_context:
            raise RequestRefused(
                f"This model's maximum context length is {self.max_context} tokens. The prompt "
                f"has {len(prompt_ids)}, and {1 if wanted is None else wanted} more were asked "
                "for. Shorten the prompt or ask for less.",
                code="context_length_exceeded",
            )
        return self.max_context - len(prompt_ids) if wanted is None else wanted

    def _chunk(self, item: Scheduled) -> Chunk:
        sequence = item.sequence
        first = sequence.num_computed
        return Chunk(
            token_ids=sequence.token_ids[first : first + item.num_tokens],
            first=first,
            pages=self.pages.table(sequence.sequence_id),
            samples=item.samples,
        )

    def _advance(self, sequence: Sequence, pick: Pick) -> list[Event]:
        """Append a token; finish the sequence where it ends."""
        sequence.token_ids.append(pick.token_id)
        if sequence.matcher is not None:
            try:
                sequence.matcher.accept(pick.token_id)
            except GrammarFault as error:
                return self._fail(sequence, error)
        if pick.token_id in self._tokenizer.end_ids:
            return self._finish(sequence, sequence.answer.close(), "stop")
        if pick.choice is not None:
            sequence.held_logprobs.append(pick.choice)
        cut = sequence.answer.push(pick.token_id)
        if cut.stopped:
            return self._finish(sequence, cut.text, "stop")
        if sequence.matcher is not None and sequence.matcher.complete:
            return self._finish(sequence, cut.text + sequence.answer.close(), "stop")
        if sequence.num_output == sequence.max_new_tokens:
            return self._finish(sequence, cut.text + sequence.answer.close(), "length")
        return [self._delta(sequence, cut.text)] if cut.text else []

    def _fail(self, sequence: Sequence, error: GrammarFault) -> list[Event]:
        """End the request, with all its choices."""
        self.abort(sequence.request_id)
        message = f"The answer's grammar gave out: {error}"
        return [Failed(request_id=sequence.request_id, message=message, code="grammar_fault")]

    def _finish(self, sequence: Sequence, text: str, reason: str) -> list[Event]:
        self._scheduler.remove(sequence)
        finished = Finished(
            request_id=sequence.request_id,
            index=sequence.index,
            reason=reason,
            completion_tokens=sequence.num_output,
        )
        return [self._delta(sequence, text), finished] if text else [finished]

    def _delta(self, sequence: Sequence, text: str) -> Delta:
        """Log-probabilities go out with the text of their tokens; those of a stop string that
        began at a token's border never do."""
        logprobs, sequence.held_logprobs = tuple(sequence.held_logprobs), []
        return Delta(
            request_id=sequence.request_id, index=sequence.index, text=text, logprobs=logprobs
        )
