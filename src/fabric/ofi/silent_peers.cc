// See silent_peers.h.
#ifdef PERDURE_WITH_LIBFABRIC
#include "fabric/ofi/silent_peers.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <optional>
#include <vector>

#include "fabric/socket_address.h"

namespace perdure::fabric::ofi {
namespace {

/// The sockets that the event queue waits on.
std::vector<pollfd> watched_by(fid_eq* events) {
  std::vector<pollfd> watched(64);
  for (int attempt = 0; attempt < 4; ++attempt) {
    fi_wait_pollfd request{};
    request.nfds = watched.size();
    request.fd = watched.data();
    const bool whole = ::fi_control(&events->fid, FI_GETWAIT, &request) == 0;
    watched.resize(request.nfds + (whole ? 0 : 64));  // too small: it says how many there are
    if (whole) return watched;
  }
  return {};
}

bool listens(int socket) {
  int listening = 0;
  socklen_t length = sizeof listening;
  return ::getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 &&
         listening != 0;
}

/// The peer's address, if it is connected over TCP and not one byte has come from it.
std::optional<std::string> silent_address(int socket) {
  SocketAddress peer;
  peer.length = sizeof peer.storage;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.length) != 0) {
    return std::nullopt;
  }
  if (peer.storage.ss_family != AF_INET && peer.storage.ss_family != AF_INET6) return std::nullopt;
  // Of the form that the running kernel fills in; glibc's own ends before the byte counts.
  constexpr std::size_t kBytesReceivedAt = 128;  // tcpi_bytes_received, linux/tcp.h
  std::array<std::byte, 256> info{};
  socklen_t length = info.size();
  std::uint64_t received = 1;
  if (::getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.data(), &length) != 0) return std::nullopt;
  if (length >= kBytesReceivedAt + sizeof received) {
    std::copy_n(info.begin() + kBytesReceivedAt, sizeof received,
                reinterpret_cast<std::byte*>(&received));
  }
  if (received != 0) return std::nullopt;
  return host_of(peer);
}

bool without_descriptors(int socket) {
  const int another = ::fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (another >= 0) ::close(another);
  return another < 0 && (errno == EMFILE || errno == ENFILE);
}

}  // namespace

void limit_handshake(fid_eq* events) {
  std::uint32_t event = 0;  // the first look at the queue makes it watch the socket
  fi_eq_cm_entry entry{};
  (void)::fi_eq_read(events, &event, &entry, sizeof entry, FI_PEEK);
  for (const pollfd& each : watched_by(events)) {
    const timeval limit{0, 100'000};
    if (listens(each.fd)) ::setsockopt(each.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }
}

void SilentPeers::tend(fid_eq* events) {
  for (auto& [socket, peer] : silent_) peer.seen = false;
  no_descriptors_ = false;
  for (const pollfd& each : watched_by(events)) {
    if (listens(each.fd)) {
      no_descriptors_ = without_descriptors(each.fd);
      continue;
    }
    const auto address = silent_address(each.fd);
    struct stat status {};
    if (!address || ::fstat(each.fd, &status) != 0) continue;
    const Silent fresh{Deadline::after(limits_.speak_within), *address, ++came_};
    silent_.try_emplace({each.fd, status.st_ino}, fresh).first->second.seen = true;
  }
  std::erase_if(silent_, [](const auto& each) { return !each.second.seen; });

  std::vector<decltype(silent_)::iterator> by_age;
  for (auto each = silent_.begin(); each != silent_.end(); ++each) by_age.push_back(each);
  std::sort(by_age.begin(), by_age.end(),
            [](const auto& one, const auto& two) { return one->second.order < two->second.order; });
  // From the youngest: each that finds its address, or the table, full, is too old.
  std::map<std::string, std::size_t> of_address;
  std::size_t all = 0;
  for (auto each = by_age.rbegin(); each != by_age.rend(); ++each) {
    const auto& [socket, peer] = **each;
    const bool full =
        all >= limits_.peers_max || of_address[peer.address] >= limits_.per_address_max;
    if (full || peer.until.passed()) {
      ::shutdown(socket.first, SHUT_RDWR);
      continue;
    }
    ++all;
    ++of_address[peer.address];
  }
}

}  // namespace perdure::fabric::ofi
#endif
