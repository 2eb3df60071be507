# `make help` lists what there is. Everything that is built goes to bin/, but for the control plane of the tests, which
# lies in the user's cache folder so that it outlives `make clean`.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

# A release is named by its tag; outside a repository cmd/coredns says by itself what it knows.
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null)
STAMP    = -s -w$(if $(VERSION), -X main.version=$(VERSION))

# More packages than cores, since tests wait; but not many more: an API server that nobody asks takes 2 % of a core.
TEST_PARALLEL ?= 3
TEST_TIER     ?= test
# It ends what hangs, no test that is slow.
TEST_TIMEOUT  ?= 30m
TEST_FLAGS    ?=
TEST_RUN       = -json -vet=off -p $(TEST_PARALLEL) -parallel 8 $(TEST_FLAGS)
# go test takes them in this order: what takes longest begins first, so that it does not run alone at the end.
PACKAGES      ?= ./test/suites/{faults,clusterset,lifecycle,e2e} ./cmd/clusterset ./apiserver ./controller/importer ./deploy ./...

GOLANGCI_LINT := bin/golangci-lint

# All that demo, tests and linter compile is compiled in this one way, that of test/harness/gobuild, so that it is compiled once: with the profile of
# cmd/coredns Go would compile everything that this program imports again. Only the race detector, in test-all, compiles in another way.
export CGO_ENABLED := 0
override GOFLAGS := -trimpath -pgo=off -gcflags=all=-dwarf=false $(GOFLAGS)
export GOFLAGS
# What is shipped is compiled as everybody else compiles it.
build release release-check: override GOFLAGS := -trimpath

# go build, with lines of progress.
BUILD = go run -buildvcs=false ./test/tools/build

# Installs what Go does not build, or says what is left out: see the script.
NEED = test/tools/need.sh

# go test, which fails where no test ran, for targets of a few tests: bin/summary sees to that in `make test`.
GO_TEST = test/tools/gotest.sh

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

# One profile for both programs: with that of coredns alone Go would compile nearly everything twice.
.PHONY: build
build: ## build the static programs into bin/; with the profile of cmd/coredns, which takes some minutes
	go build -buildvcs=false -pgo cmd/coredns/default.pgo -ldflags '$(STAMP)' -o bin/ ./cmd/...

# The flags are those of test/harness/gobuild, so that the programs of the demo share what is compiled.
.PHONY: demo
demo: ## resolve services from files, then start a broker and three clusters and resolve theirs; Ctrl-C ends it
	@$(BUILD) -what 'the first part of the demo' \
		-next 'first answers, then the other programs' ./test/tools/demo/demo-files ./test/tools/query
	@exec bin/demo-files

# test/harness/tier says which tests each tier leaves out. The tests of programs that are missing are skipped and listed at the end.
# `make lint` vets (govet), so go test does not.
.PHONY: test
test: ## run the tests that find nearly everything; installs dig and NSD if they are missing
	@mkdir -p bin; $(NEED) $@ -optional dig nsd >bin/missing
	@$(MAKE) --no-print-directory control-plane test-programs
	@$(BUILD) -tests -what 'the tests' $(PACKAGES)
	@CLUSTERSET_TIER=$(TEST_TIER) CLUSTERSET_SKIP="$$(<bin/missing)" \
		go test -timeout $(TEST_TIMEOUT) $(TEST_RUN) $(PACKAGES) | bin/summary

# What has goroutines of its own runs under the race detector, which needs a C compiler; the pure packages do not.
RACE_PACKAGES ?= . ./apiserver ./cache/... ./plugin ./controller ./controller/{queue,lease,member,broker,identity,safety,exporter,importer,statuspage}/... \
	./test/suites/{clusterset,e2e,faults,lifecycle,security}
TIER          ?= all

.PHONY: test-race
test-race: ## run the tests of concurrent packages under the race detector; with TIER=test those alone that make test runs
	@$(NEED) $@ dig nsd gcc
	@$(MAKE) --no-print-directory control-plane test-programs $(if $(filter all,$(TIER)),further-binaries)
	@CLUSTERSET_TIER=$(TIER) CGO_ENABLED=1 go test -race -timeout 60m $(TEST_RUN) $(RACE_PACKAGES) | bin/summary

