"""What Triton's interpreter does not tell: the kernels compile for the GPU, down to its own code.
Triton brings ptxas along, so no GPU is needed."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("tritoncompiling.py")


def test_the_kernels_compile_for_sm_90_as_they_are_launched_over_int8_pages() -> None:
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(SCRIPT.parents[2])}
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "int8"], env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().splitlines() == [
        "write_pages", "attend_pages fp16 True", "merge_splits", "attend_pages fp16 False",
    ]  # fmt: skip
