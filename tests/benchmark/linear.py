"""The products of linear layers beside what the core can add up at most: `linear.py`.

int8 linear layers of the engine, with weights of 4 bits, sizes of SmolLM2-135M and half of the
inputs' groups in 16 bits, as they are calibrated; G of products a second of CPU time, one thread,
those of the second bytes counted. Beside it, in turns with it, a loop of nothing but the
instructions that such products need (`peak.cpp`, AVX2): the core's speed changes from second to
second where another system uses it too, and only the ratio says something of the kernel. Few rows
read their weights from memory, whose speed is another limit.
"""

import ctypes
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch

from engine.kernels.build import compiler_path
from engine.kernels.check import load_kernels
from engine.memory import Arena
from engine.models.linear import Int8Linear

SIZES = {"qkv": (576, 960), "gate, up": (576, 3072), "down": (1536, 576)}
ROWS = (1, 8, 64, 512)
TURNS = 400_000
PRODUCTS_A_TURN = 8 * 32
ROUNDS = 15


def peak_library(folder: str) -> ctypes.CDLL:
    built = Path(folder) / "peak.so"
    source = Path(__file__).with_name("peak.cpp")
    flags = ("-O2", "-march=native", "-shared", "-fPIC")
    subprocess.run([str(compiler_path()), *flags, str(source), "-o", str(built)], check=True)
    return ctypes.CDLL(str(built))


def layer(num_inputs: int, num_outputs: int, kernels: object) -> tuple[Int8Linear, float]:
    """And the groups that it multiplies with for each that there is."""
    weight = torch.randint(16, (num_outputs, num_inputs)) / 16 - 0.5
    made = Int8Linear(weight, kernels=kernels, arena=Arena())
    num_groups = num_inputs // 32
    made._set_loud(torch.arange(0, num_groups, 2))
    return made, 1 + made.struct.num_loud / num_groups


def spent_s(call: Callable[[], object]) -> float:
    before = time.process_time()
    call()
    return time.process_time() - before


def main() -> None:
    torch.set_num_threads(1)
    kernels = load_kernels()
    assert kernels is not None
    print(f"{platform.machine()}, torch {torch.__version__}, one thread")
    with tempfile.TemporaryDirectory() as folder:
        library = peak_library(folder)
        for name, (num_inputs, num_outputs) in SIZES.items():
            for rows in ROWS:
                made, share = layer(num_inputs, num_outputs, kernels)
                inputs = torch.randn(rows, num_inputs)
                repeats = max(1, 2**27 // (rows * num_inputs * num_outputs))
                products = repeats * rows * num_inputs * num_outputs * share
                speeds, peaks = [], []
                for _ in range(ROUNDS):
                    peak_s = spent_s(lambda: library.peak(ctypes.c_int64(TURNS)))
                    peaks.append(TURNS * PRODUCTS_A_TURN / peak_s)
                    spent = spent_s(lambda m=made, x=inputs, n=repeats: [m(x) for _ in range(n)])
                    speeds.append(products / spent)
                ratio = median(s / p for s, p in zip(speeds, peaks, strict=True))
                print(
                    f"{name:9} {rows:4} rows  {median(speeds) / 1e9:6.1f} G/s  "
                    f"of the peak {ratio:.2f}  (peak {median(peaks) / 1e9:.0f})"
                )


if __name__ == "__main__":
    main()
