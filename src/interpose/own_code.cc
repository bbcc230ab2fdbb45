// The addresses of libraries: see own_code.h. They are not unloaded while the program calls them.
#include "interpose/own_code.h"

#include <link.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace perdure::interpose {
namespace {

constexpr std::size_t kPartsMax = 64;  // of the code of libpmem, libpmem2 and of ours

/// Without a lock, which a signal handler could find held by its own thread. One that is there
/// twice does no harm, nor one for which there is no room: then what is inside a call counts, too.
struct CodePart {
  std::atomic<std::uintptr_t> begin = 0;  // written last; 0: not yet
  std::atomic<std::uintptr_t> end = 0;
};

CodePart parts[kPartsMax];
std::atomic<std::size_t> part_count = 0;

bool is_known(std::uintptr_t address) {
  const std::size_t count = part_count.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count && i < kPartsMax; ++i) {
    const std::uintptr_t begin = parts[i].begin.load(std::memory_order_acquire);
    const std::uintptr_t end = parts[i].end.load(std::memory_order_relaxed);
    if (begin != 0 && address >= begin && address < end) return true;
  }
  return false;
}

/// Notes the code that has the address; 1 ends the search.
int note_part(dl_phdr_info* object, std::size_t /*size*/, void* address) {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& part = object->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    const std::uintptr_t begin = object->dlpi_addr + part.p_vaddr;
    const std::uintptr_t end = begin + part.p_memsz;
    if (wanted < begin || wanted >= end) continue;
    const std::size_t place = part_count.fetch_add(1);
    if (place < kPartsMax) {
      parts[place].end.store(end, std::memory_order_relaxed);
      parts[place].begin.store(begin, std::memory_order_release);
    }
    return 1;
  }
  return 0;
}

void note_code_of(void* function) {
  if (is_known(reinterpret_cast<std::uintptr_t>(function))) return;
  ::dl_iterate_phdr(note_part, function);
}

}  // namespace

void note_library(void* function) {
  note_code_of(reinterpret_cast<void*>(&note_part));
  note_code_of(function);
}

bool is_library(const void* address) { return is_known(reinterpret_cast<std::uintptr_t>(address)); }

}  // namespace perdure::interpose
