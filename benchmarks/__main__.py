"""`python -m benchmarks [TARGET [ROW ...]]` runs one benchmark or some of its rows, or all benchmarks."""

from __future__ import annotations

import sys

from benchmarks import data, depth, estimate, fit, meter, plan, rnn, rooms, watch

TARGETS = {
    "data": data.main,
    "depth": depth.main,
    "estimate": estimate.main,
    "fit": fit.main,
    "meter": meter.main,
    "plan": plan.main,
    "rnn": rnn.main,
    "rooms": rooms.main,
    "watch": watch.main,
}


def main(words: list[str]) -> int:
    """Runs the benchmark named, or all, and prints its table."""
    if words and words[0] not in TARGETS:
        print(f"there is no benchmark {words[0]!r}. Choose from: {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    for name in words[:1] or list(TARGETS):
        TARGETS[name](words[1:])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
