// pmemcrash: a QEMU TCG plugin that gives an emulated NVDIMM the persistence domain of an ADR
// machine.
//
// QEMU has no CPU cache: a store that was executed is in the backing file at once, so a missing
// flush is never noticed. This plugin keeps a second file, the persisted image. A 64-byte line gets
// into it only when the guest has made it durable (Intel SDM vol. 1, 11.12 and vol. 2, CLWB,
// CLFLUSHOPT, CLFLUSH, SFENCE):
//   CLWB or CLFLUSHOPT of the line, or non-temporal stores to it, and then SFENCE, MFENCE or a
//   locked instruction on the same CPU; or CLFLUSH of the line.
// After the guest was killed, the image is what an ADR machine finds when no line was evicted by
// chance; the backing file is what an eADR machine finds. Lines that differ were dirty in the
// cache.
//
//   -plugin pmemcrash.so,ram=FILE,volatile=FILE,image=FILE,base=ADDRESS
// ram: the guest's memory, a shared file (page tables are walked in it); base: where the NVDIMM
// begins. Needs QEMU 9.1, 4-level paging in the guest (-cpu ...,la57=off), and all RAM below 2 GiB.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// The part of QEMU's plugin interface (version 4) and of glib that is used: Debian packages no
// header.
#define EXPORTED __attribute__((visibility("default")))
struct instruction;
struct block;
struct address;
struct reg;
struct reg_description {
  struct reg* handle;
  const char* name;
  const char* feature;
};
struct byte_array {
  char* data;
  unsigned length;
};
enum { kNoRegisters, kReadRegisters };
enum { kStores = 2 };
typedef void (*on_execution)(unsigned cpu, void* user);
typedef void (*on_access)(unsigned cpu, uint32_t info, uint64_t address, void* user);
extern void qemu_plugin_register_vcpu_init_cb(uint64_t id, void (*)(uint64_t, unsigned));
extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*)(uint64_t, struct block*));
extern void qemu_plugin_register_vcpu_insn_exec_cb(struct instruction*, on_execution, int flags,
                                                   void* user);
extern void qemu_plugin_register_vcpu_mem_cb(struct instruction*, on_access, int flags, int which,
                                             void* user);
extern size_t qemu_plugin_tb_n_insns(const struct block*);
extern struct instruction* qemu_plugin_tb_get_insn(const struct block*, size_t);
extern size_t qemu_plugin_insn_size(const struct instruction*);
extern size_t qemu_plugin_insn_data(const struct instruction*, void*, size_t);
extern uint64_t qemu_plugin_insn_vaddr(const struct instruction*);
extern struct address* qemu_plugin_get_hwaddr(uint32_t info, uint64_t address);
extern uint64_t qemu_plugin_hwaddr_phys_addr(const struct address*);
extern struct byte_array* qemu_plugin_get_registers(void);
extern int qemu_plugin_read_register(struct reg*, struct byte_array*);
extern struct byte_array* g_byte_array_new(void);
extern struct byte_array* g_byte_array_set_size(struct byte_array*, unsigned);
EXPORTED int qemu_plugin_version = 4;

#define LINE_BYTES 64u
#define CPUS_MAX 8
#define REGISTERS 16

// A line that will be durable at the next fence of the CPU that flushed it, as it was when flushed.
struct pending_line {
  uint32_t line;
  uint8_t bytes[LINE_BYTES];
};
static struct cpu {
  struct reg* general[REGISTERS];
  struct reg *cr0, *cr3, *fs_base, *gs_base;
  struct byte_array* value;
  struct pending_line* pending;
  unsigned pending_count, pending_room;
} cpus[CPUS_MAX];

static struct file {
  uint8_t* bytes;
  uint64_t size;
} ram, contents, image;
static uint64_t nvdimm_base = 1ull << 32;

// What was seen, in FILE.stat beside the image, for people and tests.
static struct counters {
  uint64_t clwb, clflushopt, clflush, non_temporal, fences, lines, outside, unmapped;
} no_counters, *counters = &no_counters;

static uint64_t read_register(struct cpu* cpu, struct reg* which) {
  uint64_t value = 0;
  if (!which) return 0;
  g_byte_array_set_size(cpu->value, 0);
  qemu_plugin_read_register(which, cpu->value);
  memcpy(&value, cpu->value->data, cpu->value->length < 8 ? cpu->value->length : 8);
  return value;
}

// ---- durability ---------------------------------------------------------------------------------

