"""A folder becomes a running engine: tensors, vocabulary and template of its own."""

import json
from pathlib import Path

from enginekit import answer
from test_families import _saved
from vocabularykit import train_byte_level

from engine.config import EngineConfig
from engine.loading import load
from engine.process.protocol import Message, Request
from engine.sampling import Sampling

TEMPLATE = (
    "{% for message in messages %}[{{ message['role'] }}]{{ message['content'] }}{% endfor %}"
)


def test_a_folder_answers_through_its_own_vocabulary_and_template(tmp_path: Path) -> None:
    tokenizer = train_byte_level()
    size = tokenizer.get_vocab_size()
    _saved(tmp_path, "qwen3", vocab_size=size, eos_token_id=size - 1)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = {"chat_template": TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    config = EngineConfig(model=str(tmp_path), weights="fp32", threads=1, kv_memory_bytes=2**20)
    loaded = load(config, lambda _: None)
    ids = loaded.prompts.encode(Request(messages=(Message(role="user", content="Hello"),)))
    assert ids == tokenizer.encode("[user]Hello").ids
    sampling = Sampling(temperature=0, max_tokens=5, logit_bias={size - 1: -100.0})
    assert answer(loaded.engine, ids, sampling).num_tokens == 5
