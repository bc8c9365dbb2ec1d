"""In a process of its own: the collector's settings are the whole process's."""

import subprocess
import sys

SCRIPT = """
import gc
from proxy.processes import collector

class Node: pass

collector.settle()
assert gc.get_freeze_count() > 1000
assert gc.get_threshold()[0] > 700
assert gc.isenabled()
node = Node(); node.self = node
import weakref; seen = weakref.ref(node); del node
gc.collect()
assert seen() is None, "cycles made later are still collected"
"""


def test_what_is_loaded_is_set_aside_and_later_cycles_are_still_collected():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
