# SPDX-License-Identifier: MIT
# The front door. Each target is a command a person could type; CI calls the same ones.
#
#   PRESET=dev   build settings from CMakePresets.json: dev (optimised, no debug information), debug
#                (each source on its own, for a debugger), ci (dev, warnings are errors), aarch64 (for
#                arm64, on another machine)
#   JOBS=N       parallel jobs; default: all cores
#   SETUP=       skip the installation of packages
#   PAGES=16     of the kernel that 'make test-pages' starts, in KiB: 16 or 64
#   SLICE=none   tests besides those that 'make test' always runs: none, 1 to 5, or all
#                (CONTRIBUTING.md, "Tests that are products")
.DEFAULT_GOAL := help
PRESET ?= dev
JOBS ?= $(shell nproc)
SETUP ?= scripts/setup.sh
STORY ?= -p "Once upon a time" -n 200 --cache 25% --seed 1
FUZZ_SECONDS ?= 60
SLICE ?= none
PAGES ?= 16
$(if $(filter none all 1 2 3 4 5,$(SLICE)),,$(error SLICE is none, all or a number from 1 to 5, not '$(SLICE)'))
# Of tests named Slice1/... to Slice5/... all but the chosen ones are left out.
left_out = $(if $(filter all,$(SLICE)),,-E '^Slice[$(if $(filter none,$(SLICE)),1-5,^$(SLICE))]/')

# configure,<preset>: quiet unless it fails.
define configure
@mkdir -p build && cmake --preset $(1) $(if $(ISAS),-DMOESTRO_ISAS=$(ISAS)) >build/configure-$(1).log 2>&1 \
  || { cat build/configure-$(1).log; exit 1; }
endef

.PHONY: help
help: ## this list
	@awk -F':.*## ' '/^[a-z%-]+:.*## /{printf "  make %-13s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

# As of GNU's standards; the settings go to DESTDIR/etc (docs/install.md).
DESTDIR ?=
prefix ?= /usr/local

.PHONY: setup setup-aarch64 setup-lint setup-bench setup-fuzz setup-device setup-clients setup-numa setup-readers setup-package setup-memory setup-kernel
setup: ## install missing packages (Debian; asks for nothing, quick when nothing is missing)
	@$(SETUP)
setup-lint setup-bench setup-fuzz setup-device setup-clients setup-numa setup-readers setup-package setup-memory setup-kernel: setup-%:
	@$(if $(SETUP),$(SETUP) $*)

# Packages of arm64 lie beside the build, and nothing else of this machine changes for them.
setup-aarch64:
	@$(if $(SETUP),$(SETUP) aarch64 && scripts/aarch64_root.sh build/aarch64-root)
ifeq ($(PRESET),aarch64)
program build lab: setup-aarch64
endif

# A laboratory that lies beside the program is kept of one commit with it.
PROGRAMS = moestro $(notdir $(wildcard build/$(PRESET)/moestro-lab))

.PHONY: program build lab
program: setup ## compile what users run, as 'make run' does; leaves build/moestro
build lab: PROGRAMS = moestro moestro-lab
build: setup ## compile both programs; leaves build/moestro and build/moestro-lab
lab: setup ## the same: the program and its laboratory
program build lab:
	$(call configure,$(PRESET))
	@cmake --build --preset $(PRESET) -j $(JOBS) --target $(PROGRAMS)
	@for program in $(PROGRAMS); do ln -sfn $(PRESET)/$$program build/$$program; done

# What leaves this machine has the kernels of every instruction set.
install deb: ISAS = all

.PHONY: install
install: lab ## both programs, man pages, completions, units, settings; prefix=/usr/local, DESTDIR=
	@cmake --build --preset $(PRESET) -j $(JOBS) --target documents
	@umask 022; DESTDIR=$(if $(DESTDIR),"$$(realpath -m "$(DESTDIR)")") cmake --install build/$(PRESET) --prefix "$(prefix)"

