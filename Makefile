# What a user types. Variables become options of the command mdcr; there is no logic here.
# `make help` lists the targets and the variables.

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

COMMANDS := audit fetch corpus pool tune embed index search score eval submit jobs export report show compare study leaderboard card submission benchmark models plan doctor gc evaluate open triplets train papers reproduce
ifneq ($(MDCR_MAKE),)
ifeq ($(filter demo $(COMMANDS),$(MAKECMDGOALS)),)
$(error $(or $(MAKECMDGOALS),help) takes no $(MDCR_MAKE); only $(MAKE_OWN))
endif
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-lowest quick torture check format bench docs image notebooks clean $(COMMANDS)

help:  ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z ]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Variables (any of them may be left out):"
	@echo "  which corpus   CORPUS=openalex   to build one: SOURCE=openalex|s2ag|s2orc2020|beir|mteb|csfcube|jsonl|parquet|csv|bibtex|synthetic"
	@echo "                 INPUT=/data/... COLUMNS=paper_id=id,title=headline PAPERS=30k DUPLICATES=keep|drop|merge"
	@echo "                 DUPLICATES_BY=doi,title FIELDS_FROM=... MIN_CONCEPT_SCORE=0.3 INCLUDE_XPAC=1 JUDGED=test TASK=SCIDOCS SUBSET=en"
	@echo "                 MAX_TEXT=1M MARKUP=keep CONTEXTS=contexts.jsonl CITATIONS=edges.tsv ALLOW_EMPTY=1 ALLOW_DROPPED=1 ALLOW_TRUNCATED=1"
	@echo "  to fetch one   SOURCE=s2ag|openalex|mteb|scirepeval RELEASE=latest SNAPSHOT=jsonl|parquet FIRST=1 OUTPUT=/data/... API_KEY_FILE=..."
	@echo "                 DATASETS=papers,abstracts,citations CONNECTIONS=4 TRAIN=1 ENDPOINT=https://..."
	@echo "  which pools    FIELD=Medicine|all (none: dataset-level) STRICT=1 YEAR=2019 SIZE=200k,2M QUERIES=200 SAMPLES=3"
	@echo "                 SEED=13 SPLIT=test|validation VALIDATION_QUERIES=50 NESTED=1 EXCLUDE=training-ids.txt"
	@echo "                 AFTER_CUTOFF=scincl,minilm TRAINED_UNTIL=2018 EARLIER_ONLY=1 DROP_NEAR_DUPLICATES=1"
	@echo "                 CITATION_DIRECTION=outbound|inbound|total MIN_CITATIONS=3 MIN_ABSTRACT_CHARS=30"
	@echo "                 POSITIVES=corpus|prefiltered KEEP_SAME_TITLE=1 KEEP_IDENTICAL_ID=1"
	@echo "                 show, report, compare: only pools without a rule: NO_NESTED=1 NO_EARLIER_ONLY=1 NO_DROP_NEAR_DUPLICATES=1"
	@echo "                 NO_KEEP_SAME_TITLE=1 NO_KEEP_IDENTICAL_ID=1"
	@echo "  which systems  MODEL=bm25,scincl,bm25:k1=1.2,b=0.75,hf:org/name,mine=/path/to/model DEPTH=500"
	@echo "                 rrf(bm25,scincl),wsum(bm25,scincl)   ENGINE=exact|faiss|ray, or approximate:"
	@echo "                 faiss:HNSW32|faiss:IVF4096,Flat:nprobe=32, on a GPU faiss-gpu:IVF4096,Flat"
	@echo "                 PRECISION=fp32|fp16|bf16   BM25_ENGINE=postings|lucene   PROBE=5 (seconds of plan)"
	@echo "  which tables   MEASURES=map,ndcg@10 MEASURE_ENGINE=numpy|ranx BASELINE=bm25 MARGIN=1.0 RESAMPLE=queries|papers|both FORMAT=terminal|markdown|csv|latex"
	@echo "                 SORT=map MISSING_POSITIVES=ignore|count OUTPUT=folder WHAT=corpora CHECK=golden.csv TOLERANCE=0.01"
	@echo "                 SPOT=3 MOST=5 (compare)"
	@echo "  which study    STUDY=pool_size RECIPE=recipe.toml SET='sizes=5k,10k; queries=50' LIST=1 SCHEMA=1"
	@echo "  of a paper     PAPER=mdcr|scirepeval|scirepeval2022|neighbours|csfcube INPUT=/data (reproduce)"
	@echo "  to train       TRIPLETS=specter|specter2|scincl|mined|pairs UNTIL=2016 BALANCED=1 FROM=bm25 RANKS=10,100 EASY=3 HARD=2"
	@echo "                 SAME_FIELD=4 OTHER_FIELD=2 PAIR=5   RECIPE=recipe.toml SET='epochs=2' (train)"
	@echo "  leaderboard    ADD=submissions/ (verify and count)   POOLS, BENCHMARKS: names with commas   PUSH=folder|org/name (card: into a model card)"
	@echo "  on a benchmark BENCHMARK=folder SPLIT=val|test SCORES=file.json EXPORT_SCORES=file.json BM25_INDEX=field|corpus|query"
	@echo "  other tools    MODEL=run:FILE or RUN=FILE ALLOW_UNKNOWN=1   QRELS=FILE NO_POSITIVE=zero (evaluate)   WHAT=pool|run|scores|vectors|benchmark FORMAT=beir|mteb|trec|trec.gz|ir_metadata|json|json.gz|parquet|csv|csv.gz|every_eval_ever|eval_results|npy"
	@echo "  audit          RESULTS=folder METRIC=ndcg@10 SYSTEMS, ITEMS: names with commas  COVERAGE=1 FAMILY=none|type|domain MISSING=impute"
	@echo "                 CORRECTION=bh PLAN=1 (points) LOWER_IS_BETTER=1"
	@echo "  on a cluster   STAGE=eval (submit) or ON=slurm, NODES=4 GPUS=1 PARTITION=gpu TIME=04:00:00 SLURM=slurm.toml"
	@echo "                 RAY_ADDRESS=host:port SLICE=0/4"
	@echo "  how it runs    MEMORY=8G WORKERS=2 DEVICE=cuda ROOT=/scratch/mdcr DRY_RUN=1 REPAIR=1 JSON=1 QUIET=1"
	@echo "                 VERBOSE=1 DELETE=1 (gc)"
	@echo "Messages name options of the command $(BIN)/mdcr: --min-citations=3 is MIN_CITATIONS=3 here"
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