// The line at a physical address will be durable at this CPU's next fence.
static void flush_line(struct cpu* cpu, uint64_t physical) {
  const uint64_t offset = physical - nvdimm_base;
  if (physical < nvdimm_base || offset >= contents.size) {
    counters->outside++;
    return;
  }
  const uint32_t line = (uint32_t)(offset / LINE_BYTES);
  struct pending_line* last = cpu->pending_count ? &cpu->pending[cpu->pending_count - 1] : NULL;
  if (!last || last->line != line) {  // the stores that fill one line share an entry
    if (cpu->pending_count == cpu->pending_room) {
      cpu->pending_room = cpu->pending_room ? 2 * cpu->pending_room : 1024;
      cpu->pending = realloc(cpu->pending, sizeof *cpu->pending * cpu->pending_room);
      if (!cpu->pending) abort();
    }
    last = &cpu->pending[cpu->pending_count++];
    last->line = line;
  }
  memcpy(last->bytes, contents.bytes + (uint64_t)line * LINE_BYTES, LINE_BYTES);
}

static void on_fence(unsigned index, void* user) {
  (void)user;
  struct cpu* cpu = &cpus[index];
  if (!cpu->pending_count) return;
  counters->fences++;
  counters->lines += cpu->pending_count;
  for (unsigned i = 0; i < cpu->pending_count; i++) {
    const struct pending_line* each = &cpu->pending[i];
    memcpy(image.bytes + (uint64_t)each->line * LINE_BYTES, each->bytes, LINE_BYTES);
  }
  cpu->pending_count = 0;
}

static void on_non_temporal(unsigned index, uint32_t info, uint64_t address, void* user) {
  (void)user;
  struct address* at = qemu_plugin_get_hwaddr(info, address);
  if (!at) return;
  const uint64_t physical = qemu_plugin_hwaddr_phys_addr(at);
  counters->non_temporal++;
  if (physical >= nvdimm_base) flush_line(&cpus[index], physical);
}

// ---- flush instructions: they access no memory that QEMU would report, so operands are worked out

struct operand {
  bool has_base, has_index, short_address;
  uint8_t base, index, scale, segment;  // segment: 0, 1 (FS), 2 (GS)
  int32_t displacement;
  uint64_t next_instruction;  // not 0: relative to it
};
enum flush_kind { kClflush, kClflushopt, kClwb };
struct flush {
  enum flush_kind kind;
  struct operand operand;
};

static uint64_t address_of(struct cpu* cpu, const struct operand* operand) {
  uint64_t address = (uint64_t)(int64_t)operand->displacement + operand->next_instruction;
  if (operand->has_base) address += read_register(cpu, cpu->general[operand->base]);
  if (operand->has_index) {
    address += read_register(cpu, cpu->general[operand->index]) << operand->scale;
  }
  if (operand->short_address) address = (uint32_t)address;
  if (operand->segment) {
    address += read_register(cpu, operand->segment == 1 ? cpu->fs_base : cpu->gs_base);
  }
  return address;
}

// Walks the four levels of page tables (Intel SDM vol. 3, 4.5).
static bool translate(struct cpu* cpu, uint64_t address, uint64_t* physical) {
  const uint64_t frame_bits = 0x000ffffffffff000ull;
  if (!(read_register(cpu, cpu->cr0) >> 31)) {
    *physical = address;
    return true;
  }
  uint64_t entry = read_register(cpu, cpu->cr3) & frame_bits;
  for (int shift = 39; shift >= 12; shift -= 9) {
    const uint64_t at = (entry & frame_bits) + ((address >> shift) & 511) * 8;
    if (at + 8 > ram.size) return false;
    entry = *(volatile uint64_t*)(ram.bytes + at);
    if (!(entry & 1)) return false;
    if (shift == 12 || (shift <= 30 && (entry & 0x80))) {
      const uint64_t inside = (1ull << shift) - 1;
      *physical = (entry & frame_bits & ~inside) | (address & inside);
      return true;
    }
  }
  return false;
}

static void on_flush(unsigned index, void* user) {
  struct cpu* cpu = &cpus[index];
  const struct flush* flush = user;
  uint64_t physical;
  uint64_t* const count[] = {&counters->clflush, &counters->clflushopt, &counters->clwb};
  ++*count[flush->kind];
  if (!translate(cpu, address_of(cpu, &flush->operand), &physical)) {
    counters->unmapped++;
    return;
  }
  flush_line(cpu, physical);
  if (flush->kind == kClflush) on_fence(index, NULL);  // it is ordered by itself
}

// ---- decoding (Intel SDM vol. 2, chapter 2) -----------------------------------------------------