.PHONY: deb
deb: setup-package lab ## packages for Debian in build/package: moestro, moestro-lab
	@cmake --build --preset $(PRESET) -j $(JOBS) --target documents
	@umask 022; rm -rf build/package/deb && mkdir -p build/package && cd build/$(PRESET) && \
	  cpack -B ../package/deb >../package.log 2>&1 || { cat ../package.log; exit 1; }
	@ls build/package/deb/*.deb

# Minutes, and as root: a fresh Debian from the machine's mirror, kept until 'make clean'.
build/package/tree.tar:
	@scripts/debian_tree.sh $@
build/package/tree-arm64.tar:
	@scripts/debian_tree.sh $@ arm64

.PHONY: test-deb test-image test-service
ifeq ($(PRESET),aarch64)
test-deb: deb build/package/tree-arm64.tar
	@scripts/deb_test.sh build/package/deb build/package/tree-arm64.tar
else
test-deb: deb build/package/tree.tar ## the packages in a fresh Debian: installed, used, removed (minutes)
	@cmake --build --preset $(PRESET) -j $(JOBS) --target moestro_local_hub
	@scripts/deb_test.sh build/package/deb build/package/tree.tar \
	  build/$(PRESET)/tests/support/moestro_local_hub
endif
test-image: deb build/package/tree.tar ## an image from packaging/Containerfile: built and used (minutes)
	@scripts/image_test.sh build/package/deb/moestro_*.deb build/package/tree.tar
test-service: setup-numa deb build/package/tree.tar ## its service under systemd, in a virtual machine (minutes)
	@scripts/service_vm.sh build/package/deb/moestro_*.deb build/package/tree.tar

.PHONY: run
run: program ## a story from the built-in demo model, a quarter of its experts in memory
	@build/moestro run $(STORY)

.PHONY: test
test: setup-device setup-clients setup-readers ## compile everything and run its tests; SLICE=all: products whole
	$(call configure,$(PRESET))
	@cmake --build --preset $(PRESET) -j $(JOBS)
	@for program in moestro moestro-lab; do ln -sfn $(PRESET)/$$program build/$$program; done
	@ctest --preset $(PRESET) -j $(JOBS) $(left_out) || \
	  { scripts/failed_tests.py build/$(PRESET); exit 1; }

.PHONY: unit
unit: setup ## compile and run the tests beside the sources of src/
	$(call configure,$(PRESET))
	@CTEST_PARALLEL_LEVEL=$(JOBS) cmake --build --preset $(PRESET) -j $(JOBS) --target unit

.PHONY: test-variants
test-variants: setup ## what computes with ggml, with each of its CPU plug-ins that run here
	$(call configure,$(PRESET))
	@cmake --build --preset $(PRESET) -j $(JOBS) --target test_variants

.PHONY: test-aarch64
test-aarch64: setup-aarch64 ## unit and exactness suites of arm64, as four processors under qemu (two hours)
	$(call configure,aarch64)
	@cmake --build --preset aarch64 -j $(JOBS) --target test_emulated

.PHONY: test-pages
test-pages: setup-aarch64 $(if $(filter 64,$(PAGES)),setup-kernel) ## arm64's program under a kernel with pages of PAGES=16 or 64 KiB (minutes)
	$(call configure,aarch64)
	@cmake --build --preset aarch64 -j $(JOBS) --target moestro moestro_store_test
	@scripts/pages_vm.sh build/aarch64 build/aarch64-root $(PAGES)

.PHONY: test-memory-order
test-memory-order: setup-memory ## protocols between threads, over all interleavings; weakened ones are caught
	@tests/memory_order/check.py

.PHONY: test-numa
test-numa: setup-numa lab ## threads and pages on several memory nodes, in a virtual machine (minutes)
	@scripts/numa_vm.sh build/moestro

.PHONY: check
check: ## all there is: lint-all, tests, more agreement, CPU plug-ins, memory order, both sanitizers, fuzzing
	@$(MAKE) --no-print-directory lint-all
	@$(MAKE) --no-print-directory test SLICE=all
	@MOESTRO_AGREEMENT_CASES=1000 ctest --preset $(PRESET) -R RandomAgreement
	@$(MAKE) --no-print-directory test-variants test-memory-order
	@$(MAKE) --no-print-directory check-asan
	@$(MAKE) --no-print-directory check-tsan
	@$(MAKE) --no-print-directory fuzz

# gcc's ThreadSanitizer starts the program again without address randomisation where the kernel's
# setting is too wide for it; setarch does the same for those that cannot.
.PHONY: check-asan check-tsan
check-asan: ## every test under the address and undefined-behaviour sanitizers
check-tsan: ## every test under the thread sanitizer
check-asan check-tsan: check-%: setup
	$(call configure,$*)
	@cmake --build --preset $* -j $(JOBS)
	@if setarch -R true 2>/dev/null; then setarch -R ctest --preset $* -j $(JOBS); \
	 else ctest --preset $* -j $(JOBS); fi

# Kinds of files and requests that are read; each has a target, seeds and perhaps a dictionary in
# tests/fuzz.
FUZZ_TARGETS ?= gguf policy trace paths beside low imatrix shard http api answer template hub convert \
  house text

.PHONY: fuzz
fuzz: setup-fuzz ## a minute of fuzzing each reader of files and requests (with clang)
	$(call configure,fuzz)
	@cmake --build --preset fuzz -j $(JOBS) \
	  --target moestro_fuzz_seeds $(FUZZ_TARGETS:%=moestro_%_fuzz)
	@build/fuzz/tests/fuzz/moestro_fuzz_seeds build/fuzz/corpus
	@for target in $(FUZZ_TARGETS); do \
	  echo "fuzz: $$target"; \
	  dict=tests/fuzz/$$target.dict; \
	  build/fuzz/tests/fuzz/moestro_$${target}_fuzz -max_total_time=$(FUZZ_SECONDS) \
	    -max_len=20000 $$(test -e $$dict && echo -dict=$$dict) -artifact_prefix=build/fuzz/ \
	    -verbosity=0 -print_final_stats=1 build/fuzz/corpus/$$target || exit 1; \
	done

# Everything but clang-tidy takes seconds and reads everything.
define lint
@scripts/format.py --check
@scripts/layers.py
@scripts/file_budget.py
@scripts/check_text.py
$(call configure,lint)
@scripts/tidy.py --build build/lint -j $(JOBS) $(1)
endef

.PHONY: lint lint-all
lint: setup-lint ## format, layers, budgets, text rules; clang-tidy on what the branch changed
	$(call lint,--changed)
lint-all: setup-lint ## the same with clang-tidy on everything (minutes)
	$(call lint,)

.PHONY: format
format: setup-lint ## rewrite our sources with clang-format
	@scripts/format.py

.PHONY: policies
policies: lab ## hit rates of all policies on bench/traces, into docs/policies-results.md
	@bench/policies.py build/moestro docs/policies-results.md

.PHONY: lanes
lanes: lab ## what devices would be worth on the machines of bench/machines, into docs/devices-results.md
	@bench/lanes.py build/moestro docs/devices-results.md

.PHONY: bench
bench: setup-bench ## micro-benchmarks of kernels, policies and disk reads (whole runs: bench/compare.sh)
	$(call configure,bench)
	@cmake --build --preset bench -j $(JOBS)
	@build/bench/bench/kernel_bench --benchmark_min_time=0.1s
	@build/bench/bench/policy_bench --benchmark_min_time=0.1s
	@build/bench/bench/queue_bench --benchmark_min_time=0.1s
	@test -e build/bench/store.bin || head -c 1G /dev/urandom >build/bench/store.bin
	@build/bench/bench/store_bench build/bench/store.bin

.PHONY: clean
clean: ## remove build/
	@rm -rf build