# Lint and types run beside the tests; what they say is printed behind them. Tests of Slurm and Ray wait, hence three workers.
test quick: $(VENV)/.dev  ## lint, types and tests; quick: modules of every package that take seconds
	@said=$$(mktemp); $(MAKE) --no-print-directory check >$$said 2>&1 & check=$$!; \
	$(BIN)/pytest $(if $(filter quick,$@),-n 2 -m quick,-n 3); tests=$$?; \
	wait $$check; checked=$$?; cat $$said; rm $$said; exit $$((tests || checked))

LOWEST := $(or $(TMPDIR),/tmp)/mdcr-lowest
test-lowest:  ## run tests of the lower rooms with the lowest versions of pyproject.toml (transformers 4), beside the package adapters
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

fetch: ## download a release: SOURCE RELEASE SNAPSHOT OUTPUT; the key of S2AG: $S2_API_KEY or API_KEY_FILE
corpus: ## build a corpus: SOURCE INPUT CORPUS
pool: ## draw queries, candidates and qrels: FIELD SIZE YEAR QUERIES SAMPLES SEED
tune: ## choose k1 and b of BM25 on validation queries: FIELD YEAR SIZE SEED
embed index search: ## embed the pools, build their indexes, rank their candidates: MODEL
score eval: ## score rankings and print a table; eval: first make what is missing: MODEL
submit: ## run a command as a job of Slurm: STAGE=corpus|embed|index|search|score|eval|study|benchmark|train NODES GPUS PARTITION TIME
jobs: ## show jobs of Slurm: state, units done, last line of each log
benchmark: ## build the MDCR benchmark from field-level rankings: CORPUS YEAR MODEL (docs/mdcr.md)
export: ## write pools, rankings or scores for other tools: WHAT=pool|run|scores|vectors|benchmark FORMAT OUTPUT MODEL
report show: ## write tables and plots of all scores; show: print them (WHAT=corpora, pools, ...)
compare: ## compare systems on the same pools, two of them query by query: MODEL=bm25,scincl FIELD SIZE YEAR
models: ## list encoders and what is on this machine (WHAT=scincl: details)
plan: ## print what eval would make, and time, disk and memory of embedding by a short probe: the variables of eval
evaluate open: ## evaluate: score runs of any tool against qrels (RUN QRELS BASELINE); open: the newest page in a browser
doctor: ## show what this machine has and what is missing
audit: ## put error bars on results of any tool: RESULTS METRIC PLAN (docs/audit.md)
leaderboard card: ## all that was scored, with ranks and costs (ADD=submissions/); card of an encoder: MODEL PUSH
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
