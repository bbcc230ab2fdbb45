#include "log/log_options.h"

#include <array>
#include <chrono>

#include "client/named_options.h"
#include "core/byte_text.h"

namespace perdure {
namespace log {

Result<std::optional<LogShape>> parse_shape_choice(std::string_view word) {
  if (word == "planned") return std::optional<LogShape>{};
  auto shape = find_named("log shape", word, std::array{LogShape::Singleton, LogShape::Compound});
  if (shape.ok()) return std::optional<LogShape>{*shape};
  return Error{ErrorCode::InvalidArgument, shape.error().message + ", or planned"};
}

}  // namespace log

namespace client {
namespace {

constexpr auto kOwnLogOptions = std::to_array<NamedOption<LogOptions>>({
    {"create", set_member<&LogOptions::create, option_flag>},
    {"partial", set_member<&LogOptions::partial, option_flag>},
    {"shape", set_member<&LogOptions::shape, log::parse_shape_choice>},
    {"level", set_member<&LogOptions::level, option_one_of<Level::Visible, Level::Durable>>},
    {"record_bytes_max", set_member<&LogOptions::record_bytes_max, parse_bytes>},
    {"batches_in_flight", set_member<&LogOptions::batches_in_flight, option_number>},
    {"accept_loss", set_member<&LogOptions::accept_loss, option_flag>},
    {"replica_timeout_ms",
     set_member<&LogOptions::replica_timeout, option_time<std::chrono::milliseconds>>},
});
constexpr NamedOptions<LogOptions> kLogOptions("a log", kOwnLogOptions);

Result<Lsn> option_lsn(std::string_view word) {
  PERDURE_TRY(number, option_number(word));
  return Lsn{number};
}

constexpr auto kAllReaderOptions = std::to_array<NamedOption<LogReaderOptions>>({
    {"transport", set_member<&LogReaderOptions::transport, control::parse_transport_choice>},
    {"rnic", set_rnic<set_rnic_name>},
    {"rnic_ack_timeout", set_rnic<set_rnic_ack_timeout>},
    {"rnic_traffic_class", set_rnic<set_rnic_traffic_class>},
    {"from", set_member<&LogReaderOptions::from, option_lsn>},
    {"from_index", set_member<&LogReaderOptions::from_index, option_number>},
    {"uncommitted", set_member<&LogReaderOptions::uncommitted, option_flag>},
    {"timeout_ms", set_member<&LogReaderOptions::timeout, option_time<std::chrono::milliseconds>>},
});
constexpr NamedOptions<LogReaderOptions> kReaderOptions("a reader", kAllReaderOptions, {});

}  // namespace
}  // namespace client

Result<void> set_option(LogOptions& options, std::string_view name, std::string_view value) {
  return client::kLogOptions.set(options, name, value);
}

Result<LogOptions> parse_log_options(std::string_view connection) {
  return client::kLogOptions.parse(connection);
}

Result<LogOptions> read_log_options(const std::string& path) {
  return client::kLogOptions.read(path);
}

Result<void> set_option(LogReaderOptions& options, std::string_view name, std::string_view value) {
  return client::kReaderOptions.set(options, name, value);
}

Result<LogReaderOptions> parse_reader_options(std::string_view connection) {
  return client::kReaderOptions.parse(connection);
}

Result<LogReaderOptions> read_reader_options(const std::string& path) {
  return client::kReaderOptions.read(path);
}

}  // namespace perdure