.PHONY: test-all
test-all: test-race bin/promtool bin/helm ## run all tests but those that make faults runs: those of test-race, and all others
	@CLUSTERSET_TIER=all go test -timeout 60m $(TEST_RUN) $$(go list ./... | grep -vxFf <(go list $(RACE_PACKAGES))) | bin/summary

# The programs that tests start.
.PHONY: test-programs
test-programs:
	@$(BUILD) -what 'the programs that tests start' -o bin/tests/ ./cmd/coredns ./cmd/clusterset
	@go build -o bin/ ./test/tools/summary

# How many times; KEEP_GOING=1 goes on after a run that failed.
STRESS_RUNS ?= 5

.PHONY: test-stress
test-stress: ## run all tests STRESS_RUNS=5 times beside a busy loop on each core
	@test/tools/stress.sh $(STRESS_RUNS) $(MAKE) --no-print-directory test TEST_FLAGS="-count=1 $(TEST_FLAGS)"

# The most by which lists and events are late: see test/harness/controlplane/late.go.
LATE ?= 600ms

.PHONY: test-late
test-late: control-plane test-programs ## run the tests of what watches API servers while all lists and events come late, each by up to LATE=600ms
	@CLUSTERSET_LATE=$(LATE) CLUSTERSET_TIER=test go test -timeout 60m $(TEST_RUN) -count=1 . ./apiserver ./cache ./plugin ./controller/... | bin/summary

.PHONY: test-lab
test-lab: control-plane $(GOLANGCI_LINT) ## run the linter and the tests of the tools that measure (test/lab)
	cd test/lab && $(CURDIR)/$(GOLANGCI_LINT) run ./...
	go -C test/lab test -count=1 -timeout $(TEST_TIMEOUT) ./...

# Which faults, such as "F1 F9"; all if empty.
FAULTS ?=

.PHONY: faults
faults: ## run the tests of docs/outages.md; print for each fault the bound and what was measured
	@$(NEED) $@ dig nsd
	@$(MAKE) --no-print-directory control-plane further-binaries bin/promtool bin/helm
	@go -C test/lab build -o $(CURDIR)/bin/ ./faults
	@exec bin/faults $(FAULTS)

# How many random questions, and what they are made from; another seed each time if empty.
QUESTIONS ?= 100000
SEED      ?=

.PHONY: differential
differential: ## compare our answers to QUESTIONS=100000 random questions with those of NSD; SEED=1 for the same again
	@$(NEED) $@ nsd
	seed=$(SEED); $(GO_TEST) -count=1 -v -timeout 60m -run '^TestNSD$$' ./test/suites/e2e -args -questions $(QUESTIONS) -seed $${seed:-$$(date +%s)}

# How long.
ATTACK_TIME ?= 10m

.PHONY: attack
attack: ## let a member write at random to the broker for ATTACK_TIME=10m; the answers of the others must not change
	@$(MAKE) --no-print-directory control-plane further-binaries
	CGO_ENABLED=1 $(GO_TEST) -race -count=1 -v -timeout 60m -run '^TestRandomWrites$$' ./test/suites/security -args -attack $(ATTACK_TIME) -seed $$(date +%s)

# How long.
SOAK_TIME ?= 1h

.PHONY: soak
soak: ## kill the API server and change objects under load for SOAK_TIME=1h; memory, goroutines and descriptors must stay flat
	@$(MAKE) --no-print-directory control-plane
	$(GO_TEST) -count=1 -v -timeout 0 -run '^TestAPIKilledUnderLoad$$' ./test/suites/lifecycle -args -soak $(SOAK_TIME)

# How many.
OPERATIONS ?= 200

.PHONY: interleavings
interleavings: ## do OPERATIONS=200 random changes in three members, and restart controllers; SEED=1 for the same again
	@$(MAKE) --no-print-directory control-plane
	seed=$(SEED); CGO_ENABLED=1 $(GO_TEST) -race -count=1 -v -timeout 60m -run '^TestInterleavings$$' ./test/suites/clusterset \
		-args -operations $(OPERATIONS) -interleaving $${seed:-$$(date +%s)}

# How many states of each search, and how many random runs.
STATES ?= 4000000
WALKS  ?= 400000

.PHONY: search
search: ## search STATES=4000000 orders of events, and WALKS=400000 random ones, for faults of the protocol between members; takes ten minutes
	$(GO_TEST) -count=1 -v -timeout 0 -run '^(TestSearch|TestWalks)$$' ./controller/protocol -args -states $(STATES) -walks $(WALKS)

