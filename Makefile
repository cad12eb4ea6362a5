# SPDX-License-Identifier: Apache-2.0
# Probing: one Makefile, no recursion. `make help` lists the targets and the switches.

VERSION := 0.1.0

# ---- switches -------------------------------------------------------------------------------
V       ?=
DEBUG   ?=
SAN     ?=
O       ?= build
# One name for one folder: what make knows of a file's headers (.d) is known of the file under that name.
override O := $(patsubst $(CURDIR)/%,%,$(O))
PREFIX  ?= /usr/local
DESTDIR ?=
PYTHON  ?= python3
DEMO_SECONDS ?= 30
QUICK   ?=
CC      ?= cc
CFLAGS  ?=
LDFLAGS ?=

ifeq ($(V),)
Q := @
say = @printf '  %-7s %s\n' $(1) $(2)
else
Q :=
say = @:
endif

# ---- flags, said once -----------------------------------------------------------------------
OPT := $(if $(DEBUG),-O0,-O2) -g
# WERROR=1: CI and lint. A newcomer's newer compiler may warn of what ours do not.
WARN := -Wall -Wextra -Wshadow $(if $(filter 1,$(WERROR)),-Werror)
SANFLAGS := $(strip $(if $(filter 1 address,$(SAN)),-fsanitize=address -fsanitize=undefined \
                    -fno-sanitize-recover=undefined -fno-omit-frame-pointer) \
                    $(if $(filter thread,$(SAN)),-fsanitize=thread))
ALL_CFLAGS := -std=gnu11 $(OPT) $(WARN) -fPIC -fvisibility=hidden -D_GNU_SOURCE \
              -DPROBING_VERSION='"$(VERSION)"' -I. -I$(O)/gen $(SANFLAGS) $(CFLAGS)
ALL_LDFLAGS := $(SANFLAGS) -Wl,-z,relro,-z,now $(LDFLAGS)
# What demangles C++ names, where it can be linked (traces/symbol.c).
LIBSUPCXX := $(filter /%,$(shell $(CC) -print-file-name=libsupc++.a 2>/dev/null))
DEMANGLE  := $(if $(LIBSUPCXX),-u __cxa_demangle $(LIBSUPCXX))

