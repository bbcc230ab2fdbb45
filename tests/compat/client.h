// A program of librpmem's: its memory, and the calls that make and open pools of it.
#pragma once

#include <librpmem.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace perdure::test {

inline constexpr std::size_t kBytes = 4 * 1024 * 1024;
inline constexpr std::size_t kPage = 4096;

/// Page-aligned memory of a program.
class Memory {
 public:
  explicit Memory(std::size_t bytes = kBytes)
      : bytes_(bytes),
        at_(static_cast<char*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {}
  ~Memory() { ::munmap(at_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* at() const { return at_; }
  std::size_t bytes() const { return bytes_; }

 private:
  const std::size_t bytes_;
  char* const at_;
};

inline rpmem_pool_attr some_attributes(unsigned char mark = 1) {
  rpmem_pool_attr attributes{};
  std::memcpy(attributes.signature, "PMEMOBJ", 8);
  attributes.major = 6;
  attributes.incompat_features = 2;
  std::memset(attributes.poolset_uuid, mark, 16);
  std::memset(attributes.uuid, mark + 1, 16);
  std::memset(attributes.next_uuid, mark + 2, 16);
  std::memset(attributes.prev_uuid, mark + 3, 16);
  std::memset(attributes.user_flags, mark + 4, 16);
  return attributes;
}

inline RPMEMpool* create(const Memory& memory, const char* set = "r.set", unsigned lanes = 4) {
  const rpmem_pool_attr attributes = some_attributes();
  return rpmem_create("localhost", set, memory.at(), memory.bytes(), &lanes, &attributes);
}

inline RPMEMpool* open(const Memory& memory, const char* set = "r.set",
                       rpmem_pool_attr* found = nullptr) {
  unsigned lanes = 4;
  return rpmem_open("localhost", set, memory.at(), memory.bytes(), &lanes, found);
}

/// `errno` of a call that must fail.
inline int refused(bool failed) { return failed ? errno : 0; }

}  // namespace perdure::test
