// See shared_rings.h.
#include "fabric/shm/shared_rings.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/try.h"

#include <cerrno>
#include <new>
#include <system_error>

namespace perdure::fabric::shm {
namespace {

constexpr std::uint64_t kMagic = 0x6d68732d64726570;  // "perd-shm"
constexpr std::uint64_t kVersion = 2;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

Error system_error(const char* call) {
  return Error{ErrorCode::SystemError,
               fmt::format("shared memory: {}: {}", call, std::generic_category().message(errno))};
}

Result<Mapping> map(const Descriptor& descriptor) {
  void* mapped = ::mmap(nullptr, sizeof(SharedMemory), PROT_READ | PROT_WRITE, MAP_SHARED,
                        descriptor.number(), 0);
  if (mapped == MAP_FAILED) return system_error("mmap");
  return Mapping(static_cast<SharedMemory*>(mapped));
}

}  // namespace

void Unmap::operator()(SharedMemory* memory) const { ::munmap(memory, sizeof(SharedMemory)); }

Result<NewRings> create_rings() {
  NewRings made;
  made.descriptor = Descriptor(::memfd_create("perdure", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (made.descriptor.number() < 0) return system_error("memfd_create");
  if (::ftruncate(made.descriptor.number(), sizeof(SharedMemory)) != 0) {
    return system_error("ftruncate");
  }
  if (::fcntl(made.descriptor.number(), F_ADD_SEALS, kSeals) != 0) return system_error("seal");
  PERDURE_TRY(mapping, map(made.descriptor));
  // The pages are zero: all positions begin there.
  new (&mapping->head) SharedHead{kMagic, kVersion, kRequestBytes};
  made.mapping = std::move(mapping);
  return made;
}

Result<Mapping> map_rings(const Descriptor& descriptor) {
  const auto refused = [](const char* reason) {
    return Error{ErrorCode::ProtocolError, fmt::format("shared memory of the peer: {}", reason)};
  };
  struct stat status {};
  if (::fstat(descriptor.number(), &status) != 0) return refused("not a file");
  if (status.st_size != static_cast<off_t>(sizeof(SharedMemory))) return refused("wrong size");
  const int seals = ::fcntl(descriptor.number(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) return refused("not sealed against shrinking");
  PERDURE_TRY(mapping, map(descriptor));
  const SharedHead head = mapping->head;
  if (head.magic != kMagic || head.request_bytes != kRequestBytes) return refused("unknown form");
  if (head.version != kVersion) {
    return Error{ErrorCode::VersionMismatch,
                 fmt::format("shared memory of the peer has version {}", head.version)};
  }
  return mapping;
}

}  // namespace perdure::fabric::shm
