# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#
# A thin front to meson: the build itself is described in meson.build.
#
#   make            build/unpin and build/libunpin.so, usable in place
#   make demo       install what is missing, build, and run the quick bench
#   make test       install what is missing, build, and run every test (SUITE=users,clients  K=pattern  JOBS=2)
#   make test-kernel  the tools in a guest with a newer kernel, on its software RDMA device (builds the guest the first time)
#   make soak       ten minutes of everything at once (SECONDS=600  SEED=)
#   make install    DESTDIR= PREFIX=/usr/local LIBDIR=lib/TRIPLET
#   make fmt, make lint, make clean

BUILD  := build
PREFIX := /usr/local
JOBS   :=
SUITE  :=
SECONDS := 600
SEED   :=
K      :=

# What a person uses, and the example of the README; the test programs are built by make test.
THINGS := unpin libunpin.so examples/on_demand
# Where a distribution with multiarch expects libraries; meson finds out by itself only where dpkg-dev is installed.
TRIPLET = $(shell cc -print-multiarch 2>/dev/null)
LIBDIR  = $(if $(TRIPLET),lib/$(TRIPLET),lib)

.PHONY: all demo test test-kernel soak install fmt lint clean

all:
	@scripts/deps.sh check build
	@scripts/build.sh $(BUILD) "$(JOBS)" $(THINGS)

demo:
	@scripts/deps.sh install build
	@scripts/build.sh $(BUILD) "$(JOBS)" $(THINGS)
	@$(BUILD)/unpin bench --quick

test:
	@scripts/deps.sh install build test
	@scripts/build.sh $(BUILD) "$(JOBS)" -Dtests=true
	@tests/run --build $(BUILD) $(if $(JOBS),--build-jobs $(JOBS)) $(if $(SUITE),--suite $(SUITE)) $(if $(K),-k '$(K)')

test-kernel:
	@scripts/deps.sh install build test vm
	@scripts/build.sh $(BUILD) "$(JOBS)" -Dtests=true
	@tests/run --build $(BUILD) --suite kernel $(if $(K),-k '$(K)')

soak:
	@scripts/deps.sh install build test
	@scripts/build.sh $(BUILD) "$(JOBS)" -Dtests=true
	@tests/soak.sh $(BUILD) $(SECONDS) $(SEED)

install:
	@scripts/deps.sh check build
	@scripts/build.sh $(BUILD) "$(JOBS)" -Dprefix=$(PREFIX) -Dlibdir=$(LIBDIR)
	@DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

fmt:
	@scripts/format.sh write

lint:
	@scripts/format.sh check
	@scripts/analyze.py gcc $(BUILD)
	@scripts/analyze.py tidy $(BUILD)

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan $(BUILD)-clang
