"""The CPU's meter, in processes that import memfit at different moments.

An import of TensorFlow takes seconds, its start does not. So programs that begin with the same imports share
a process that has made these and no more, and each runs in a fork of it, where TensorFlow starts anew.
"""

import json
import os
import subprocess
import sys

import pytest

import memfit
from memfit.budgeting import allocator
from memfit.units import MIB

FORK = """
import os, sys, traceback
{imports}
for code in sys.argv[1:]:
    pid = os.fork()
    if not pid:
        try:
            exec(code, {{"__name__": "__main__"}})
            print(chr(0), end="", flush=True)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0, code
"""
READ = """
import json, warnings
{imports}
tensor = tf.ones([10 * 2**20 // 4])
small = [tf.ones([1000]) for _ in range(100)]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    memfit.read_memory()
    reading = memfit.read_memory()
del tensor
memfit.reset_peak()
print(json.dumps([reading.to_dict(), memfit.read_memory().to_dict(), [str(w.message) for w in caught]]))
"""
EARLY = "import memfit\nimport tensorflow as tf"
BETWEEN = "import tensorflow as tf\nimport memfit"
LATE = "import tensorflow as tf\ntf.ones([3])\nimport memfit"


def run_python(code: str, *arguments: str, **variables: str) -> str:
    inherited = {name: v for name, v in os.environ.items() if not name.startswith(("TF_", "MEMFIT_"))}
    answer = subprocess.run(
        (sys.executable, "-c", code, *arguments),
        env=inherited | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    return answer.stdout


def run_forks(imports: str, *programs: str, **variables: str) -> list[str]:
    """What each program prints that runs in a process of its own, after the imports."""
    *printed, rest = run_python(FORK.format(imports=imports), *programs, **variables).split(chr(0))
    assert (len(printed), rest) == (len(programs), "")
    return printed


def check_meter_is_true(printed: str) -> None:
    with_tensor, without, said = json.loads(printed)
    (device,) = with_tensor["devices"]
    assert device["meter"] == "allocator"
    assert device["device"] == "CPU:0"
    # 10 MiB in a region of 16, and the small tensors, 4,096 bytes each.
    assert 10 * MIB + 100 * 4096 <= device["current_bytes"] <= 17 * MIB
    assert without["devices"][0]["peak_bytes"] < 2 * MIB
    assert said == []


def check_process_stands_in_and_it_is_said_once(printed: str) -> None:
    with_tensor, _, said = json.loads(printed)
    (device,) = with_tensor["devices"]
    assert device["meter"] == "process"
    assert device["current_bytes"] == pytest.approx(with_tensor["host_bytes"], rel=0.05)
    assert len(said) == 1
    assert "import memfit before the first TensorFlow op" in said[0]


WEIGH = """
import memfit
from memfit.measuring import device_tf
lies = {
    "a true meter": lambda size: (-(-size // 256) * 256,) * 2,
    "a true meter with a wider chunk": lambda size: (2 * size,) * 2,
    "silent": lambda size: None,
    "counts nothing": lambda size: (0, 0),
    "counts only large tensors, and another thread's": lambda size: (400_000, 400_000),
    "never falls": lambda size: (size, 0),
    "counts in bits": lambda size: (8 * size, 8 * size),
}
print([name for name, weigh in lies.items() if device_tf.weighs_truly(weigh)])
print(device_tf.has_started())
import tensorflow as tf
tf.ones([3])
print(device_tf.has_started(), device_tf.has_true_meter())
"""


BUSY = """
import memfit, threading
import tensorflow as tf
stop = threading.Event()
def work():
    while not stop.is_set():
        tf.ones([300_000])
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
from memfit.measuring import device_tf
print(device_tf.has_true_meter())
stop.set()
"""


REGION = """
import contextlib, memfit
import tensorflow as tf
from memfit.measuring import region_tf
def figures(): return tf.config.experimental.get_memory_info("CPU:0")
@contextlib.contextmanager
def unseen():
    seen = [figures()["peak"]]
    yield
    seen.append(figures()["peak"])
    print(max(seen) < 2**20)
region_tf.take_region_when_started(None, unseen=unseen())
tf.ones([3])
held = tf.ones([150 * 2**20 // 4])
print(figures()["current"])
"""


def test_imported_before_tensorflow() -> None:
    """The meter is true, its check cannot be fooled nor disturbed, and the region is never seen."""
    read, weighed, busy, region = run_forks(EARLY, READ.format(imports=EARLY), WEIGH, BUSY, REGION)
    check_meter_is_true(read)
    believed, before, after = weighed.splitlines()
    assert believed == "['a true meter', 'a true meter with a wider chunk']"
    assert (before, after) == ("False", "True True")
    assert busy == "True\n"
    unseen, current = region.splitlines()
    assert unseen == "True"
    assert int(current) == pytest.approx(150 * MIB, rel=0.01)


CLEAN = """
import memfit
try: memfit.setup('1GiB', clean=True)
except memfit.SetupError as error: print(error)
"""
FIT = f"""
{LATE}
import warnings, keras
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
with warnings.catch_warnings(record=True) as caught:
    memfit.fit(model, tf.ones([4, 2]), tf.ones([4, 1]), budget="1GiB", verbose=0)
print(*(warning.message for warning in caught))
"""


def test_imported_after_tensorflow() -> None:
    """Before the first op the meter is true all the same. What comes too late is said."""
    programs = (READ.format(imports=BETWEEN), READ.format(imports=LATE), CLEAN, FIT)
    between, late, clean, said = run_forks("import tensorflow", *programs)
    check_meter_is_true(between)
    check_process_stands_in_and_it_is_said_once(late)
    assert "memfit run --clean" in clean
    assert "budget='1GiB' has no effect on this run" in said
    assert "Import memfit before the first TensorFlow op." in said


def test_with_the_allocator_that_tensorflow_has_by_itself() -> None:
    read, busy = run_forks(EARLY, READ.format(imports=EARLY), BUSY, **{allocator.CHOICE: "default"})
    check_process_stands_in_and_it_is_said_once(read)
    assert busy == "False\n"


@pytest.mark.parametrize(
    ("imports", "variables"), [(EARLY, {allocator.USE_BFC: "false"}), (LATE, {allocator.ONEDNN: "0"})]
)
def test_with_variables_of_tensorflows_own(imports: str, variables: dict[str, str]) -> None:
    check_process_stands_in_and_it_is_said_once(run_python(READ.format(imports=imports), **variables))


SET_UP = """
import memfit, os
budget = memfit.setup("100MiB", clean={clean})
import tensorflow as tf
print(budget.device_bytes, os.environ.get("TF_ENABLE_ONEDNN_OPTS"))
tensor = tf.ones([50 * 2**20 // 4])
print(memfit.read_memory().devices[0].peak_bytes, memfit.budget().device_bytes)
try:
    memfit.setup("200MiB")
except memfit.SetupError as error:
    print(error)
"""


@pytest.mark.parametrize("clean", [False, True])
def test_set_up_before_tensorflow_starts_and_not_after(clean: bool) -> None:
    first, second, refusal = run_python(SET_UP.format(clean=clean)).splitlines()
    assert first == f"{100 * MIB} {'0' if clean else 'None'}"
    peak, budget = map(int, second.split())
    assert peak == pytest.approx(50 * MIB, rel=0.01)
    assert budget == 100 * MIB
    assert refusal.startswith("TensorFlow has already started, so its memory cannot be set up any more.")


def test_in_this_process_too() -> None:
    reading = memfit.read_memory()
    assert reading.host_peak_bytes >= reading.host_bytes > 0