# ---- folders: every .c file belongs to the one it lies in -----------------------------------------
TRACES    := $(wildcard traces/*.c)
WRITER    := $(wildcard writer/*.c)
PYWALK    := $(wildcard agent/pywalk/*.c)
STUBS     := agent/core/preload.c agent/core/inject.c
AGENT     := agent/parts.c $(filter-out $(STUBS) $(PYWALK),$(wildcard agent/*/*.c))
CONVERTER := $(filter-out converter/extension.c,$(wildcard converter/*.c))
INSPECT   := $(wildcard gdbplugin/*.c)
TOOLS     := $(wildcard tools/*.c tools/export/*.c)
SERVE     := $(wildcard tools/serve/*.c)
REMOTE    := $(wildcard tools/remote/*.c)
CLUSTER   := $(wildcard tools/cluster/*.c)
UNIT      := $(wildcard tests/unit/test_*.c)
BENCH     := $(wildcard tests/bench/bench_*.c)
FUZZ      := $(wildcard tests/fuzz/fuzz_*.c)
# Small C programs that tests run or load: tests/programs/NAME.c -> $(O)/tests/programs/NAME
PROGRAMS  := $(wildcard tests/programs/*.c)
FLEET     := $(wildcard tests/fleet/*.c)

obj = $(patsubst %.c,$(O)/obj/%.o,$(1))
LIBS_STATIC := $(O)/obj/libinspect.a $(O)/obj/libconverter.a $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a

BIN  := $(O)/bin
LIB  := $(O)/lib/probing
SHARE := $(O)/share/probing
MAN  := $(O)/share/man/man1

# probing is one program; the names below are links to it (it looks at argv[0]).
COMMANDS := probing-record probing-convert probing-query
PYPKG   := $(patsubst agent/python_api/%,$(SHARE)/python/%,$(wildcard agent/python_api/probing/*.py agent/python_api/*.pth))
PLUGIN  := $(patsubst gdbplugin/%,$(SHARE)/gdb/%,$(wildcard gdbplugin/*.py gdbplugin/probing_gdb/*.py))
MANPAGES := $(patsubst tools/man/%,$(MAN)/%,$(wildcard tools/man/*.1))
DATA    := $(patsubst tools/data/%,$(SHARE)/%,$(wildcard tools/data/*))

PRODUCTS := $(BIN)/probing $(COMMANDS:%=$(BIN)/%) $(LIB)/libprobing-agent.so \
            $(LIB)/libprobing-preload.so $(LIB)/libprobing-inject.so $(LIB)/libprobing-inspect.so \
            $(LIB)/libprobing-read.so $(LIB)/probing.so $(LIB)/probing-serve $(LIB)/probing-remote $(LIB)/probing-cluster $(PYPKG) $(PLUGIN) $(SHARE)/eval.py $(MANPAGES) $(DATA)

.DEFAULT_GOAL := all
.PHONY: all demo test test-all unit e2e mutants bench lint format schema-md install uninstall clean deps help libs
.SECONDARY:
.DELETE_ON_ERROR:

all: $(PRODUCTS) ## build everything into $(O)/ (laid out like the installed prefix)

# What is missing is installed before anything is compiled, but only for these goals: plain `make`
# never installs.
DEPS_GROUPS := $(strip $(if $(filter deps demo test test-all unit e2e mutants bench,$(MAKECMDGOALS)),build) \
               $(if $(filter deps test test-all unit e2e mutants bench lint,$(MAKECMDGOALS)),test) $(filter test-all,$(MAKECMDGOALS)) \
               $(if $(filter demo bench,$(MAKECMDGOALS)),demo) $(if $(filter lint,$(MAKECMDGOALS)),build lint))
deps: ## install what is missing through apt (needs root or sudo only when something is)
	@PYTHON='$(PYTHON)' .ci/deps.sh $(DEPS_GROUPS)
NEED := $(if $(DEPS_GROUPS),deps)

# ---- compiling ----------------------------------------------------------------------------------
$(O)/obj/%.o: %.c $(O)/obj/.flags | $(NEED)
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Rebuild when the compiler or the flags change.
$(O)/obj/.flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS))' | cmp -s - $@ || \
	 echo '$(subst ','\'',$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS))' > $@
FORCE:

# Text files as C strings: FILE -> gen/FILE.inc (bytes, comma separated); converter/schema/*.sql in the order of their names -> one
$(O)/gen/%.inc: %
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)od -An -v -tu1 $< | sed -E 's/ +([0-9]+)/\1,/g' > $@
SCHEMA := $(sort $(wildcard converter/schema/*.sql))
$(O)/gen/converter/schema.sql.inc: $(SCHEMA) converter/schema
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)cat $(SCHEMA) | od -An -v -tu1 | sed -E 's/ +([0-9]+)/\1,/g' > $@
QUESTIONS := $(sort $(wildcard tools/questions/*.sql))
$(O)/gen/tools/questions.sql.inc: $(QUESTIONS) tools/questions
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)cat $(QUESTIONS) | od -An -v -tu1 | sed -E 's/ +([0-9]+)/\1,/g' > $@
# The page of `probing report`: its sections, and its scripts as one
$(O)/gen/tools/report.sql.inc: $(sort $(wildcard tools/report/*.sql)) tools/report
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)cat $(sort $(wildcard tools/report/*.sql)) | od -An -v -tu1 | sed -E 's/ +([0-9]+)/\1,/g' > $@
$(O)/gen/tools/report.js.inc: $(sort $(wildcard tools/report/*.js)) tools/report
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)cat $(sort $(wildcard tools/report/*.js)) | od -An -v -tu1 | sed -E 's/ +([0-9]+)/\1,/g' > $@
# Folders, that make must not take for programs of a .c file beside them
tools/report tools/questions converter/schema: ;
EMBED := converter/schema.sql tools/questions.sql tools/report.sql tools/report.js tools/report/style.css $(wildcard agent/*/*.py tools/embed/* tools/serve/*.json tools/serve/*.html)
$(call obj,$(CONVERTER) $(AGENT) $(TOOLS) $(SERVE) $(UNIT)): | $(EMBED:%=$(O)/gen/%.inc)

define static_lib
$(O)/obj/lib$(1).a: $(call obj,$(2))
	$$(call say,AR,$$@)
	$$(Q)rm -f $$@ && ar rcs $$@ $$^
endef
$(eval $(call static_lib,traces,$(TRACES)))
$(eval $(call static_lib,writer,$(WRITER)))
$(eval $(call static_lib,pywalk,$(PYWALK)))
$(eval $(call static_lib,converter,$(CONVERTER)))
$(eval $(call static_lib,inspect,$(INSPECT)))
libs: $(LIBS_STATIC)

# ---- what goes into the target: libzstd statically, and nothing else but libc --------------------
$(LIB)/libprobing-agent.so: $(call obj,$(AGENT)) $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $(call obj,$(AGENT)) $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a \
	  $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -Wl,-z,defs -l:libzstd.a -lpthread -ldl

$(LIB)/libprobing-inject.so: $(O)/obj/traces/filter.o
$(LIB)/libprobing-inject.so: STARTFILES := -nostartfiles # agent/core/inject.c says why
$(LIB)/libprobing-preload.so $(LIB)/libprobing-inject.so: $(LIB)/libprobing-%.so: $(O)/obj/agent/core/%.o
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared $(STARTFILES) -o $@ $(filter %.o,$^) $(ALL_LDFLAGS) -Wl,-z,defs -ldl -lpthread

# ---- outside the target -----------------------------------------------------------------------
$(LIB)/libprobing-inspect.so: $(call obj,$(INSPECT)) $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $(call obj,$(INSPECT)) $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a \
	  $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -Wl,-z,defs -ldw -lelf -lzstd -lcjson -lpthread

# Traces as Arrow streams (converter/arrow_read.h), for `import probing`: never in a target that does not ask for it.
$(LIB)/libprobing-read.so: $(call obj,$(CONVERTER)) $(O)/obj/libtraces.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $^ $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -Wl,-z,defs -lsqlite3 -lzstd -lpcre2-8 -ldw -lelf -lm -lpthread -ldl

# The SQLite extension: sqlite3> .load PREFIX/lib/probing/probing
EXTENSION := $(patsubst %.c,$(O)/obj/extension/%.o,converter/overlap.c converter/replay.c converter/replay_absent.c converter/replay_group.c converter/replay_load.c converter/replay_meet.c converter/replay_mirror.c converter/since_row.c)
$(EXTENSION): $(O)/obj/extension/%.o: %.c converter/extension.h $(O)/obj/.flags | $(NEED)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -include converter/extension.h -MMD -MP -c -o $@ $<
$(LIB)/probing.so: $(O)/obj/converter/extension.o $(EXTENSION) $(O)/obj/libtraces.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $^ $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -Wl,-z,defs -lzstd -lpcre2-8 -lm

# libdw, libelf, libedit and libpcre2 are loaded when they are needed (tools/late.c).
$(BIN)/probing: $(call obj,$(TOOLS)) $(LIBS_STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) $(DEMANGLE) -lsqlite3 -lzstd -lz -lcjson -lm -lpthread -ldl
# Programs of their own, which `probing` runs: what they link (an HTTP server, an HTTP client) loads in no other command.
$(LIB)/probing-serve: $(call obj,$(SERVE) $(filter-out tools/main.c,$(TOOLS))) $(LIBS_STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lmicrohttpd -lsqlite3 -lzstd -lz -lcjson -lm -lpthread -ldl
$(LIB)/probing-remote: $(call obj,$(REMOTE) $(filter-out tools/main.c,$(TOOLS))) $(LIBS_STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lcurl -lsqlite3 -lzstd -lz -lcjson -lm -lpthread -ldl
$(LIB)/probing-cluster: $(call obj,$(CLUSTER) $(filter-out tools/main.c,$(TOOLS))) $(LIBS_STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lcurl -lsqlite3 -lzstd -lz -lcjson -lm -lpthread -ldl
$(COMMANDS:%=$(BIN)/%): $(BIN)/probing
	@ln -sf probing $@

$(SHARE)/gdb/%: gdbplugin/%
	@mkdir -p $(@D) && cp $< $@
$(SHARE)/python/%: agent/python_api/%
	@mkdir -p $(@D) && sed 's/@VERSION@/$(VERSION)/' $< > $@
$(MAN)/%: tools/man/%
	@mkdir -p $(@D) && sed 's/@VERSION@/$(VERSION)/' $< > $@
$(SHARE)/eval.py: agent/python/eval.py
	@mkdir -p $(@D) && cp $< $@
$(SHARE)/%: tools/data/%
	@mkdir -p $(@D) && cp $< $@

# ---- tests ------------------------------------------------------------------------------------
# All libraries are linked into every unit test; `make $(O)/tests/unit/test_ring` builds one.
$(O)/tests/unit/%: $(O)/obj/tests/unit/%.o $(LIBS_STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(ALL_LDFLAGS) -lcmocka -lsqlite3 -lzstd -lpcre2-8 -ldw -lelf -lcjson -lm -lpthread -ldl
$(O)/tests/unit/test_numbers: $(O)/obj/tools/numbers.o
$(O)/tests/unit/test_time_range: $(O)/obj/tools/time_range.o
$(O)/tests/unit/test_thin: $(O)/obj/tools/thin.o
$(O)/tests/unit/test_stepped: $(O)/obj/tools/pack_write.o
$(O)/tests/unit/test_protobuf: $(O)/obj/tools/export/protobuf.o $(O)/obj/traces/visible.o $(O)/obj/traces/map.o
$(O)/tests/bench/%: $(O)/obj/tests/bench/%.o $(LIBS_STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lsqlite3 -lzstd -lpcre2-8 -ldw -lelf -lm -lpthread -ldl
$(O)/tests/fuzz/%: $(O)/obj/tests/fuzz/%.o $(LIBS_STATIC)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lsqlite3 -lzstd -lpcre2-8 -ldw -lelf -lm -lpthread -ldl
# Traces of a simulated job: tests/fleet/README.md
$(O)/tests/fleet/probing-fleet: $(call obj,$(FLEET)) $(LIBS_STATIC) $(O)/tests/fleet/training.zst
	$(call say,LD,$@)
	$(Q)$(CC) -o $@ $(filter-out %.zst,$^) $(ALL_LDFLAGS) -lsqlite3 -lzstd -lpcre2-8 -ldw -lelf -lm -lpthread -ldl
$(O)/tests/fleet/training.zst: tests/fleet/training.zst
	@mkdir -p $(@D) && cp $< $@
$(O)/tests/programs/%: tests/programs/%.c | $(NEED)
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O1 -g -Wall -D_GNU_SOURCE -I. $(SHARED) $(if $(filter %.a,$^),$(SANFLAGS)) -o $@ $< \
	  $(filter %.a,$^) $(MORE_LIBS) -lpthread -ldl
$(O)/tests/programs/make_golden $(O)/tests/programs/mailbox: $(O)/obj/libwriter.a $(O)/obj/libtraces.a
$(O)/tests/programs/make_golden $(O)/tests/programs/mailbox: MORE_LIBS := -lzstd
$(O)/tests/programs/pywalk_dump $(O)/tests/programs/pywalk_direct $(O)/tests/programs/pywalk_truth $(O)/tests/programs/object_dump: $(O)/obj/libpywalk.a
$(O)/tests/programs/many_servers: MORE_LIBS := -lmicrohttpd
$(O)/tests/programs/die_in_call: $(O)/obj/libinspect.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a
$(O)/tests/programs/pywalk_direct $(O)/tests/programs/nocfi $(O)/tests/programs/dstate $(O)/tests/programs/fake_nvml $(O)/tests/programs/fake_cuda $(O)/tests/programs/fake_nccl $(O)/tests/programs/ticker $(O)/tests/programs/slow_exit $(O)/tests/programs/swapped_states $(O)/tests/programs/nested_states $(O)/tests/programs/interrupt_at $(O)/tests/programs/fork_in_load: SHARED := -shared -fPIC

UNIT_BINS := $(patsubst %.c,$(O)/%,$(UNIT))
PROGRAM_BINS := $(patsubst %.c,$(O)/%,$(PROGRAMS)) $(O)/tests/fleet/probing-fleet
BENCH_BINS := $(patsubst %.c,$(O)/%,$(BENCH))
TESTS := PYTHON='$(PYTHON)' tests/run.sh '$(O)'

test: all $(UNIT_BINS) $(PROGRAM_BINS) ## install what is missing, build, and run the tests (unit and end to end)
	$(Q)$(TESTS) unit e2e
test-all: all $(UNIT_BINS) $(PROGRAM_BINS) ## test, and the slow ones too, also with the Pythons of Debian sid
	$(Q)$(TESTS) unit all
unit: $(UNIT_BINS) $(PROGRAM_BINS) ## the C unit tests only (cmocka)
	$(Q)$(TESTS) unit
e2e: all $(PROGRAM_BINS) ## the end-to-end tests only (pytest); ARGS= for pytest
	$(Q)$(TESTS) e2e $(ARGS)

mutants: $(NEED) ## change lines of C, one at a time in a copy, and say which no test notices; FILES= N=2 (of each file) SEED=1 E2E=
	$(Q)tests/mutants.py $(if $(E2E),--e2e) -n $(or $(N),2) --seed $(or $(SEED),1) --make "make CC='$(CC)' SAN='$(SAN)'" $(FILES)

bench: all $(BENCH_BINS) $(O)/tests/programs/ticker $(O)/tests/fleet/probing-fleet ## measure, and write tests/bench/RESULTS.md; PART="c toggle": these alone; QUICK=1: in short, writes nothing
	$(Q)PYTHON='$(PYTHON)' $$(PYTHON='$(PYTHON)' .ci/pytest-python) tests/bench/run.py --build '$(O)' $(if $(QUICK),--quick) $(PART:%=--only %) $(ARGS)

demo: all ## install what is missing, build, record a training run, ask it in SQL; DEMO_SECONDS=30
	$(Q)PYTHON='$(PYTHON)' .ci/demo.sh '$(O)' '$(DEMO_SECONDS)'

lint: deps ## includes as drawn, SCHEMA.md, compilers with warnings as errors, sanitizers, cppcheck, shellcheck, pyflakes, format
	$(Q).ci/lint.sh '$(O)/lint'

schema-md: ## write converter/SCHEMA.md: every view and column (lint fails where it is old)
	$(Q)python3 .ci/schema-md.py

FORMATTED := $(wildcard $(patsubst %,%/*.[ch],traces writer agent agent/* converter gdbplugin tools tools/* \
             tests/unit tests/bench tests/fuzz tests/fleet tests/programs))
format: ## clang-format over our C
	$(Q)clang-format -i $(FORMATTED)

# ---- installing -------------------------------------------------------------------------------
# GDB reads the Python files of its system gdbinit directory before it attaches; ours is one line that sources the
# plugin if it is there.
GDBINIT_DIR ?= $(shell gdb --configuration 2>/dev/null | sed -n 's/.*--with-system-gdbinit-dir=\([^ ]*\).*/\1/p')
install: all ## install under PREFIX (DESTDIR is honoured), and GDB's one line that loads the plugin
	$(call say,INSTALL,$(DESTDIR)$(PREFIX))
	$(Q)for f in $(PRODUCTS:$(O)/%=%); do \
	  mkdir -p "$$(dirname '$(DESTDIR)$(PREFIX)'/$$f)" && \
	  cp -P --remove-destination '$(O)'/$$f '$(DESTDIR)$(PREFIX)'/$$f || exit 1; done
	$(Q)dir='$(GDBINIT_DIR)'; \
	if [ -n "$$dir" ] && mkdir -p '$(DESTDIR)'"$$dir" 2>/dev/null && \
	   printf '%s\n' 'import gdb, os.path; [gdb.execute("source " + p) for p in ["$(PREFIX)/share/probing/gdb/probing.py"] if os.path.exists(p)]' \
	     2>/dev/null > '$(DESTDIR)'"$$dir"/probing.py; \
	then printf '  %-7s %s\n' INSTALL '$(DESTDIR)'"$$dir"/probing.py; \
	else echo 'GDB has no system gdbinit directory that can be written. Load the plugin by hand:'; \
	     echo '  gdb -ix $(PREFIX)/share/probing/gdb/probing.py -p PID -ex "probing inject"'; fi
uninstall: ## remove what install put there
	$(call say,REMOVE,$(DESTDIR)$(PREFIX))
	$(Q)rm -f $(patsubst $(O)/%,'$(DESTDIR)$(PREFIX)/%',$(BIN)/probing $(COMMANDS:%=$(BIN)/%) $(MANPAGES))
	$(Q)rm -rf '$(DESTDIR)$(PREFIX)/lib/probing' '$(DESTDIR)$(PREFIX)/share/probing'
	$(Q)dir='$(GDBINIT_DIR)'; file='$(DESTDIR)'"$$dir"/probing.py; \
	if [ -n "$$dir" ] && grep -qF '"$(PREFIX)/share/probing/' "$$file" 2>/dev/null; then rm -f "$$file"; fi

help: ## this text
	@echo 'usage: make [TARGET] [SWITCH=...]'; echo
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14
	@echo; echo '  V=1 show the commands   DEBUG=1 without optimisation   SAN=1|thread with sanitizers   WERROR=1 no warnings'
	@echo '  O=DIR build there (build)   CC= CFLAGS= LDFLAGS= PREFIX= DESTDIR= PYTHON='

clean: ## remove $(O)/
	rm -rf $(O)

-include $(shell find $(O)/obj -name '*.d' 2>/dev/null)
