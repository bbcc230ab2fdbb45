// The C interface of pools.
#include <perdure/perdure.h>
#include <perdure/pool.h>

#include "capi/failure.h"
#include "core/required_domain.h"

using perdure::PoolDescription;
using perdure::PoolStatus;
using perdure::capi::code_of;
using perdure::capi::fail;
using perdure::capi::fail_of_no_size;
using perdure::capi::fail_of_size;
using perdure::capi::fail_of_sizes;
using perdure::capi::give_all;
using perdure::capi::give_sized;
using perdure::capi::give_text;
using perdure::capi::guarded;
using perdure::capi::has_size;
using perdure::capi::have_sizes;
using perdure::capi::take_sized;

static_assert(PERDURE_POOL_CLOSED == static_cast<int>(PoolStatus::Closed));
static_assert(PERDURE_POOL_UNAVAILABLE == static_cast<int>(PoolStatus::Unavailable));

namespace {

PERDURE_CAPI_ENDS_WITH(perdure_pool_description, reserved);
PERDURE_CAPI_ENDS_WITH(perdure_pool_create_options, reserved);

perdure_pool_description described(const PoolDescription& pool) {
  perdure_pool_description told{};
  give_text(pool.name, told.name);
  give_text(pool.uuid, told.uuid);
  told.state = static_cast<perdure_pool_state>(pool.state);
  told.bytes = pool.bytes;
  told.epoch = pool.epoch.value;
  told.writer_present = pool.writer_present;
  give_text(pool.writer_name, told.writer_name);
  if (pool.state == PoolStatus::Open) give_text(perdure::describe(pool.profile), told.profile);
  give_text(pool.reason, told.reason);
  return told;
}

perdure_code give_answer(const perdure::Result<PoolDescription>& pool,
                         perdure_pool_description* description) {
  if (!pool.ok()) return fail(pool.error());
  return description == nullptr ? PERDURE_OK : give_sized(described(*pool), description);
}

std::chrono::milliseconds or_usual(uint32_t timeout_ms, std::chrono::seconds usual) {
  return timeout_ms != 0 ? std::chrono::milliseconds(timeout_ms) : usual;
}

perdure::Result<perdure::PoolOptions> pool_options_of(const perdure_pool_create_options& given) {
  perdure::PoolOptions options;
  options.name = given.name;
  options.bytes = given.bytes;
  options.small = given.small;
  if (given.required_domain != nullptr) {
    const auto required = perdure::parse_required_domain(given.required_domain);
    if (!required.ok()) return required.error();
    options.required_domain = *required;
  }
  if (given.receive_buffers != nullptr) {
    const auto buffers = perdure::parse_receive_buffers(given.receive_buffers);
    if (!buffers.ok()) return buffers.error();
    options.receive_buffers = *buffers;
  }
  return options;
}

}  // namespace

perdure_code perdure_pool_create(const char* peer, const char* name, uint64_t bytes, bool small,
                                 uint32_t timeout_ms, perdure_pool_description* description) {
  perdure_pool_create_options options{};
  options.size = sizeof options;
  options.peer = peer;
  options.name = name;
  options.bytes = bytes;
  options.small = small;
  options.timeout_ms = timeout_ms;
  return perdure_pool_create_with(&options, description);
}

perdure_code perdure_pool_create_with(const perdure_pool_create_options* options,
                                      perdure_pool_description* description) {
  if (options == nullptr) return fail("options must not be NULL");
  perdure_pool_create_options given{};
  if (!take_sized(options, given)) return fail_of_size();
  if (given.peer == nullptr || given.name == nullptr) {
    return fail("peer and name must not be NULL");
  }
  if (!has_size(description)) return fail_of_no_size();
  return guarded([&] {
    const auto asked = pool_options_of(given);
    if (!asked.ok()) return fail(asked.error());
    const auto within = or_usual(given.timeout_ms, std::chrono::seconds(30));
    return give_answer(perdure::create_pool(given.peer, *asked, within), description);
  });
}

perdure_code perdure_pool_describe(const char* peer, const char* name, uint32_t timeout_ms,
                                   perdure_pool_description* description) {
  if (peer == nullptr || name == nullptr) return fail("peer and name must not be NULL");
  if (!has_size(description)) return fail_of_no_size();
  return guarded([&] {
    const auto within = or_usual(timeout_ms, std::chrono::seconds(5));
    return give_answer(perdure::describe_pool(peer, name, within), description);
  });
}

perdure_code perdure_pool_list(const char* peer, uint32_t timeout_ms,
                               perdure_pool_description* pools, size_t count, size_t* there) {
  if (peer == nullptr || there == nullptr || (pools == nullptr && count != 0)) {
    return fail("peer, pools and there must not be NULL");
  }
  if (!have_sizes(pools, count)) return fail_of_sizes();
  return guarded([&] {
    const auto listed = perdure::list_pools(peer, or_usual(timeout_ms, std::chrono::seconds(5)));
    if (!listed.ok()) return fail(listed.error());
    return give_all(*listed, pools, count, there, described);
  });
}

perdure_code perdure_pool_close(const char* peer, const char* name, uint32_t timeout_ms) {
  if (peer == nullptr || name == nullptr) return fail("peer and name must not be NULL");
  return guarded([&] {
    return code_of(perdure::close_pool(peer, name, or_usual(timeout_ms, std::chrono::seconds(5))));
  });
}

perdure_code perdure_pool_open(const char* peer, const char* name, uint32_t timeout_ms,
                               perdure_pool_description* description) {
  if (peer == nullptr || name == nullptr) return fail("peer and name must not be NULL");
  if (!has_size(description)) return fail_of_no_size();
  return guarded([&] {
    const auto within = or_usual(timeout_ms, std::chrono::seconds(30));
    return give_answer(perdure::open_pool(peer, name, within), description);
  });
}

perdure_code perdure_pool_delete(const char* peer, const char* name, const char* uuid,
                                 uint32_t timeout_ms) {
  if (peer == nullptr || name == nullptr || uuid == nullptr) {
    return fail("peer, name and uuid must not be NULL");
  }
  return guarded([&] {
    return code_of(
        perdure::delete_pool(peer, name, uuid, or_usual(timeout_ms, std::chrono::seconds(5))));
  });
}
