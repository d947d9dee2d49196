# Every target says after ## what it does; `make help` lists them.
GO ?= go
BIN := bin
# Checks of invariants run in tests: see protocol/invariant.
TEST := $(GO) test -tags invariants -timeout 20m
# A module of its own, so that what it needs is no requirement of the server.
MUTATIONS_DIR := cmd/internal/mutations
OTEL_DIR := cmd/holdfast-otel
MODULES := $(MUTATIONS_DIR) $(OTEL_DIR) server/clients/go/holdfast # modules that are checked as the main one is
MUTATE := $(GO) -C $(MUTATIONS_DIR) run .
# Built by the Go command the first time, which takes minutes and the network; HELM=helm takes the one that is installed.
HELM ?= $(GO) run -trimpath helm.sh/helm/v3/cmd/helm@v3.22.0

.DEFAULT_GOAL := help
.PHONY: help build otel test quick race check vet-others fmt fuzz rewrite demo jepsen model picture mutants mutations mutations-changed mutations-sample land soak hours bench bench-results bench-native bench-libraries bench-limits bench-compare differential differential-newer upgrade clients dist chart image monitoring clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/holdfast
	$(GO) build -o $(BIN)/holdfast ./cmd/holdfast

otel: ## build bin/holdfast-otel, which makes spans of OpenTelemetry from audit logs
	$(GO) -C $(OTEL_DIR) build -o $(CURDIR)/$(BIN)/holdfast-otel .

test: ## run all tests; needs nothing but Go
	$(TEST) ./...
	$(GO) -C $(MUTATIONS_DIR) test -count=1 ./... # the go command does not see that files of another module change
	$(GO) -C $(OTEL_DIR) test ./...

quick: ## an answer to an edit in 90 s: gofumpt, the tests without processes and long runs, vet
	@out=$$($(GO) tool gofumpt -l .); if [ -n "$$out" ]; then echo "run 'make fmt', these files differ:"; echo "$$out"; exit 1; fi
	$(TEST) -short -vet=off ./...
	$(GO) -C $(MUTATIONS_DIR) test -count=1 -short ./...
	$(GO) -C $(OTEL_DIR) test ./...
	$(GO) vet ./...

race: ## run all tests under the race detector
	$(GO) test -race -timeout 30m ./...
	$(GO) -C $(MUTATIONS_DIR) test -race ./...
	$(GO) -C $(OTEL_DIR) test -race ./...

check: ## vet, staticcheck, gofumpt, go.mod tidiness
	$(GO) vet ./...
	$(GO) vet -tags trace ./server/raftnode ./jepsen/model
	$(GO) tool staticcheck ./...
	@for dir in $(MODULES); do $(GO) -C $$dir vet ./... && (cd $$dir && $$($(GO) -C $(CURDIR) tool -n staticcheck) ./...) || exit 1; done
	@out=$$($(GO) tool gofumpt -l .); if [ -n "$$out" ]; then echo "run 'make fmt', these files differ:"; echo "$$out"; exit 1; fi
	@for dir in . $(MODULES) bench/etcd bench/zookeeper bench/libraries cmd/holdfast/packaging/strict; do echo "$(GO) mod tidy -diff # $$dir"; (cd $$dir && $(GO) mod tidy -diff) || exit 1; done

vet-others: ## vet for macOS and FreeBSD; the program builds for Windows
	@for os in darwin freebsd; do echo "GOOS=$$os $(GO) vet ./..."; for dir in . $(MODULES); do GOOS=$$os $(GO) -C $$dir vet ./... || exit 1; done; done
	GOOS=windows $(GO) build -o /dev/null ./cmd/holdfast

fmt: ## format Go with gofumpt, and wrap Markdown
	$(GO) tool gofumpt -l -w .
	$(GO) run ./cmd/internal/mdwrap -w

rewrite: ## regenerate transcripts and generated documents after an intended change
	@$(HELM) version >/dev/null || { echo "rewrite: no helm: '$(HELM)' fails; say HELM=helm where one is installed" >&2; exit 1; }
	HOLDFAST_HELM="$(HELM)" $(GO) test -timeout 30m ./cmd/holdfast ./fsm ./fsm/locks ./fsm/waits ./server ./server/frontend ./server/reconfig ./server/replica ./server/web ./server/monitoring ./jepsen/internal/picture -rewrite

FUZZTIME ?= 20s
fuzz: ## run every fuzz target for FUZZTIME (20s)
	@./.ci/fuzz $(FUZZTIME)

demo: ## three nodes on this machine, ports 6379 to 6381
	$(GO) run ./cmd/holdfast demo

differential: ## compare replies with a real redis-server 7.0 (installed by you), import from it, and move as the page says
	HOLDFAST_REDIS_SERVER=$${HOLDFAST_REDIS_SERVER:-$$(command -v redis-server)} $(GO) test -count=1 -run Differential ./protocol ./fsm/... ./server/frontend
	HOLDFAST_REDIS_SERVER=$${HOLDFAST_REDIS_SERVER:-$$(command -v redis-server)} $(GO) test -count=1 ./cmd/internal/importer
	HOLDFAST_REDIS_SERVER=$${HOLDFAST_REDIS_SERVER:-$$(command -v redis-server)} $(GO) test -count=1 -run Moving ./cmd/holdfast