struct decoded {
  const uint8_t* bytes;
  size_t at;
  bool size_prefix, lock, repeat, short_address, vex;
  uint8_t segment, rex;
  int opcode;  // the byte after 0F; -1: another map
};

static void decode_prefixes(struct decoded* d) {
  for (;; d->at++) {
    switch (d->bytes[d->at]) {
      case 0x66: d->size_prefix = true; break;
      case 0x67: d->short_address = true; break;
      case 0xf0: d->lock = true; break;
      case 0xf2:
      case 0xf3: d->repeat = true; break;
      case 0x64: d->segment = 1; break;
      case 0x65: d->segment = 2; break;
      case 0x26:
      case 0x2e:
      case 0x36:
      case 0x3e: break;
      default: return;
    }
  }
}

static void decode_opcode(struct decoded* d) {
  const uint8_t* b = d->bytes + d->at;
  if ((b[0] & 0xf0) == 0x40) {
    d->rex = *b++;
    d->at++;
  }
  d->opcode = -1;
  if (b[0] == 0x0f) {
    d->opcode = b[1];
    d->at += 2;
  } else if (b[0] == 0xc5) {  // VEX, two bytes
    d->vex = true;
    d->size_prefix = (b[1] & 3) == 1;
    d->opcode = b[2];
    d->at += 3;
  } else if (b[0] == 0xc4 && (b[1] & 31) == 1) {  // VEX, three bytes, map 0F
    d->vex = true;
    d->size_prefix = (b[2] & 3) == 1;
    d->opcode = b[3];
    d->at += 4;
  } else if (b[0] == 0x62 && (b[1] & 7) == 1) {  // EVEX, map 0F
    d->vex = true;
    d->size_prefix = (b[2] & 3) == 1;
    d->opcode = b[4];
    d->at += 5;
  }
}

static struct operand decode_operand(const struct decoded* d, uint64_t next_instruction) {
  const uint8_t* b = d->bytes + d->at;
  const uint8_t mode = b[0] >> 6, rm = b[0] & 7;
  size_t used = 1;
  bool wide = mode == 2;
  struct operand operand = {.segment = d->segment, .short_address = d->short_address};
  if (rm == 4) {
    const uint8_t sib = b[used++];
    operand.index = (uint8_t)(((sib >> 3) & 7) | ((d->rex & 2) << 2));
    operand.has_index = operand.index != 4;
    operand.scale = sib >> 6;
    operand.base = (uint8_t)((sib & 7) | ((d->rex & 1) << 3));
    operand.has_base = (sib & 7) != 5 || mode != 0;
    wide = wide || !operand.has_base;
  } else if (rm == 5 && mode == 0) {
    operand.next_instruction = next_instruction;
    wide = true;
  } else {
    operand.has_base = true;
    operand.base = (uint8_t)(rm | ((d->rex & 1) << 3));
  }
  if (wide) memcpy(&operand.displacement, b + used, 4);
  if (mode == 1) operand.displacement = (int8_t)b[used];
  return operand;
}

static void call_fence(struct instruction* instruction) {
  qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_fence, kNoRegisters, NULL);
}

// Group 15 (0F AE): the flushes and the fences.
static void watch_group_15(struct instruction* instruction, const struct decoded* d) {
  const uint8_t modrm = d->bytes[d->at];
  const int which = (modrm >> 3) & 7;
  if (modrm >> 6 == 3) {
    if (which == 6 || which == 7) call_fence(instruction);  // MFENCE, SFENCE
    return;
  }
  if (which != 7 && !(which == 6 && d->size_prefix)) return;
  struct flush* flush = calloc(1, sizeof *flush);  // one for each place in the guest's code; kept
  if (!flush) abort();
  flush->kind = which == 6 ? kClwb : d->size_prefix ? kClflushopt : kClflush;
  flush->operand =
      decode_operand(d, qemu_plugin_insn_vaddr(instruction) + qemu_plugin_insn_size(instruction));
  qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_flush, kReadRegisters, flush);
}

static bool is_non_temporal(const struct decoded* d) {
  if (d->bytes[d->at] >> 6 == 3) return false;
  const bool movnti = d->opcode == 0xc3 && !d->size_prefix && !d->vex && !d->repeat;
  return movnti || d->opcode == 0xe7 || d->opcode == 0x2b;  // (V)MOVNTDQ, MOVNTQ, (V)MOVNTPS/PD
}

