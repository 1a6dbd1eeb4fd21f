# Everything starts here; `make help` lists it. Needs only Python 3.11 or later, make and git.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help setup demo test check format bench clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  make %-8s %s\n", $$1, $$2 }'

setup: $(READY) ## make .venv with everything for developing

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "memfit needs Python 3.11 or later; type: make PYTHON=python3.11 setup")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[cpu]' --group dev
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps tf_keras
	@touch $(READY)

demo: $(READY) ## run the demonstration
	$(BIN)/memfit demo

# Three at once on two cores: a failed request for memory waits 10 s, and does nothing meanwhile.
test: $(READY) ## run the tests
	$(BIN)/python -m pytest --numprocesses 3 --dist worksteal

check: $(READY) ## run the linters and the type checker
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(READY) ## format the code and mend what the linter can mend
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY) ## run the benchmarks; `make bench TARGET=meter` runs one
	$(BIN)/python -m benchmarks $(TARGET)

clean: ## remove .venv and all that was generated
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
