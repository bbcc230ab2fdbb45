// The RNICs of this machine: found once per process, kept open until it ends.
#pragma once

#include "fabric/socket_address.h"
#include "fabric/verbs/completion_vectors.h"
#include "fabric/verbs/fates.h"
#include "fabric/verbs/handles.h"
#include "fabric/verbs/verbs.h"
#include "fabric/window_limit.h"

#include <memory>
#include <mutex>
#include <utility>

namespace perdure::fabric::verbs {

/// One RNIC with an address of one of its ports. Its context is never closed, also when the RNIC
/// was removed long ago: connections, registrations and keys may outlast it, and ask it still.
/// Threads: any.
class Rnic {
 public:
  /// `bound`: to `address`, on a channel that is never destroyed. librdmacm closes the context of a
  /// removed device with the last id on it (ucma_put_device of rdma-core 31 and later), whoever has
  /// objects on it; so the Rnic, which find_rnics() never destroys, keeps one.
  Rnic(Owned<rdma_cm_id> bound, const SocketAddress& address);

  ibv_context* context() const { return context_; }
  const std::string& name() const { return report_.name; }
  const RnicReport& report() const { return report_; }
  const SocketAddress& address() const { return address_; }
  Transport transport() const { return report_.transport; }
  const ibv_device_attr& limits() const { return attributes_.orig_attr; }
  /// Bytes of the largest message of its port.
  std::uint64_t message_bytes_max() const { return message_bytes_max_; }
  bool flushes() const { return (flags_ & (kFlushGlobal | kFlushPersistent)) != 0; }
  bool flushes_persistently() const { return (flags_ & kFlushPersistent) != 0; }
  bool writes_atomically() const { return (flags_ & kAtomicWrite) != 0; }
  bool pages_on_demand() const;
  /// Whether it has memory windows of type 2B (bound to a queue pair, checked with its protection
  /// domain). Not over iWARP, where what a peer may write besides (work_batch.h) lies in the domain
  /// that connections would share.
  bool has_windows() const { return has_windows_; }
  /// Whether it binds one of so many bytes, as far as its driver is known, and has not refused one
  /// of that size yet.
  bool binds_windows(std::uint64_t bytes) const {
    return has_windows_ && watched_->windows.allows(bytes);
  }
  void note_window_refused(std::uint64_t bytes) { watched_->windows.note_refused(bytes); }
  /// Soft-iWARP takes the answer of a READ into memory without remote write access. The protocol
  /// lets an RNIC ask for more (RFC 5040: the data sink of a READ is a tagged buffer), and hardware
  /// does: see rdma_connect(3) and the kernel's rdma_rw, which grant it on iWARP.
  bool read_sink_needs_remote_write() const { return is_iwarp() && !is_siw_; }
  /// For a person: its driver, its firmware, and the kernel. Of what it does much depends on them.
  const std::string& provenance() const { return provenance_; }
  /// See Sleeper. rxe is the software RNIC that is not siw.
  bool errors_are_silent() const { return report_.software && !is_siw_; }
  bool is_iwarp() const { return report_.transport == Transport::Iwarp; }

  /// Asks whether its port is active.
  bool is_up() const;
  /// Whether it failed or was removed: its context serves nobody any more. find_rnics() finds it
  /// anew once it was reset.
  bool is_dead() const { return watched_->fates.dead(); }
  /// Whether what it was asked to destroy is gone for sure, by its answer. Of a dead one nothing is
  /// known before it is back on another context; then all is gone that was on this one. Looks
  /// whether it is back.
  bool has_let_go(int returned);
  /// librdmacm says that it is being removed.
  void note_removal() { watched_->fates.condemn(); }
  /// `now` has its name and address.
  void note_successor(const Rnic& now);

  /// Where the completions of one more connection raise their interrupt.
  int next_completion_vector() { return vectors_.next(); }

  /// Readable when there may be events for dispatch_events.
  int event_fd() const { return context_->async_fd; }
  /// Tells connections what has happened to them. Threads: any; never blocks for long.
  void dispatch_events();
  void watch(ibv_qp* qp, std::shared_ptr<Fate> fate) { watched_->fates.watch(qp, std::move(fate)); }
  void unwatch(ibv_qp* qp) { watched_->fates.unwatch(qp); }

 private:
  static constexpr unsigned kFlushGlobal = 1;
  static constexpr unsigned kFlushPersistent = 2;
  static constexpr unsigned kAtomicWrite = 4;

  /// Of all RNICs with one context: an event is read only once, by any of them.
  struct Watched {
    std::mutex reading;  // one thread at a time reads events
    Fates fates;
    WindowLimit windows;
  };
  /// Those of a dead RNIC never: its context may answer again (KnownDevices::at).
  static std::shared_ptr<Watched> watched_of(ibv_context* context);

  void find_capabilities();

  const Owned<rdma_cm_id> bound_;
  ibv_context* const context_ = bound_->verbs;
  const std::uint8_t port_ = bound_->port_num;
  SocketAddress address_;
  ibv_device_attr_ex attributes_{};
  std::uint64_t message_bytes_max_ = 0;
  unsigned flags_ = 0;
  bool has_windows_ = false;
  bool is_siw_ = false;
  RnicReport report_;
  std::string provenance_;
  CompletionVectors vectors_;
  std::shared_ptr<Watched> watched_;
};

/// All of them, those first whose ports are active, else in the order of the machine's interfaces.
/// Looked for anew by each call; one that was found before is the same object, unless it has been
/// reset since. Errors: Unsupported.
Result<std::vector<Rnic*>> find_rnics();

}  // namespace perdure::fabric::verbs
