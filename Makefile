# What a user types. Variables become options of the command mdcr; there is no logic here.
# `make help` lists the targets; `mdcr CMD --help` the options, which are the variables.

# Variables given on the command line alone count: MDCR_MAKE has their names, MDCR_MAKE_NAME the value of each. Make expands none of
# them, and mdcr reads them from its environment, so no value is ever part of a line of shell.
ifneq ($(filter command,$(origin v) $(origin c)),)
$(error v and c must not be given: the Makefile uses them itself)
endif
$(foreach v,GIVEN MAKE_OWN SPECIAL MDCR PIP COMMANDS MDCR_MAKE MDCR_GOALS .DEFAULT_GOAL,$(if \
  $(filter command,$(origin $v)),$(error $v must not be given: the Makefile uses it itself)))
GIVEN := $(foreach v,$(.VARIABLES),$(if $(filter command,$(origin $v)),$v))
MAKE_OWN := PYTHON VENV BIN FAISS PART QUICK KILLS WORKSPACE
$(foreach v,$(GIVEN),$(eval override $v := $$(value $v))$(eval export MDCR_MAKE_$v := $$(value $v)))
unexport $(GIVEN)
export MDCR_MAKE := $(filter-out $(MAKE_OWN),$(GIVEN))
export MDCR_GOALS := $(MAKECMDGOALS)

# The variables of make itself are words of a shell, so they are plain words.
SPECIAL := ' " ` \ ; & | < > * ? ( ) { } [ ] ! ~ $$ % \# = :
$(foreach v,$(filter-out QUICK,$(filter $(MAKE_OWN),$(GIVEN))),$(if \
  $(filter-out 1,$(words $($v)))$(filter -%,$($v))$(strip $(foreach c,$(SPECIAL),$(findstring $c,$($v)))),$(error $v must be one plain word)))

PYTHON := python3
VENV := .venv
PART := retrieve
QUICK :=
WORKSPACE := build/demo
# faiss-gpu where there is an NVIDIA driver, faiss-cpu elsewhere; both give the module faiss, so only one is installed.
FAISS = $(if $(shell command -v nvidia-smi),gpu,cpu)
BIN := $(VENV)/bin
MDCR := $(BIN)/mdcr --from-make
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt

COMMANDS := audit judge fetch corpus pool tune embed index search score eval submit jobs export report show compare study leaderboard card submission benchmark models doctor gc evaluate triplets train papers reproduce
ifneq ($(MDCR_MAKE),)
ifeq ($(filter demo $(COMMANDS),$(MAKECMDGOALS)),)
$(error $(or $(MAKECMDGOALS),help) takes no $(MDCR_MAKE); only $(MAKE_OWN))
endif
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-lowest quick torture check format bench docs image notebooks clean $(COMMANDS)

help:  ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z -]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Variables are options of the command: $(BIN)/mdcr CMD --help lists them; --min-citations=3 is MIN_CITATIONS=3 here"
	@echo "Example: make eval CORPUS=openalex FIELD=Medicine SIZE=100k MODEL=bm25,scincl"

setup: $(VENV)/.installed  ## create the environment (.venv)
$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV) (about 3 GB, two minutes on a good line) ..."
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else \
	  "Python %d.%d is not supported: use 3.11 to 3.13, as in make PYTHON=python3.11" % v)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e ".[$(FAISS),demo]"
	@touch $@

$(VENV)/.dev: $(VENV)/.installed Makefile
	@echo "Installing the development tools ..."
	@$(PIP) -e ".[$(FAISS),demo,neighbours,facets,train,docs,dev]"
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "Installing what the benches compare with ..."
	@$(PIP) -e ".[$(FAISS),demo,neighbours,facets,train,docs,dev,bench]"
	@touch $@

demo: $(VENV)/.installed  ## the whole pipeline on 7,233 real papers: corpus, tuning, embedding, search, table, page
	@$(MDCR) demo

# Lint and types run beside the tests; what they say is printed behind them.
test quick: $(VENV)/.dev  ## lint, types and the tests that take no more than seconds; quick: some of every package
	@said=$$(mktemp); $(MAKE) --no-print-directory check >$$said 2>&1 & check=$$!; \
	$(BIN)/pytest -n 2 -m $(if $(filter quick,$@),quick,"not slow"); tests=$$?; \
	wait $$check; checked=$$?; cat $$said; rm $$said; exit $$((tests || checked))

test-all: test  ## make test, then the slow tests; three workers, since those of Slurm and Ray wait
	$(BIN)/pytest -n 3 -m slow

