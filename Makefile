# Everything sets itself up in .venv on a fresh machine; a second call does only what is new.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: help demo test test-all lint format docs bench install readme clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(INSTALLED): pyproject.toml constraints.txt requirements/no-deps.txt scripts/install.sh
	@PYTHON=$(PYTHON) scripts/install.sh $(VENV)
	@touch $@

install: $(INSTALLED) ## make .venv and install everything into it

demo: install ## run the quick evidence on real tables and open the report
	@scripts/demo.sh $(BIN)

test: install ## the tests that run in minutes
	$(BIN)/pytest -n 2 --dist loadfile -m "not slow" $(ARGS)

test-all: install ## all tests, the slow ones too
	$(BIN)/pytest -n 2 --dist loadfile $(ARGS)

lint: install ## ruff, ruff format, pyright, and a strict build of the docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python scripts/readme_table.py --check
	$(BIN)/mkdocs build --strict --quiet --site-dir site

format: install ## put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: install ## build the documentation into site/
	$(BIN)/mkdocs build --strict --site-dir site
	@echo "open site/index.html"

bench: install ## the full evidence of every method, written to evidence/ (long)
	$(BIN)/armillary bench --all --profile full --write-evidence evidence
	$(BIN)/python scripts/readme_table.py

readme: install ## put the verdicts of evidence/ into README.md and docs/
	$(BIN)/python scripts/readme_table.py

clean: ## remove what can be rebuilt
	rm -rf $(VENV) site build dist .pytest_cache .ruff_cache