# How long for each target, and which targets.
FUZZ_TIME ?= 10m
FUZZ      ?= .

.PHONY: fuzz
fuzz: ## give decoders, validators, resolver and merge random input for FUZZ_TIME=10m each
	@test/tools/fuzz.sh $(FUZZ_TIME) '$(FUZZ)'

# What takes too long for each change. Those that fail do not stop the others.
NIGHTLY ?= test-all faults differential search attack soak interleavings test-late fuzz test-lab bench release-check

.PHONY: nightly
nightly: ## run NIGHTLY="test-all faults differential search attack soak interleavings test-late fuzz test-lab bench release-check" one after the other; takes some hours
	@MAKE='$(MAKE)' test/tools/nightly.sh $(NIGHTLY)

bin/promtool: test/tools/promtool/go.mod test/tools/promtool/go.sum
	@echo "building promtool (once; some minutes)"
	@go -C test/tools/promtool build -buildvcs=false -tags remove_all_sd -ldflags '-s -w' -o $(CURDIR)/$@ \
		github.com/prometheus/prometheus/cmd/promtool
	@touch $@

bin/helm: $(wildcard test/tools/helm/*)
	@echo "building what the tests need of Helm"
	@go -C test/tools/helm build -buildvcs=false -o $(CURDIR)/$@ .
	@touch $@

# It compiles all plugins of CoreDNS, and downloads what they need.
.PHONY: test-plugin-cfg
test-plugin-cfg: ## build a whole CoreDNS with this plugin, as README.md says, start it, and list what the plugin adds
	$(GO_TEST) -tags plugincfg -count=1 -timeout 60m -v -run '^TestWholeCoreDNS$$' ./test/suites/docs

.PHONY: test-image
test-image: ## build and start what the Dockerfile says; as root, or with user namespaces
	@$(NEED) $@ dig
	$(GO_TEST) -tags image -vet=off -count=1 -timeout $(TEST_TIMEOUT) -run TestImage ./test/suites/docs

# It starts syft, which it finds by PATH.
GORELEASER = PATH="$(CURDIR)/bin:$$PATH" bin/goreleaser

# Without them goreleaser publishes.
RELEASE_FLAGS ?= --skip=publish,sign

.PHONY: release
release: bin/goreleaser bin/helm ## build the files of a release, for the tag of HEAD, into dist/; publishes nothing; takes over an hour
	$(GORELEASER) release --clean --timeout 6h $(RELEASE_FLAGS)

.PHONY: release-check
release-check: bin/goreleaser bin/helm ## check .goreleaser.yaml, and build a snapshot of a release, without profile, into dist/
	$(GORELEASER) check
	PGO=off $(GORELEASER) release --snapshot --clean --skip=sign --timeout 6h

# And bin/syft.
bin/goreleaser: test/tools/release/go.mod test/tools/release/go.sum
	@echo "building goreleaser and syft (once; many minutes)"
	@CGO_ENABLED=0 go -C test/tools/release build -trimpath -buildvcs=false -ldflags '-s -w' -o $(CURDIR)/bin/ tool
	@touch $@

.PHONY: test-install
test-install: control-plane ## go from two empty clusters to a name that resolves within 60 s, with the default lease, on a machine that does nothing else
	$(GO_TEST) -count=1 -v -timeout $(TEST_TIMEOUT) -run '^TestInstall$$' ./cmd/clusterset -args -within 60s

.PHONY: test-traffic
test-traffic: ## send real packets between network namespaces; as root
	@$(NEED) $@ nft ip
	@$(MAKE) --no-print-directory control-plane further-binaries
	$(GO_TEST) -vet=off -count=1 -p 1 -timeout $(TEST_TIMEOUT) -tags traffic ./test/harness/netns ./test/suites/traffic

# Those that test/harness/kubernetes pins beside that of the control plane.
KUBE_PROXIES ?= oldest newest

.PHONY: test-kube-proxies
test-kube-proxies: ## send real packets through the oldest and the newest kube-proxy that can be built, which takes minutes; as root
	@$(NEED) $@ nft ip iptables
	@$(MAKE) --no-print-directory control-plane further-binaries
	for version in $(KUBE_PROXIES); do \
		$(GO_TEST) -vet=off -count=1 -timeout $(TEST_TIMEOUT) -tags traffic -run '^(TestTraffic|TestVirtualIPs)$$' ./test/suites/traffic -args -kube-proxy $$version; done

# A folder with a checkout of https://github.com/kubernetes-sigs/mcs-api, and further flags of its suite. VIP=cidr has the members use clusterset IPs.
CHECKOUT    ?=
SUITE_FLAGS ?=

.PHONY: conformance
conformance: ## run the conformance suite of the MCS API in CHECKOUT=folder, into bin/conformance; as root
	@test/conformance.sh '$(CHECKOUT)' $(SUITE_FLAGS)

.PHONY: test-page
test-page: ## look at the status page in a headless Chromium; with PAGE_FLAGS=-update write its pictures into docs/images
	@$(NEED) $@ chromium
	@go -C test/tools/browser build -buildvcs=false -ldflags '-s -w' -o $(CURDIR)/bin/browser .
	$(GO_TEST) -tags page -count=1 -timeout $(TEST_TIMEOUT) -run '^TestStatusPageInBrowser$$' ./controller/statuspage $(PAGE_FLAGS)

.PHONY: control-plane
control-plane: ## build the kube-apiserver and etcd that tests and demo start
	@go run ./test/harness/controlplane/cmd/binaries

.PHONY: further-binaries
further-binaries: ## build the kube-controller-manager, kube-proxy and etcdutl that some tests start
	@go run ./test/harness/controlplane/cmd/binaries -further

.PHONY: lint
lint: generated $(GOLANGCI_LINT) ## check format, generated files and source
	@bad=$$(gofmt -l .); [ -z "$$bad" ] || { echo "not formatted by gofmt:"; echo "$$bad"; exit 1; } >&2
	$(GOLANGCI_LINT) run ./...

$(GOLANGCI_LINT): test/tools/gotools/go.mod test/tools/gotools/go.sum
	@echo "building golangci-lint (once; some minutes)"
	@go -C test/tools/gotools build -buildvcs=false -ldflags '-s -w' -o $(CURDIR)/$@ \
		github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

.PHONY: generate
generate: ## write the generated files anew
	go generate ./...

# Not by git: a checkout with changes that are not committed yet can still be up to date.
checksums = find . \( -path ./.git -o -path ./bin -o -path ./dist \) -prune -o -type f -exec sha256sum {} + | sort -k 2

.PHONY: generated
generated:
	@mkdir -p bin; $(checksums) >bin/before.sum
	@$(MAKE) --no-print-directory generate
	@$(checksums) | diff bin/before.sum - >bin/generated.diff || { \
		echo "generated files were not up to date; now they are:"; sed -n 's/^> [0-9a-f]*  /  /p' bin/generated.diff; exit 1; } >&2

.PHONY: bench
bench: ## compare our answers with a baseline and with CoreDNS's own plugin; as root, also send packets through kube-proxy
	@$(NEED) $@ dnsperf
	@$(NEED) $@ -optional nft ip >/dev/null
	@go -C test/lab build -o $(CURDIR)/bin/ ./bench
	@exec bin/bench

.PHONY: bench-full
bench-full: ## measure everything, with plots and profiles, into bin/bench-full; takes over an hour
	@$(NEED) $@ dnsperf nsd
	@$(NEED) $@ -optional nft ip >/dev/null
	@go -C test/lab build -o $(CURDIR)/bin/ ./bench
	@exec bin/bench -full -out bin/bench-full

.PHONY: bench-failover
bench-failover: ## measure how connections move between clusters by way of kube-proxy, with 5,000 services; takes half an hour or more, as root
	@$(NEED) $@ nft ip
	@go -C test/lab build -o $(CURDIR)/bin/ ./bench
	@exec bin/bench -full -failover -together -out bin/bench-failover

# What benchstat compares the working tree with, how often each is run, and the packages.
BASE   ?= HEAD
ROUNDS ?= 6
MICRO  ?= cache cache/index resolver plugin controller/merge controller/desired

.PHONY: benchstat
benchstat: bin/benchstat ## compare the microbenchmarks with those of the commit BASE
	@test/tools/benchstat.sh $(BASE) $(ROUNDS) $(MICRO)

bin/benchstat: test/tools/gotools/go.mod test/tools/gotools/go.sum
	@go -C test/tools/gotools build -buildvcs=false -o $(CURDIR)/$@ golang.org/x/perf/cmd/benchstat
	@touch $@

.PHONY: clean
clean: ## remove what was built here
	rm -rf bin dist
