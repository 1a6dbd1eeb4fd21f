"""Runs scripts one after another, each watched, and prints what was seen as JSON in the last line."""

import json
import os
import runpy
import sys
import warnings
from pathlib import Path

import memfit


def main(paths: list[str]) -> None:
    found = {}
    for path in paths:
        # The budget decides what is much: a call that holds 40 MiB is much of 200 MiB.
        budget = os.environ.get(f"BUDGET_{Path(path).name}")
        with (
            warnings.catch_warnings(record=True) as caught,
            memfit.watch(budget=budget, seconds=0.1) as watcher,
        ):
            warnings.simplefilter("always")
            readings = runpy.run_path(path, run_name="__main__").get("readings")
        said = [str(each.message) for each in caught if issubclass(each.category, memfit.MemfitWarning)]
        found[Path(path).name] = {
            "watched": watcher.result().to_dict(),
            "said": said,
            "readings": readings,
        }
        del watcher, caught
        memfit.release()
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
