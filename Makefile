# `make` alone lists the targets. Everything below runs in .venv, which holds exactly requirements.lock.

VENV := .venv
PY := $(VENV)/bin/python
# The committed notebook outputs were made on Python 3.11, so that one is taken where it exists.
PYTHON ?= python3.11 python3.12 python3.13 python3
PORT ?= 8000
# By uv where it works, INSTALLER=pip by pip.
INSTALL := requirements/install
# Notebooks or tests at a time: as many as there are processors, from two to four. Each takes half a GiB.
JOBS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$$n" -ge 2 ] || n=2; [ "$$n" -le 4 ] || n=4; echo "$$n")
TOOLS := _build/tools
CHROMIUM := chromium --headless --no-sandbox --disable-gpu --no-first-run --log-level=3 \
	--disable-background-networking --disable-component-update --disable-sync
GENERATED := _build figures book/scoreboard.md book/statements.md book/reproducibility.md book/errata_*.txt book/map_*.txt \
	.pytest_cache .ruff_cache .mypy_cache .hypothesis .coverage build mutants *.egg-info ntpnb_book/build ntpnb_book/*.egg-info
# The theory, what chapters import besides, and a program that uses the theory as a reader would.
TYPED := ntpnb ntpnb_book $(wildcard tests/repository/user_program.py)
# Chapters and pages of evidence: their texts, and what a run made of them.
TEXTS := notebooks/*.md $(wildcard notebooks/evidence/*.md)
EXECUTED := book/nb/*.ipynb $(wildcard book/nb/evidence/*.ipynb)
# Only `make stress` needs nbval, which loads more than the tests themselves.
PLAIN := -p no:nbval
# The unit and property tests of the mathematics, and the examples in its docstrings.
MATHEMATICS := $(PLAIN) tests/math ntpnb ntpnb_book --doctest-modules -m "not slow and not stress" -n $(JOBS)

SITE := _build/html

# One BLAS thread: summation order, and with it the last digits, then depends on nothing but the machine.
export OMP_NUM_THREADS := 1
export OPENBLAS_NUM_THREADS := 1
export MKL_NUM_THREADS := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# What someone's own IPython runs at its start must change no number: the kernels look here instead.
export IPYTHONDIR := $(CURDIR)/_build/ipython

.DEFAULT_GOAL := help
.NOTPARALLEL:
.DELETE_ON_ERROR:
.PHONY: help check book live stale test figures serve pdf bench stress mutants coverage lint types format lock accept clean _chromium

help: ## list the targets (what a bare `make` does)
	@echo "The executable companion to two papers on next-token prediction. Targets:"
	@echo
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' Makefile | awk -F@ '{ printf "%-15s %s\n", $$1, $$2 }'
	@echo
	@echo "Names for FIG:"
	@sed -n 's/.*"figure": "\([a-z0-9_]*\)".*/\1/p' $(EXECUTED) | tr _ - | sort -u | fmt -w 96 | sed 's/^/  /'
	@echo
	@echo "The first run creates $(VENV) from requirements.lock; PYTHON=... chooses the Python for it,"
	@echo "INSTALLER=pip does without uv."
	@echo "$(JOBS) notebooks or tests run at a time; JOBS=... sets another number."

# A lock is complete, so without dependencies: pip would look those up that have extras, and stop at
# the first release that is newer than the lock.
$(VENV)/.locked: requirements.lock
	@for name in $(PYTHON); do \
	  if "$$name" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	  then found="$$name"; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "make: none of '$(PYTHON)' is Python 3.11 or newer with venv; install one (Debian: apt install python3-venv) or name it: make PYTHON=..." >&2; \
	  exit 1; \
	fi; \
	echo "creating $(VENV) with $$($$found --version)"; \
	"$$found" -m venv --clear $(VENV)
	$(INSTALL) $(PY) --no-deps --require-hashes -r requirements.lock
	@touch $@

$(VENV)/.ready: pyproject.toml ntpnb_book/pyproject.toml $(VENV)/.locked
	$(INSTALL) $(PY) --quiet --no-deps --no-build-isolation --editable . --editable ./ntpnb_book
	@touch $@

# A cluster on this machine, for the tests of what runs on one.
$(VENV)/.cluster: requirements/cluster.lock $(VENV)/.ready
	$(INSTALL) $(PY) --quiet --no-deps --require-hashes -r requirements/cluster.lock
	@touch $@

check: lint types ## the short loop: lint, types, docstring examples, tests of the mathematics
	HYPOTHESIS_PROFILE=quick $(PY) -m pytest $(MATHEMATICS)

book: $(VENV)/.ready ## run stale notebooks (in a fresh clone none), build the HTML
	$(PY) -m publishing build --jobs $(JOBS)

live: $(VENV)/.ready ## fetch the Python that pages run in a browser; from then on the book has it
	$(PY) -m publishing live --fetch

stale: $(VENV)/.ready ## list the notebooks that must run, because what they depend on changed
	@$(PY) -m publishing stale

