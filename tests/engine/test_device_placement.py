"""Whole engines with `device: cuda`, on a GPU that is not there: what lies on the wrong device is
an error, and the answers are those of the CPU."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import torch
from devicekit import CUDA, GPU, Graph, WrongDevice
from devicekit import gpu as gpu
from enginekit import Tiny, write_tiny
from test_families import _saved
from test_shelf import end
from vocabularykit import train_byte_level

from engine.attention import triton_pages
from engine.batch import StepBatch
from engine.config import EngineConfig
from engine.engine import Engine
from engine.grammars.constraint import Constraint
from engine.loading import Loaded, load
from engine.longcontext import LongContext
from engine.process.protocol import Delta, Finished, Moment, Purge, Sharing
from engine.sampling import Sampling

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3")
BEGIN = list(range(40, 77))
AS_OF = Moment(generation="g", sequence=0)
GREEDY = Sampling(temperature=0, max_tokens=12, ignore_eos=True)
SAMPLINGS = (
    GREEDY,
    Sampling(temperature=0, max_tokens=9, top_logprobs=3, ignore_eos=True),
    Sampling(seed=1, max_tokens=50, ignore_eos=True, top_logprobs=0),
    Sampling(seed=2, max_tokens=20, temperature=1.5, top_k=9, top_p=0.9, min_p=0.01),
    Sampling(
        temperature=0, max_tokens=50, min_tokens=50, frequency_penalty=0.5, presence_penalty=0.3,
        repetition_penalty=1.2, logit_bias={50: 3.0, 51: -100.0},
    ),
)  # fmt: skip
Answers = dict[tuple[int, int], list[Any]]


class OnCPU(NamedTuple):
    """What a model says there."""

    model: Path
    answers: Answers
    page_bytes: int


@pytest.fixture(scope="module", params=FAMILIES)
def on_cpu(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OnCPU:
    """Of each family, one layer of it with a window where there may be one."""
    path = tmp_path_factory.mktemp(request.param)
    tokenizer = train_byte_level()
    size = tokenizer.get_vocab_size()
    sizes = {"vocab_size": size, "eos_token_id": size - 1, "num_hidden_layers": 2}
    window = {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": 24}
    _saved(path, request.param, **sizes, **window)
    tokenizer.save(str(path / "tokenizer.json"))
    (path / "tokenizer_config.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    loaded = _loaded(path, device="cpu")
    return OnCPU(path, _asked(loaded), loaded.ready.page_bytes)


def _loaded(model: Path, **fields: Any) -> Loaded:
    kept = {
        "device": "cuda", "weights": "fp32", "kv_dtype": "fp32", "kv_memory_bytes": 2**20,
        "page_tokens": 16, "step_tokens": 16, "max_context": 200, "threads": 1,
    }  # fmt: skip
    return load(EngineConfig(model=str(model), **(kept | fields)), lambda _: None)


def _answers(engine: Engine) -> Answers:
    """Texts, and tokens with their log-probabilities, by request and choice."""
    found: Answers = {}
    while engine.busy:
        for event in engine.step():
            said = found.setdefault((event.request_id, event.index), [])
            match event:
                case Delta():
                    said += [(c.chosen.token, round(c.chosen.logprob, 3)) for c in event.logprobs]
                    said.append(event.text)
                case Finished():
                    said += [event.reason, event.completion_tokens]
        engine.pages.check_integrity()
    return found


def _asked(loaded: Loaded, samplings: Sequence[Sampling] = SAMPLINGS) -> Answers:
    """Some of all that an engine can be asked."""
    engine = loaded.engine
    for number, sampling in enumerate(samplings):
        prompt = [*BEGIN, *range(number, number + 12)]
        sharing = Sharing(tags=("a",), as_of=AS_OF)
        engine.add(number, prompt, sampling=sampling, num_choices=1 + number % 2, sharing=sharing)
    grammar = loaded.grammars.compile(Constraint(schema='{"type": "object"}'))
    engine.add(10, BEGIN, sampling=Sampling(seed=3, max_tokens=12), grammar=grammar)
    window = LongContext(mode="window", sinks=4, window=32)
    engine.add(11, BEGIN * 3, sampling=GREEDY, long_context=window)
    drop = LongContext(mode="drop", sinks=4, keep=48)
    engine.add(12, BEGIN * 2, sampling=GREEDY, long_context=drop)
    return _answers(engine)


def test_each_family_answers_on_a_gpu_as_on_the_cpu(on_cpu: OnCPU, gpu: GPU) -> None:
    """In too few pages for all."""
    loaded = _loaded(on_cpu.model, kv_memory_bytes=8 * on_cpu.page_bytes)
    assert _asked(loaded) == on_cpu.answers
    now = loaded.engine.occupancy()
    assert set(now.attention_calls) == {"triton"}
    assert (now.swaps > 0, now.cached_tokens > 0) == (True, True), now
    assert sum(graph.num_replays for graph in gpu.graphs) > len(gpu.graphs) > 1


def test_rounded_weights_and_pages_lie_on_the_gpu_and_say_nearly_the_same(
    on_cpu: OnCPU, gpu: GPU
) -> None:
    loaded = _loaded(
        on_cpu.model, weights="int8", kv_dtype="int8", kv_memory_bytes=4 * on_cpu.page_bytes
    )
    assert loaded.ready.weights == "bf16"
    answers = _asked(loaded, SAMPLINGS[:2])
    (token, logprob), (expected_token, expected) = answers[1, 0][0], on_cpu.answers[1, 0][0]
    assert token == expected_token
    assert logprob == pytest.approx(expected, abs=0.1)
    assert set(loaded.engine.occupancy().attention_calls) == {"triton"}


@pytest.mark.parametrize("kv_dtype", ["int8", "bf16"])
def test_pages_come_back_to_the_gpu_from_disk(
    gpu: GPU, tiny_files: Tiny, tmp_path: Path, kv_dtype: str
) -> None:
    said = []
    for _ in range(2):
        loaded = _loaded(tiny_files.path, kv_dtype=kv_dtype, kv_disk=str(tmp_path / "pages"))
        loaded.engine.add(1, BEGIN, sampling=GREEDY, sharing=Sharing(as_of=AS_OF))
        said.append(_answers(loaded.engine))
        end(loaded.engine)
    assert loaded.engine.occupancy().restored_tokens == 32
    assert said[0] == said[1]
    assert loaded.engine.purge(Purge(everything=True, moment=AS_OF)).num_pages > 0


def test_pasts_that_are_split_are_merged_on_the_gpu(gpu: GPU, tmp_path: Path) -> None:
    """Already when the kernels are warmed up."""
    model = write_tiny(tmp_path / "Tiny.gguf", layers=1, context=700).path
    _loaded(model, kv_dtype="int8", max_context=700, step_tokens=600)
    assert {"attend_pages", "merge_splits", "write_pages"} == set(gpu.launches)


def _rope(engine: Engine) -> None:
    engine._model._rope._cos = engine._model._rope._cos.cpu()


def _weight(engine: Engine) -> None:
    linear = engine._model._layers[1]._attention._output
    linear._weight = linear._weight.cpu()


def _bias(engine: Engine) -> None:
    engine._model._layers[0]._mlp._down._bias = torch.zeros(64)


def _norm(engine: Engine) -> None:
    engine._model._norm.weight = engine._model._norm.weight.cpu()


def _embedding(engine: Engine) -> None:
    engine._model._embedding = engine._model._embedding.cpu()


def _key_centre(engine: Engine) -> None:
    layer = engine._pool.layers[0]
    layer.turned_centre = layer.turned_centre.cpu()


def _first_key_centre(engine: Engine) -> None:
    layer = engine._pool.layers[1]
    layer.first_offset = layer.first_offset.cpu()


def _rotation(engine: Engine) -> None:
    layer = engine._pool.layers[0]
    layer._rotation = layer._rotation.cpu()


def _pages(engine: Engine) -> None:
    layer = engine._pool.layers[1]
    layer.values.part = layer.values.part.cpu()


@pytest.mark.parametrize(
    "forgotten",
    [
        _rope, _weight, _bias, _norm, _embedding, _key_centre, _first_key_centre, _rotation, _pages,
    ],
)  # fmt: skip
def test_one_tensor_that_is_left_on_the_cpu_is_found(
    gpu: GPU, tiny_files: Tiny, forgotten: Callable[[Engine], None]
) -> None:
    engine = _loaded(tiny_files.path, kv_dtype="int8").engine
    forgotten(engine)
    engine.add(1, BEGIN, sampling=GREEDY)
    with pytest.raises(WrongDevice):
        _answers(engine)


@pytest.mark.parametrize("part", ["page_tables", "kv_lens", "query_starts"])
def test_spans_that_are_left_on_the_cpu_are_found(
    gpu: GPU, tiny_files: Tiny, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    engine = _loaded(tiny_files.path).engine
    moved = StepBatch.on

    def on(batch: StepBatch, device: torch.device) -> StepBatch:
        kept = {part: getattr(batch.spans, part)}
        there = moved(batch, device)
        return msgspec.structs.replace(there, spans=msgspec.structs.replace(there.spans, **kept))

    monkeypatch.setattr(StepBatch, "on", on)
    engine.add(1, BEGIN, sampling=GREEDY)
    with pytest.raises(WrongDevice):
        _answers(engine)


def _mixed(there: torch.Tensor) -> object:
    return there + torch.ones(4)


def _index_here(there: torch.Tensor) -> object:
    return there[torch.tensor([1])]


def _index_there(there: torch.Tensor) -> object:
    return torch.ones(4)[there.long()]


def _written(there: torch.Tensor) -> object:
    there[:2] = torch.ones(2)
    return None


def _as_numpy(there: torch.Tensor) -> object:
    return there.numpy()


def _launched(there: torch.Tensor) -> object:
    return triton_pages.write_pages[1,](there, torch.ones(4))


def _read_in_a_graph(there: torch.Tensor) -> object:
    with torch.cuda.graph(Graph()):
        return there.sum().item()


def _sent_in_a_graph(there: torch.Tensor) -> object:
    with torch.cuda.graph(Graph()):
        return torch.ones(4).to(there.device)


@pytest.mark.parametrize(
    "mistake",
    [
        _mixed, _index_here, _index_there, _written, _as_numpy, _launched, _read_in_a_graph,
        _sent_in_a_graph,
    ],
)  # fmt: skip
def test_what_a_gpu_would_refuse_or_wait_for_is_refused(
    gpu: GPU, mistake: Callable[[torch.Tensor], object]
) -> None:
    there = torch.zeros(4, device=CUDA)
    with pytest.raises(WrongDevice):
        mistake(there)


def test_a_graph_computes_anew_from_what_lies_where_it_read(gpu: GPU) -> None:
    given, graph = torch.ones(3, device=CUDA), Graph()
    with torch.cuda.graph(graph):
        doubled = given * 2
        doubled[0] = 7
    given.copy_(torch.tensor([1.0, 2.0, 3.0]))
    graph.replay()
    assert doubled.cpu().tolist() == [7, 4, 6]
