# SPDX-License-Identifier: Apache-2.0
# Probing: one Makefile, no recursion. `make help` lists the targets and the switches.

VERSION := 0.1.0

# ---- switches -------------------------------------------------------------------------------
V       ?=
DEBUG   ?=
SAN     ?=
O       ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
PYTHON  ?= python3
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
WARN := -Wall -Wextra -Wshadow -Werror
SANFLAGS := $(strip $(if $(filter 1 address,$(SAN)),-fsanitize=address -fsanitize=undefined \
                    -fno-sanitize-recover=undefined -fno-omit-frame-pointer) \
                    $(if $(filter thread,$(SAN)),-fsanitize=thread))
ALL_CFLAGS := -std=gnu11 $(OPT) $(WARN) -fPIC -fvisibility=hidden -D_GNU_SOURCE \
              -DPROBING_VERSION='"$(VERSION)"' -I. -I$(O)/gen $(SANFLAGS) $(CFLAGS)
ALL_LDFLAGS := $(SANFLAGS) -Wl,-z,relro,-z,now $(LDFLAGS)

# ---- rooms: every .c file belongs to the room it lies in -----------------------------------------
TRACES    := $(wildcard traces/*.c)
WRITER    := $(wildcard writer/*.c)
PYWALK    := $(wildcard agent/pywalk/*.c)
STUBS     := agent/preload.c agent/inject.c
AGENT     := $(filter-out $(STUBS),$(wildcard agent/*.c))
CONVERTER := $(filter-out converter/extension.c,$(wildcard converter/*.c))
INSPECT   := $(wildcard gdbplugin/*.c)
TOOLS     := $(wildcard tools/*.c)
UNIT      := $(wildcard tests/unit/test_*.c)
BENCH     := $(wildcard tests/bench/bench_*.c)
FUZZ      := $(wildcard tests/fuzz/fuzz_*.c)
# Small C programs that tests run or load: tests/programs/NAME.c -> $(O)/tests/programs/NAME
PROGRAMS  := $(wildcard tests/programs/*.c)

obj = $(patsubst %.c,$(O)/obj/%.o,$(1))
LIBS_STATIC := $(O)/obj/libinspect.a $(O)/obj/libconverter.a $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a

BIN  := $(O)/bin
LIB  := $(O)/lib/probing
SHARE := $(O)/share/probing
MAN  := $(O)/share/man/man1

# probing is one program; the names below are links to it (it looks at argv[0]).
COMMANDS := probing-record probing-convert probing-query
PLUGIN  := $(patsubst gdbplugin/%,$(SHARE)/gdb/%,$(wildcard gdbplugin/*.py gdbplugin/probing_gdb/*.py))
MANPAGES := $(patsubst tools/man/%,$(MAN)/%,$(wildcard tools/man/*.1))
DATA    := $(patsubst tools/data/%,$(SHARE)/%,$(wildcard tools/data/*))

PRODUCTS := $(BIN)/probing $(COMMANDS:%=$(BIN)/%) $(LIB)/libprobing-agent.so \
            $(LIB)/libprobing-preload.so $(LIB)/libprobing-inject.so $(LIB)/libprobing-inspect.so \
            $(LIB)/probing.so $(PLUGIN) $(MANPAGES) $(DATA)

.DEFAULT_GOAL := all
.PHONY: all demo test test-all unit e2e bench lint format install uninstall clean deps help libs
.SECONDARY:
.DELETE_ON_ERROR:

all: $(PRODUCTS) ## build everything into $(O)/ (laid out like the installed prefix)

# ---- compiling ----------------------------------------------------------------------------------
$(O)/obj/%.o: %.c $(O)/obj/.flags
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# Rebuild when the compiler or the flags change.
$(O)/obj/.flags: FORCE
	@mkdir -p $(@D)
	@echo '$(subst ','\'',$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS))' | cmp -s - $@ || \
	 echo '$(subst ','\'',$(CC) $(ALL_CFLAGS) $(ALL_LDFLAGS))' > $@
FORCE:

# Text files as C strings: schema.sql -> gen/converter/schema.sql.inc (bytes, comma separated)
$(O)/gen/%.inc: %
	$(call say,GEN,$@)
	@mkdir -p $(@D)
	$(Q)od -An -v -tu1 $< | sed -E 's/ +([0-9]+)/\1,/g' > $@
EMBED := $(wildcard converter/*.sql agent/*.py tools/embed/*)
$(call obj,$(CONVERTER) $(AGENT) $(TOOLS) $(UNIT)): | $(EMBED:%=$(O)/gen/%.inc)

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

# ---- what goes into the target: libzstd statically, libunwind by its private dependency -----------
$(LIB)/libprobing-agent.so: $(call obj,$(AGENT)) $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $(call obj,$(AGENT)) $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a \
	  $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -Wl,-z,defs -l:libzstd.a -lunwind -lpthread -ldl

$(LIB)/libprobing-preload.so $(LIB)/libprobing-inject.so: $(LIB)/libprobing-%.so: $(O)/obj/agent/%.o
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $< $(ALL_LDFLAGS) -Wl,-z,defs -ldl -lpthread

# ---- outside the target -----------------------------------------------------------------------
$(LIB)/libprobing-inspect.so: $(call obj,$(INSPECT)) $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $(call obj,$(INSPECT)) $(O)/obj/libwriter.a $(O)/obj/libpywalk.a $(O)/obj/libtraces.a \
	  $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -Wl,-z,defs -ldw -lelf -lzstd -lpthread

# The SQLite extension: sqlite3> .load PREFIX/lib/probing/probing
$(LIB)/probing.so: $(O)/obj/converter/extension.o $(O)/obj/libtraces.a
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -shared -o $@ $^ $(ALL_LDFLAGS) -Wl,--exclude-libs,ALL -lzstd

$(BIN)/probing: $(call obj,$(TOOLS)) $(LIBS_STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lsqlite3 -lzstd -ldw -lelf -lcjson -lm -lpthread -ldl
$(COMMANDS:%=$(BIN)/%): $(BIN)/probing
	@ln -sf probing $@

$(SHARE)/gdb/%: gdbplugin/%
	@mkdir -p $(@D) && cp $< $@
$(MAN)/%: tools/man/%
	@mkdir -p $(@D) && sed 's/@VERSION@/$(VERSION)/' $< > $@
$(SHARE)/%: tools/data/%
	@mkdir -p $(@D) && cp $< $@

# ---- tests ------------------------------------------------------------------------------------
# All libraries are linked into every unit test; `make $(O)/tests/unit/test_ring` builds one.
$(O)/tests/unit/%: $(O)/obj/tests/unit/%.o $(LIBS_STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lcmocka -lsqlite3 -lzstd -ldw -lelf -lcjson -lm -lpthread -ldl
$(O)/tests/bench/%: $(O)/obj/tests/bench/%.o $(LIBS_STATIC)
	$(call say,LD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lsqlite3 -lzstd -ldw -lelf -lm -lpthread -ldl
$(O)/tests/fuzz/%: $(O)/obj/tests/fuzz/%.o $(LIBS_STATIC)
	@mkdir -p $(@D)
	$(Q)$(CC) -o $@ $^ $(ALL_LDFLAGS) -lsqlite3 -lzstd -ldw -lelf -lm -lpthread -ldl
$(O)/tests/programs/%: tests/programs/%.c
	$(call say,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -O1 -g -Wall -D_GNU_SOURCE -o $@ $< -lpthread -ldl

UNIT_BINS := $(patsubst %.c,$(O)/%,$(UNIT))
PROGRAM_BINS := $(patsubst %.c,$(O)/%,$(PROGRAMS))

unit: $(UNIT_BINS) ## the C unit tests (cmocka)
	$(Q)fail=0; for t in $(UNIT_BINS); do echo "== $$t"; $$t || fail=1; done; exit $$fail

clean: ## remove $(O)/
	rm -rf $(O)

-include $(shell find $(O)/obj -name '*.d' 2>/dev/null)
