"""`python -m benchmarks [TARGET ...]` runs the benchmarks named, or all."""

from __future__ import annotations

import sys

from benchmarks import meter

TARGETS = {"meter": meter.main}


def main(names: list[str]) -> int:
    """Runs each benchmark and prints its table."""
    for name in names or list(TARGETS):
        if name not in TARGETS:
            print(f"there is no benchmark {name!r}. Choose from: {', '.join(TARGETS)}", file=sys.stderr)
            return 2
        TARGETS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
