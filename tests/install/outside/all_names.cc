// A user's program that names every function of the public C++ headers: linking it shows that the
// library has them all. tests/install compares this list with what the library exports.
#include <perdure/kv.h>
#include <perdure/log.h>
#include <perdure/log_writer.h>
#include <perdure/messages.h>
#include <perdure/mirror.h>
#include <perdure/pool.h>
#include <perdure/profile.h>
#include <perdure/region.h>
#include <perdure/replicated_rpc.h>
#include <perdure/rpc.h>
#include <perdure/version.h>

#include <cstddef>
#include <iostream>
#include <utility>

using namespace perdure;

namespace {

std::size_t named = 0;

/// The address is looked at, so it is linked.
template <typename Function>
void name(Function function) {
  volatile Function kept = function;
  named += kept != nullptr ? 1 : 0;
}

template <typename Class>
void name_life() {
  // Never true, which no compiler knows.
  if (named != 0) return;
  Class* one = nullptr;
  Class two = std::move(*one);
  *one = std::move(two);
}

void name_words() {
  name<std::string_view (*)(ErrorCode)>(&to_string);
  name<std::string_view (*)(Level)>(&to_string);
  name<std::string_view (*)(LogShape)>(&to_string);
  name<std::string_view (*)(LogEnd)>(&to_string);
  name<std::string_view (*)(Primary)>(&to_string);
  name<std::string_view (*)(PersistenceDomain)>(&to_string);
  name<std::string_view (*)(Ddio)>(&to_string);
  name<std::string_view (*)(ReceiveBuffers)>(&to_string);
  name<std::string_view (*)(Transport)>(&to_string);
  name<std::string_view (*)(WriteOrder)>(&to_string);
  name<std::string_view (*)(DmaDirties)>(&to_string);
  name<std::string_view (*)(QpType)>(&to_string);
  name<std::string_view (*)(PoolStatus)>(&to_string);
  name<std::string_view (*)(Severity)>(&to_string);
  name(&version);
  name(&parse_persistence_domain);
  name(&parse_ddio);
  name(&parse_receive_buffers);
  name(&parse_transport);
  name(&parse_write_order);
  name(&parse_dma_dirties);
  name(&parse_qp_type);
  name(&describe);
  name<Result<void> (*)(LogOptions&, std::string_view, std::string_view)>(&set_option);
  name<Result<void> (*)(LogReaderOptions&, std::string_view, std::string_view)>(&set_option);
  name<Result<void> (*)(RegionOptions&, std::string_view, std::string_view)>(&set_option);
  name<Result<void> (*)(MirrorOptions&, std::string_view, std::string_view)>(&set_option);
  name<Result<void> (*)(RpcClientOptions&, std::string_view, std::string_view)>(&set_option);
  name<Result<void> (*)(ReplicatedRpcServerOptions&, std::string_view, std::string_view)>(
      &set_option);
  name<Result<void> (*)(ReplicatedRpcClientOptions&, std::string_view, std::string_view)>(
      &set_option);
  name<Result<void> (*)(KvClientOptions&, std::string_view, std::string_view)>(&set_option);
  name(&parse_log_options);
  name(&read_log_options);
  name(&parse_reader_options);
  name(&read_reader_options);
  name(&parse_region_options);
  name(&read_region_options);
  name(&parse_mirror_options);
  name(&read_mirror_options);
  name(&parse_rpc_client_options);
  name(&read_rpc_client_options);
  name(&parse_replicated_rpc_server_options);
  name(&read_replicated_rpc_server_options);
  name(&parse_replicated_rpc_client_options);
  name(&read_replicated_rpc_client_options);
  name(&parse_kv_client_options);
  name(&read_kv_client_options);
  name(&create_pool);
  name(&describe_pool);
  name(&list_pools);
  name(&delete_pool);
  name(&open_pool);
  name(&close_pool);
  name(&set_message_callback);
}

void name_log() {
  name(&Log::open);
  name(&Log::append);
  name(&Log::append_would_block);
  name(&Log::append_pieces);
  name(&Log::claim);
  name(&Log::append_claimed);
  name(&Log::wait);
  name(&Log::poll);
  name(&Log::reached);
  name(&Log::committed);
  name(&Log::trim);
  name(&Log::repair);
  name(&Log::take_repairs);
  name(&Log::status);
  name(&Log::times);
  name(&Log::reader);
  name(&Log::close);
  name(&Log::add_replica);
  name(&Log::remove_replica);
  name(&Log::replace_replica);
  name(&Log::change_quorum);
  name(&LogReader::open);
  name(&LogReader::next);
  name(&LogReader::position);
  name(&LogReader::committed);
  name(&LogReader::end);
  name(&LogReader::peer);
}

void name_writer() {
  using Bytes = std::span<const std::byte>;
  using Pieces = std::span<const std::span<const std::byte>>;
  using Time = std::chrono::milliseconds;
  name(&LogWriter::open);
  name<Result<Ticket> (LogWriter::*)(Bytes, Level, Time)>(&LogWriter::commit);
  name<Result<Ticket> (LogWriter::*)(Pieces, Level, Time)>(&LogWriter::commit);
  name<Result<void> (LogWriter::*)(Bytes, LogWriter::Done, Level, Time)>(&LogWriter::submit);
  name<Result<void> (LogWriter::*)(Pieces, LogWriter::Done, Level, Time)>(&LogWriter::submit);
  name<std::future<Result<Ticket>> (LogWriter::*)(Bytes, Level, Time)>(&LogWriter::submit);
  name<std::future<Result<Ticket>> (LogWriter::*)(Pieces, Level, Time)>(&LogWriter::submit);
  name<Result<void> (LogWriter::*)(Bytes, std::uint64_t, Level, Time)>(&LogWriter::submit_tagged);
  name<Result<void> (LogWriter::*)(Pieces, std::uint64_t, Level, Time)>(&LogWriter::submit_tagged);
  name(&LogWriter::commit_in_place);
  name(&LogWriter::completion_fd);
  name(&LogWriter::take_completed);
  name(&LogWriter::poll);
  name(&LogWriter::with_log);
  name(&LogWriter::close);
}

void name_region() {
  using Bytes = std::span<const std::byte>;
  name(&Region::open);
  name(&Region::bytes);
  name<Result<RegionTicket> (Region::*)(std::span<const RangeEpoch>)>(&Region::write);
  name<Result<RegionTicket> (Region::*)(std::uint64_t, Bytes)>(&Region::write);
  name(&Region::wait);
  name(&Region::flush);
  name(&Region::reached);
  name(&Region::poll);
  name(&Region::fetch_add);
  name(&Region::compare_swap);
  name(&Region::store);
  name(&Region::read);
  name(&Region::completion_fd);
  name(&Region::arm);
  name(&Region::note_equal);
  name(&Region::status);
  name(&Region::times);
  name(&Region::close);
}

void name_mirror() {
  name(&MirrorMemory::file);
  name(&MirrorMemory::create_file);
  name(&MirrorMemory::bytes);
  name(&MirrorMemory::bytes_of);
  name(&Mirror::open);
  name(&Mirror::memory);
  name(&Mirror::persist);
  name(&Mirror::deep_persist);
  name(&Mirror::flush);
  name(&Mirror::wait);
  name(&Mirror::drain);
  name(&Mirror::reached);
  name(&Mirror::flush_ordered);
  name(&Mirror::persist_ordered);
  name(&Mirror::write);
  name(&Mirror::write_atomic);
  name(&Mirror::lane);
  name(&Mirror::read);
  name(&Mirror::wait_in_sync);
  name(&Mirror::status);
  name(&Mirror::times);
  name(&Mirror::close);
  name(&MirrorLane::persist);
  name(&MirrorLane::flush);
  name(&MirrorLane::drain);
  name<std::string_view (*)(MirrorStart)>(&to_string);
  name<std::string_view (*)(MirrorReplicaState)>(&to_string);
}

void name_rpc() {
  name(&RpcServer::open);
  name(&RpcServer::replay);
  name(&RpcServer::retry);
  name(&RpcServer::drop);
  name(&RpcServer::address);
  name(&RpcServer::status);
  name(&RpcClient::open);
  name(&RpcClient::call);
  name(&RpcClient::cancel);
  name(&RpcClient::wait);
  name(&RpcClient::reply);
  name(&RpcClient::query);
  name(&RpcClient::poll);
  name(&RpcClient::payload_bytes_max);
  name(&RpcClient::handle_of);
  name(&RpcClient::status);
  name(&RpcClient::times);
  name<std::string_view (*)(RpcLevel)>(&to_string);
}

void name_replicated_rpc() {
  name(&ReplicatedRpcServer::open);
  name(&ReplicatedRpcServer::read);
  name(&ReplicatedRpcServer::replace_peer);
  name(&ReplicatedRpcServer::retry);
  name(&ReplicatedRpcServer::drop);
  name(&ReplicatedRpcServer::status);
  name(&ReplicatedRpcServer::metrics);
  name(&ReplicatedRpcClient::open);
  name(&ReplicatedRpcClient::call);
  name(&ReplicatedRpcClient::wait);
  name(&ReplicatedRpcClient::reply);
  name(&ReplicatedRpcClient::read);
  name(&ReplicatedRpcClient::replace_peer);
  name(&ReplicatedRpcClient::handle_of);
  name(&ReplicatedRpcClient::status);
  name(&ReplicatedRpcClient::metrics);
}

void name_kv() {
  name(&KvServer::open);
  name(&KvClient::open);
  name(&KvClient::begin_set);
  name(&KvClient::begin_erase);
  name(&KvClient::wait);
  name(&KvClient::outcome);
  name(&KvClient::set);
  name(&KvClient::erase);
  name<Result<KvClient::Value> (KvClient::*)(std::string_view)>(&KvClient::get);
  name<Result<std::vector<KvClient::Value>> (KvClient::*)(std::span<const std::string_view>)>(
      &KvClient::get);
  name(&KvClient::walk);
  name(&KvClient::range);
  name(&KvClient::info);
  name(&KvClient::status);
}

}  // namespace

int main() {
  name_words();
  name_log();
  name_writer();
  name_region();
  name_mirror();
  name_rpc();
  name_replicated_rpc();
  name_kv();
  name_life<Log>();
  name_life<LogReader>();
  name_life<LogWriter>();
  name_life<Region>();
  name_life<MirrorMemory>();
  name_life<Mirror>();
  name_life<RpcServer>();
  name_life<RpcClient>();
  name_life<ReplicatedRpcServer>();
  name_life<ReplicatedRpcClient>();
  name_life<KvClient>();
  std::cout << (named == 189 ? "all" : "not all") << '\n';
}