test: _chromium lint types $(VENV)/.cluster book ## every check: the short loop, slow tests and properties in full, outputs, book, browser
	$(VENV)/bin/ruff check --line-length 79 $(EXECUTED)
	$(PY) -m pytest $(PLAIN) ntpnb ntpnb_book --doctest-modules -n $(JOBS)
	$(PY) -m pytest $(PLAIN) tests -n $(JOBS) --dist worksteal $(if $(SHUFFLE),--shuffle $(SHUFFLE))
	@if $(PY) -c 'import sys; sys.exit(sys.version_info[:2] not in [(3, 11), (3, 13)])'; then \
	  $(PY) -m publishing verify --jobs $(JOBS); \
	else \
	  echo "notebook outputs are compared on Python 3.11 and 3.13; this is $$($(PY) --version)"; \
	fi

lint: $(VENV)/.ready ## ruff and the order of imports: the code as it is, changing nothing
	$(VENV)/bin/ruff check
	$(VENV)/bin/lint-imports --no-logo --no-cache
	$(VENV)/bin/ruff format --check

types: $(VENV)/.ready ## mypy --strict: the package, and a program that uses it
	$(VENV)/bin/mypy $(TYPED)

figures: $(VENV)/.ready ## draw every figure anew, as PNG and PDF too, by executing the notebooks (FIG=t24-fig4: one)
ifdef FIG
	$(PY) -m publishing run --jobs $(JOBS) --figure $(FIG)
else
	rm -rf figures
	$(PY) -m publishing run --jobs $(JOBS) --draw
endif

serve: book ## show the book at http://localhost:8000 (PORT=... for another)
	$(PY) -m http.server --bind 127.0.0.1 --directory $(SITE) $(PORT)

pdf: _chromium book ## the book as one PDF, _build/ntpnb.pdf
	$(VENV)/bin/jupyter-book build book -W -n --keep-going --all \
	  --builder custom --custom-builder singlehtml
	$(CHROMIUM) --virtual-time-budget=60000 --no-pdf-header-footer \
	  --print-to-pdf=_build/ntpnb.pdf _build/singlehtml/index.html
	cp _build/ntpnb.pdf _build/html/downloads/

bench: $(VENV)/.ready ## timings against what one would otherwise write (PARTS="text growth": only those)
	$(INSTALL) $(PY) --quiet --no-deps --require-hashes -r requirements/bench.lock
	$(PY) -m benchmarks $(PARTS)

stress: $(VENV)/.cluster ## the long checks: property tests with many new examples, kills, other CPUs, every output
	HYPOTHESIS_PROFILE=stress $(PY) -m pytest -m "hypothesis or stress" -n $(JOBS) --dist load \
	  -o faulthandler_timeout=7200
	$(PY) -m pytest --nbval --nbval-current-env -n $(JOBS) --dist loadfile book/nb

coverage: $(VENV)/.ready ## which lines of the mathematics its tests never reach
	$(PY) -m pytest $(MATHEMATICS) --cov --cov-report=term-missing:skip-covered

mutants: $(VENV)/.ready ## change the code a little, thousands of times: do the tests notice? (SAMPLE=300: so often)
	$(INSTALL) $(PY) --quiet --no-deps --require-hashes -r requirements/mutation.lock
	HYPOTHESIS_PROFILE=mutants $(PY) tests/repository/mutants.py $(SAMPLE)

# Programs that stand beside the project, with hashes like everything that is installed.
$(TOOLS)/.ready: requirements/tools.lock $(VENV)/.locked
	$(PY) -m venv --clear $(TOOLS)
	$(INSTALL) $(TOOLS)/bin/python --quiet --no-deps --require-hashes -r requirements/tools.lock
	@touch $@

# Without annotations the lock, and with it the key of every notebook, changes only if a pin does.
RESOLVE := $(TOOLS)/bin/uv pip compile --universal --python-version 3.11 --fork-strategy fewest \
	--generate-hashes --no-annotate --custom-compile-command "make lock" --quiet
# What all locks name has one version; readers need no tests and no book.
SMALLER := --constraint requirements.lock --output-file requirements
lock: $(TOOLS)/.ready ## resolve the locks anew; pins that still fit stay (UPGRADE=--upgrade moves all)
	$(RESOLVE) pyproject.toml requirements.in --extra reference --extra sweep --extra book --extra test \
	  $(UPGRADE) --output-file requirements.lock
	$(RESOLVE) pyproject.toml requirements.in --extra reference --extra sweep --extra notebook \
	  $(SMALLER)/readers.lock
	$(RESOLVE) $(UPGRADE) pyproject.toml --extra bench $(SMALLER)/bench.lock
	$(RESOLVE) $(UPGRADE) pyproject.toml --extra mutation $(SMALLER)/mutation.lock
	$(RESOLVE) $(UPGRADE) pyproject.toml --extra cluster $(SMALLER)/cluster.lock
	$(RESOLVE) $(UPGRADE) requirements/tools.in $(SMALLER)/tools.lock

accept: $(VENV)/.ready ## note in book/accepted.txt what is promised now (PAPERS=FOLDER: look quotations up there)
	PYTHONPATH=. $(PY) tests/support/accepted.py $(PAPERS)

format: $(VENV)/.ready ## write the code as ruff, and the notebooks' text as jupytext, would
	$(VENV)/bin/ruff format
	$(VENV)/bin/jupytext --quiet --to md:myst --pipe '$(VENV)/bin/ruff format --line-length 79 -' $(TEXTS)

clean: ## remove everything generated except .venv and the committed notebooks
	rm -rf $(GENERATED)

_chromium:
	@command -v chromium >/dev/null || { \
	  echo "make: chromium is missing; the browser checks and the PDF need it (Debian: apt install chromium)" >&2; exit 1; }