static void watch(struct instruction* instruction) {
  uint8_t bytes[32] = {0};
  const size_t size = qemu_plugin_insn_size(instruction);
  qemu_plugin_insn_data(instruction, bytes, size < 15 ? size : 15);
  struct decoded d = {.bytes = bytes};
  decode_prefixes(&d);
  decode_opcode(&d);
  const uint8_t* b = bytes + d.at;
  const bool exchange = d.opcode < 0 && (b[0] == 0x86 || b[0] == 0x87) && b[1] < 0xc0;
  if (d.lock || exchange) {  // XCHG with memory locks by itself
    call_fence(instruction);
  } else if (d.opcode >= 0 && is_non_temporal(&d)) {
    qemu_plugin_register_vcpu_mem_cb(instruction, on_non_temporal, kNoRegisters, kStores, NULL);
  } else if (d.opcode == 0xae && !d.vex && !d.repeat) {
    watch_group_15(instruction, &d);
  }
}

// ---- life ---------------------------------------------------------------------------------------

static void on_translation(uint64_t id, struct block* block) {
  (void)id;
  const size_t count = qemu_plugin_tb_n_insns(block);
  for (size_t i = 0; i < count; i++) watch(qemu_plugin_tb_get_insn(block, i));
}

static void on_cpu(uint64_t id, unsigned index) {
  static const char* const names[REGISTERS] = {"rax", "rcx", "rdx", "rbx", "rsp", "rbp",
                                               "rsi", "rdi", "r8",  "r9",  "r10", "r11",
                                               "r12", "r13", "r14", "r15"};
  (void)id;
  if (index >= CPUS_MAX) abort();
  struct cpu* cpu = &cpus[index];
  cpu->value = g_byte_array_new();
  struct byte_array* all = qemu_plugin_get_registers();
  const struct reg_description* known = (const struct reg_description*)all->data;
  for (unsigned i = 0; i < all->length; i++) {  // length: of a GArray, counted in elements
    for (int k = 0; k < REGISTERS; k++) {
      if (!strcmp(known[i].name, names[k])) cpu->general[k] = known[i].handle;
    }
    if (!strcmp(known[i].name, "cr0")) cpu->cr0 = known[i].handle;
    if (!strcmp(known[i].name, "cr3")) cpu->cr3 = known[i].handle;
    if (!strcmp(known[i].name, "fs_base")) cpu->fs_base = known[i].handle;
    if (!strcmp(known[i].name, "gs_base")) cpu->gs_base = known[i].handle;
  }
  if (!cpu->cr3 || !cpu->general[0]) {
    fprintf(stderr, "pmemcrash: this QEMU does not let registers be read\n");
    abort();
  }
}

// Maps a whole file; with `size`, makes it that large first.
static bool map_file(const char* name, uint64_t size, struct file* file) {
  struct stat status;
  const int descriptor = open(name, O_RDWR | (size ? O_CREAT : 0), 0666);
  if (descriptor < 0) return false;
  const bool sized =
      (!size || ftruncate(descriptor, (off_t)size) == 0) && fstat(descriptor, &status) == 0;
  void* at = MAP_FAILED;
  if (sized) {
    file->size = (uint64_t)status.st_size;
    at = mmap(NULL, file->size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  }
  close(descriptor);
  file->bytes = at;
  return at != MAP_FAILED;
}

EXPORTED int qemu_plugin_install(uint64_t id, const void* info, int count, char** arguments) {
  const char *ram_name = "", *contents_name = "", *image_name = "";
  (void)info;
  for (int i = 0; i < count; i++) {
    char* value = strchr(arguments[i], '=');
    if (!value) return -1;
    *value++ = 0;
    if (!strcmp(arguments[i], "ram")) ram_name = value;
    if (!strcmp(arguments[i], "volatile")) contents_name = value;
    if (!strcmp(arguments[i], "image")) image_name = value;
    if (!strcmp(arguments[i], "base")) nvdimm_base = strtoull(value, NULL, 0);
  }
  if (!map_file(ram_name, 0, &ram) || !map_file(contents_name, 0, &contents) ||
      !map_file(image_name, contents.size, &image)) {
    fprintf(stderr, "pmemcrash: cannot map ram=%s volatile=%s image=%s\n", ram_name, contents_name,
            image_name);
    return -1;
  }
  char name[4096];
  struct file side;
  snprintf(name, sizeof name, "%s.stat", image_name);
  if (map_file(name, sizeof *counters, &side)) counters = (struct counters*)side.bytes;
  memset(counters, 0, sizeof *counters);
  memcpy(image.bytes, contents.bytes,
         contents.size);  // what the medium holds at power-on is durable
  qemu_plugin_register_vcpu_init_cb(id, on_cpu);
  qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
  return 0;
}