differential-newer: ## the same with redis-server 8.2, which pip installs into a temporary folder; says so if it cannot
	@./.ci/differential-newer

jepsen: ## partition tests against a three-node cluster, about three minutes
	$(GO) run ./jepsen --time 150s

model: ## TLC over the TLA+ models of Raft as it is changed here, and over traces, minutes; MODEL=large: hours; needs Java and Maven
	@./jepsen/model/run $(MODEL)

picture: ## draw the README's picture from new runs of Redis with Sentinel and of Holdfast; as root, two minutes
	$(GO) run ./jepsen --picture jepsen/picture

mutants: ## servers that are wrong on purpose: the partition tests must find each
	./.ci/mutants

MUTATIONS ?=
mutations: ## mistakes made on purpose in the tables beside the code: each must fail the test it names (MUTATIONS='fsm protocol')
	$(MUTATE) $(MUTATIONS)

# What origin/main has; in a clone without one, the commit before.
BASE ?= $(shell git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD~1)
MOST ?= 300
mutations-changed: ## MOST (300) mistakes that a machine makes in the lines that BASE does not have, and the tables of their packages
	$(MUTATE) -changed $(BASE) -most $(MOST)

land: test check mutations-changed ## what a change needs before it lands

SAMPLE ?= 300
mutations-sample: ## mistakes that a machine makes anywhere in the product, SAMPLE (300) of them by SEED
	$(MUTATE) -sample $(SAMPLE) -seed $(SEED) -floor 70

SOAK ?= 1h
VIRTUAL ?= 1h@1/2m
SEED ?= 0
soak: ## partition tests with five nodes and all faults, seed after seed for SOAK (1h), as root; keeps the reports of those not valid
	$(GO) run ./jepsen --soak $(SOAK) --nodes 5 --nemesis all --time 4m --seed $(SEED)

hours: ## hours of a cluster in virtual time with checks of invariants, on each core for SOAK (1h), until a run is not valid; VIRTUAL: see jepsen/README.md
	nice -n 19 $(GO) run ./jepsen --soak $(SOAK) --virtual $(VIRTUAL) --seed $(SEED)

bench: ## closed-loop acquire and release against a three-node cluster it starts
	$(GO) run ./bench --peers holdfast

bench-results: ## measure the table of bench/RESULTS.md and write it there, about 12 minutes
	$(GO) run ./bench --preset table
	$(GO) run ./bench --write bench/RESULTS.md

bench-native: ## measure native locks beside other queues and write their section of bench/RESULTS.md, 25 minutes
	$(GO) run ./bench --preset native
	$(GO) run ./bench --preset native-limits
	$(GO) run ./bench --write bench/RESULTS.md

bench-libraries: ## measure lock libraries beside their peers and write their section of bench/RESULTS.md, 10 minutes
	$(GO) run ./bench --preset libraries
	$(GO) run ./bench --write bench/RESULTS.md

bench-limits: ## measure what the table does not show (memory, snapshots, restart, failover, growth, elections), half an hour
	$(GO) run ./bench --preset limits
	$(GO) run ./bench --preset growth
	$(GO) run ./bench --preset busy

COUNT ?= 10
BENCHTIME ?= 200ms
bench-compare: ## compare Go micro-benchmarks with those of another revision: make bench-compare BASE=main
	@GO="$(GO)" ./.ci/bench-compare "$(BASE)" $(COUNT) $(BENCHTIME)

upgrade: ## upgrade a cluster to a next release, made of this tree, node by node under load, and back
	HOLDFAST_UPGRADE=yes $(GO) test -count=1 -v -timeout 15m -run '^TestUpgrade' ./cmd/holdfast

clients: ## stock clients and lock libraries against three nodes; installs them into a temporary folder
	./server/clients/run.sh

page: ## drive the page of --http-addr in a headless Chromium; needs chromium and redis-cli
	$(GO) test -count=1 -v -run '^Test(Page|DocumentsOfNodes)' ./cmd/holdfast | grep -v '^=== '

page-picture: ## draw the README's picture of the page, of a cluster that is busy for half an hour
	HOLDFAST_PAGE_SCENE=30m HOLDFAST_PAGE_PICTURES=$(CURDIR)/server/web $(GO) test -count=1 -timeout 1h -run '^TestPagePicture' ./cmd/holdfast

dist: ## what a release consists of, in dist/: archives, packages, client libraries, SBOMs, notes, checksums
	./cmd/holdfast/packaging/dist.sh

chart: ## helm lints and renders the Helm chart, Kubernetes' types know each word, nodes are scaled, and the plain manifests are its rendering
	HOLDFAST_HELM="$(HELM)" $(GO) test -count=1 -v -timeout 30m -run '^TestChart' ./cmd/holdfast

image: ## build the image and run compose.yaml from it by podman, as root
	./cmd/holdfast/packaging/image.sh

monitoring: ## promtool checks alerts and dashboard, where there is promtool or Debian's package
	./server/monitoring/check.sh

clean: ## remove what the targets made
	rm -rf $(BIN) dist store bench-results