LOWEST := $(or $(TMPDIR),/tmp)/mdcr-lowest
test-lowest:  ## run tests of the lower packages with the lowest versions of pyproject.toml (transformers 4), beside the package adapters
	@test -x $(LOWEST)/bin/python || $(PYTHON) -m venv $(LOWEST)
	@sed -n '/^dependencies/,/^ray/s/"/\n/gp' pyproject.toml | sed -n 's/^\([A-Za-z0-9-]*\)>=\([0-9.]*\).*/\1==\2/p' >$(LOWEST)/constraints.txt
	@$(LOWEST)/bin/python -m pip --disable-pip-version-check install -qq -c $(LOWEST)/constraints.txt -e ".[$(FAISS),demo,neighbours,facets]" \
	  adapters pytest pytest-xdist hypothesis ir-measures pytrec-eval-terrier
	$(LOWEST)/bin/pytest -n 2 -m "not (slurm or ray or kill or slow or browser)" -k "not mteb" $(addprefix tests/,core corpus measure retrieve encode exchange stages scores)

docs: $(VENV)/.dev  ## build the site, build/site, with a gallery of studies of the demo: WORKSPACE=build/demo
	@$(BIN)/python docs/gallery.py $(WORKSPACE)
	@MDCR_ROOT=$(WORKSPACE) NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build -q
	@echo build/site/index.html

# Docker counts where its daemon answers.
image:  ## build the image of jobs by Docker, Podman or Apptainer; FAISS=gpu: for NVIDIA GPUs
	@for tool in docker podman; do \
	  if $$tool info >/dev/null 2>&1; then exec $$tool build -t mdcr --build-arg FAISS=$(FAISS) .; fi; done; \
	if command -v apptainer >/dev/null; then exec apptainer build --build-arg FAISS=$(FAISS) mdcr.sif apptainer.def; fi; \
	echo "make image needs Docker with a running daemon, Podman or Apptainer: install one of them" >&2; exit 2

notebooks: $(VENV)/.installed  ## open the notebooks in JupyterLab
	@$(PIP) -e ".[$(FAISS),notebook]"
	$(BIN)/jupyter lab notebooks

torture: $(VENV)/.dev  ## test against kills, flipped bits and hostile input: KILLS=200
	MDCR_KILLS=$(or $(KILLS),200) $(BIN)/pytest tests/faults -n 2 --dist load

check: $(VENV)/.dev  ## lint, types and import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.bench  ## compare speed with other libraries: PART=retrieve|corpus|encode|score QUICK=1
	$(BIN)/python bench/$(PART).py $(if $(QUICK),--quick)

fetch: ## download a release: SOURCE RELEASE OUTPUT; the key of S2AG: $S2_API_KEY or API_KEY_FILE
corpus: ## build a corpus: SOURCE INPUT CORPUS
pool: ## draw queries, candidates and qrels: FIELD SIZE YEAR QUERIES SAMPLES SEED
tune: ## choose k1 and b of BM25 on validation queries: FIELD YEAR SIZE SEED
embed index search: ## embed the pools, build their indexes, rank their candidates: MODEL
score eval: ## score rankings and print a table; eval: first make what is missing: MODEL
submit: ## run a command as a job of Slurm: STAGE=corpus|embed|index|search|score|eval|study|benchmark|train NODES GPUS PARTITION TIME
jobs: ## show jobs of Slurm: state, units done, last line of each log
benchmark: ## build the MDCR benchmark from field-level rankings: CORPUS YEAR MODEL (docs/mdcr.md)
export: ## write pools, rankings or scores for other tools: WHAT=pool|run|scores|vectors FORMAT OUTPUT MODEL
report show: ## write tables and plots of all scores; show: print them (WHAT=corpora, pools, ...)
compare: ## compare systems on the same pools, two of them query by query: MODEL=bm25,scincl FIELD SIZE YEAR
models: ## list encoders and what is on this machine (WHAT=scincl: details)
evaluate: ## score runs of any tool against qrels: RUN QRELS BASELINE
doctor: ## show what this machine has and what is missing
judge: ## judge a random part of the pairs, and score by that: STEP=draw|read|score PAIRS LABELS MACHINE MODEL (docs/judging.md)
audit: ## put error bars on results of any tool: RESULTS METRIC PLAN (docs/audit.md)
leaderboard card: ## all that was scored, with ranks and costs (ADD=submissions/); card of an encoder: MODEL
submission: ## pack the runs of a system for the leaderboard of others: MODEL
study: ## run an experiment, with its tables and figures; without STUDY: list them
triplets: ## draw training triplets of a corpus's past: TRIPLETS UNTIL FIELD QUERIES EXCLUDE
train: ## train an encoder by a recipe, and print its folder, which MODEL takes: RECIPE=train_past
papers reproduce: ## papers: the tables of the five papers with their commands; reproduce: run those of PAPER on the data in INPUT
gc: ## list files that no named corpus needs; DELETE=1 removes them
$(COMMANDS): $(VENV)/.installed
	@$(MDCR) $(if $(filter benchmark,$@),study mdcr,$@)

clean:  ## remove the environment and the demo's artifacts (not your corpora)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
