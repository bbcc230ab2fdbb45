// See failed_sends.h.
#ifdef PERDURE_WITH_LIBFABRIC
#include "fabric/ofi/failed_sends.h"

#include <fmt/format.h>
#include <rdma/providers/fi_log.h>
#include <rdma/providers/fi_prov.h>
#include <sys/socket.h>

#include "core/log_message.h"

#include <string_view>

namespace perdure::fabric::ofi {

constinit thread_local int CutOnFailedSend::socket_ = -1;

void note_failed_send() {
  if (CutOnFailedSend::socket_ >= 0) (void)::shutdown(CutOnFailedSend::socket_, SHUT_RDWR);
}

namespace {

constexpr std::string_view kProvider = "tcp";
constexpr std::string_view kFailedSend = "send failed";

int is_enabled(const fi_provider*, fi_log_level level, fi_log_subsys, std::uint64_t) {
  return level == FI_LOG_WARN ? 1 : 0;
}

void take_line(const fi_provider* provider, fi_log_level, fi_log_subsys, const char* function, int,
               const char* message) {
  if (kProvider != provider->name) return;
  const std::string_view text = message;
  if (text.find(kFailedSend) != std::string_view::npos) note_failed_send();
  log_message(Severity::Debug,
              fmt::format("libfabric: {}: {}", function, text.substr(0, text.find('\n'))));
}

}  // namespace

bool watch_failed_sends(const Libfabric& library) {
  static fi_ops_log operations{sizeof(fi_ops_log), is_enabled, nullptr, take_line};
  static fid_logging ours{{FI_CLASS_LOG, nullptr, nullptr}, &operations};
  fid* log = nullptr;
  if (library.open(kApiVersion, "logging", nullptr, 0, 0, &log, nullptr) != 0) return false;
  return log->ops->bind(log, &ours.fid, 0) == 0;
}

}  // namespace perdure::fabric::ofi
#endif
