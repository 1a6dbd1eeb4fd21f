import subprocess
import sys

from memfit.measuring import process
from memfit.units import MIB

HOLD = "data = bytearray(100 * 2**20); print('ready', flush=True); del data; input()"


def test_peak_stays_when_memory_falls() -> None:
    with subprocess.Popen(
        (sys.executable, "-c", HOLD), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        assert process.peak_resident_bytes(child.pid) > 100 * MIB
        assert process.resident_bytes(child.pid) > 0
        assert process.children_bytes() >= process.resident_bytes(child.pid) > 0
        child.kill()
    assert process.resident_bytes(child.pid) == 0
    assert process.peak_resident_bytes(child.pid) == 0
    assert process.children_bytes(child.pid) == 0


def test_this_process() -> None:
    assert 0 < process.resident_bytes() <= process.peak_resident_bytes() + MIB
