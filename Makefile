# `make demo` and `make test` do all their own set-up.
PYTHON := .venv/bin/python
# More of them start more whole portals at once than two cores carry.
TEST_PROCESSES ?= 2
WHOLE := whole and not slow and not chaos

.DEFAULT_GOAL := help
.PHONY: help demo up test lint openapi bench bench-live bench-lab bench-scale bench-simulator bench-policies bench-packing bench-forecast chaos slurm-parity slurm-cycles test-whole test-slow test-sample mutants frontend env chromium lock clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-12s %s\n", $$1, $$2 }' Makefile

demo: env frontend ## the sample workload on six emulated accelerators; DEMO_EXIT=1 ends with a table
	@$(PYTHON) manage.py demo

up: env frontend ## the portal over ./data, or EVENKEEL_DATA
	@$(PYTHON) manage.py up

test test-whole test-slow: export EVENKEEL_RAY ?= 1
test test-whole test-slow: export EVENKEEL_LOCAL := 1
test test-whole test-slow: export EVENKEEL_S3 ?= 1
test: env frontend chromium ## the whole default suite
	@cd frontend && ../scripts/npm.sh run --silent test </dev/null
	@$(PYTHON) -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(PYTEST_ARGS)

lint: env ## style, types, import rules, migrations, API description
	@scripts/lint.sh

openapi: env ## write portal/api/openapi.yaml and the client's types anew
	@$(PYTHON) manage.py spectacular --validate --fail-on-warn --file portal/api/openapi.yaml
	@scripts/client_types.sh client/evenkeel/schemas.py

bench: env ## comparisons with peers, as ratios
	@set -e; for name in $(filter-out bench_live bench_lab bench_scale,$(basename $(notdir $(wildcard benchmarks/bench_*.py)))); do \
	  echo "== $$name"; $(PYTHON) -m benchmarks.$$name; done

bench-live: env frontend ## the sample workload live, elastic against static partitions
	@$(PYTHON) -m benchmarks.bench_live

bench-lab: env frontend ## a week of 10,000 jobs in the policy lab under six policies
	@$(PYTHON) -m benchmarks.bench_lab

bench-scale: env frontend ## rounds, reports and pages with a thousand nodes; SCALE_ARGS="--nodes 100 --jobs 200" for fewer
	@$(PYTHON) -m benchmarks.bench_scale $(SCALE_ARGS)

bench-simulator: env ## how fast the simulator is; SIMULATOR_ARGS=--full for all sizes
	@$(PYTHON) -m benchmarks.bench_simulator $(SIMULATOR_ARGS)

bench-policies: env ## the policies against the reference; POLICIES_ARGS="--only solve,scale" for parts
	@$(PYTHON) -m benchmarks.bench_policies $(POLICIES_ARGS)

bench-packing: env ## parts of GPUs: what packing policies fill, and what a decision costs; PACKING_ARGS="--only day" for parts
	@$(PYTHON) -m benchmarks.bench_packing $(PACKING_ARGS)

bench-forecast: env ## expected starts: coverage, width and seconds; FORECAST_ARGS="--only philly" for parts
	@$(PYTHON) -m benchmarks.bench_forecast $(FORECAST_ARGS)

slurm-parity: env ## priorities and fair share beside a real Slurm, where it is installed
	@$(PYTHON) -m benchmarks.slurm_parity

slurm-cycles: env ## a real Slurm's scheduling cycle beside our decision; SLURM_ARGS="--jobs 2000" for a longer queue
	@$(PYTHON) -m benchmarks.slurm_cycles $(SLURM_ARGS)

test-whole: env frontend chromium ## every page, flow and process over whole portals, half an hour on two cores
	@$(PYTHON) -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder -m "$(WHOLE)" $(PYTEST_ARGS)

test-slow: env frontend ## the tests that take minutes
	@$(PYTHON) -m pytest -m slow $(PYTEST_ARGS)

test-sample: env frontend chromium ## some files of test-whole and of the slow tests, others for each commit
	@$(PYTHON) -m pytest -n $(TEST_PROCESSES) --dist loadfile -m "$(WHOLE)" --sample-files 4
	@$(PYTHON) -m pytest -n 2 -m slow --sample 2 tests/flows tests/supervisor
	@$(PYTHON) -m pytest -m slow --sample 3 tests/executors

mutants: env ## mistakes made in the core, and how many the tests notice; MUTANTS_ARGS="--changed main" or "--module ledger --limit 50"
	@nice $(PYTHON) -m tests.mutation $(MUTANTS_ARGS)

chaos: env frontend ## kill everything, many times
	@$(PYTHON) -m pytest -m chaos $(PYTEST_ARGS)

frontend: env ## build the front end when it changed
	@scripts/build_frontend.sh

env:
	@scripts/bootstrap_env.sh
	@$(PYTHON) -m compileall -q accounts client/evenkeel portal scheduling # a portal is a dozen processes

chromium:
	@scripts/ensure_chromium.sh

lock: env ## resolve the dependencies anew
	@scripts/lock.sh

clean: ## remove what was built (never ./data)
	rm -rf .venv frontend/dist frontend/node_modules .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
