// The public calls for pools: a request each to a control plane. What makes a pool large enough for
// a log is the log's business, so they are here.
#include <perdure/pool.h>

#include <fmt/format.h>

#include <memory>

#include "client/http_peer.h"
#include "core/bounded_time.h"
#include "core/byte_text.h"
#include "core/try.h"
#include "log/log_format.h"

namespace perdure {
namespace {

/// No session is opened, so there is no device.
Result<std::unique_ptr<client::HttpPeer>> control_plane_of(const std::string& peer) {
  return client::HttpPeer::open(peer, nullptr);
}

}  // namespace

Result<PoolDescription> create_pool(const std::string& peer, const PoolOptions& options,
                                    std::chrono::milliseconds timeout) {
  if (options.bytes < log::kLogBytesMin && !options.small) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("a log takes {} ({} bytes) at least, and '{}' would have {}; make it "
                             "larger, or say small (--small) if it is for something else",
                             format_bytes(log::kLogBytesMin), log::kLogBytesMin, options.name,
                             format_bytes(options.bytes))};
  }
  PERDURE_TRY(asked, control_plane_of(peer));
  return asked->create(
      {options.name, options.bytes, options.required_domain, options.receive_buffers},
      Deadline::after(bounded(timeout)));
}

Result<PoolDescription> describe_pool(const std::string& peer, const std::string& name,
                                      std::chrono::milliseconds timeout) {
  PERDURE_TRY(asked, control_plane_of(peer));
  return asked->describe(name, Deadline::after(bounded(timeout)));
}

Result<std::vector<PoolDescription>> list_pools(const std::string& peer,
                                                std::chrono::milliseconds timeout) {
  PERDURE_TRY(asked, control_plane_of(peer));
  return asked->list(Deadline::after(bounded(timeout)));
}

Result<void> close_pool(const std::string& peer, const std::string& name,
                        std::chrono::milliseconds timeout) {
  PERDURE_TRY(asked, control_plane_of(peer));
  return asked->close_pool(name, Deadline::after(bounded(timeout)));
}

Result<PoolDescription> open_pool(const std::string& peer, const std::string& name,
                                  std::chrono::milliseconds timeout) {
  PERDURE_TRY(asked, control_plane_of(peer));
  return asked->open_pool(name, Deadline::after(bounded(timeout)));
}

Result<void> delete_pool(const std::string& peer, const std::string& name, const std::string& uuid,
                         std::chrono::milliseconds timeout) {
  PERDURE_TRY(asked, control_plane_of(peer));
  return asked->delete_pool(name, uuid, Deadline::after(bounded(timeout)));
}

}  // namespace perdure
