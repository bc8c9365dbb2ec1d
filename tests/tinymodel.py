"""A tiny model of random weights in a real GGUF file, for what an engine does whatever it says."""

from pathlib import Path
from typing import NamedTuple

import gguf
import numpy as np
import torch

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_alphabet() -> list[str]:
    """One printable character for each byte, as GPT-2 numbers them."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    chars = {byte: chr(byte) for byte in printable}
    return [chars.get(byte) or chr(256 + others.index(byte)) for byte in range(256)]


class Tiny(NamedTuple):
    """A random model on disk, and its weights in the half-split order of transformers."""

    path: Path
    state: dict[str, torch.Tensor]


def write_tiny(
    path: Path,
    *,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    layers: int = 2,
    context: int = 512,
) -> Tiny:
    """A Llama of random weights whose vocabulary is the 256 bytes and three special tokens."""
    generator = torch.Generator().manual_seed(7)
    hidden, inner, vocab = heads * head_dim, 96, 256 + len(SPECIALS)

    def random(*shape: int, spread: float = 0.25) -> torch.Tensor:
        return torch.randn(*shape, generator=generator) * spread

    state = {"model.embed_tokens.weight": random(vocab, hidden)}
    state["model.norm.weight"] = 1 + random(hidden)
    for layer in range(layers):
        name = f"model.layers.{layer}"
        state[f"{name}.input_layernorm.weight"] = 1 + random(hidden)
        state[f"{name}.post_attention_layernorm.weight"] = 1 + random(hidden)
        state[f"{name}.self_attn.q_proj.weight"] = random(heads * head_dim, hidden)
        state[f"{name}.self_attn.k_proj.weight"] = random(kv_heads * head_dim, hidden)
        state[f"{name}.self_attn.v_proj.weight"] = random(kv_heads * head_dim, hidden)
        state[f"{name}.self_attn.o_proj.weight"] = random(hidden, heads * head_dim)
        state[f"{name}.mlp.gate_proj.weight"] = random(inner, hidden)
        state[f"{name}.mlp.up_proj.weight"] = random(inner, hidden)
        state[f"{name}.mlp.down_proj.weight"] = random(hidden, inner)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(hidden)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head_dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*byte_alphabet(), *SPECIALS])
    writer.add_token_types([1] * 256 + [3] * len(SPECIALS))
    writer.add_bos_token_id(257)
    writer.add_eos_token_id(258)
    writer.add_chat_template(TEMPLATE)
    for name, tensor in state.items():
        writer.add_tensor(_gguf_name(name), _gguf_order(name, tensor, head_dim))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return Tiny(path, state)


_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "model.layers": "blk",
}  # fmt: skip


def _gguf_name(name: str) -> str:
    for theirs, ours in _NAMES.items():
        name = name.replace(theirs, ours)
    return name


def _gguf_order(name: str, tensor: torch.Tensor, head_dim: int) -> np.ndarray:
    """llama.cpp wants the rows of q and k in neighbouring pairs."""
    if "q_proj" in name or "k_proj" in name:
        rows, inputs = tensor.shape
        halves = tensor.view(-1, 2, head_dim // 2, inputs)
        tensor = halves.transpose(1, 2).reshape(rows, inputs)
    return tensor.contiguous().numpy()
