// What the tcp provider can not send, because the kernel can not read a page of it (a medium has
// lost it). The provider drops the rest of the message, says so in its log alone, and goes on with
// the next one, whose bytes the peer then takes for what is missing of the first (libfabric 1.17,
// tcpx_progress_tx). So the connection is cut at that line of the log: nothing follows it.
#pragma once

#include "fabric/ofi/libfabric.h"

#include <rdma/fi_ext.h>

namespace perdure::fabric::ofi {

/// Takes over libfabric's log, for the life of the process, so this code is never unloaded: the tcp
/// provider's warnings go to Perdure's log, as details, and FI_LOG_LEVEL is not looked at any more.
/// False: the program has it already, or another copy of Perdure, and failed sends stay unnoticed.
bool watch_failed_sends(const Libfabric& library);

/// While it lives, a send that fails in a call of this thread shuts `socket` down; -1: none. Around
/// every call in which the provider may send. Cost: some stores.
class CutOnFailedSend {
 public:
  explicit CutOnFailedSend(int socket) : before_(socket_) { socket_ = socket; }
  ~CutOnFailedSend() { socket_ = before_; }
  CutOnFailedSend(const CutOnFailedSend&) = delete;
  CutOnFailedSend& operator=(const CutOnFailedSend&) = delete;

 private:
  friend void note_failed_send();
  const int before_;
  static constinit thread_local int socket_;
};

}  // namespace perdure::fabric::ofi
