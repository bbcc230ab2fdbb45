// A key-value store whose power fails in every flush of every kind of change, and in its recovery:
// afterwards it is what the calls that were executed make of it, those that were durable among
// them, and all of its laws hold (so nothing has leaked).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/random.h"
#include "core/try.h"
#include "kv/kv_audit.h"
#include "kv/kv_calls.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"
#include "pmem/pool_format.h"
#include "rpc/executor.h"
#include "testing/soak.h"

namespace perdure {
namespace {

using Model = std::map<std::string, std::string>;

/// One change: to a store, and to the model.
struct Change {
  std::string key;
  std::optional<std::string> value;  // nothing: erased
  bool grant = false;                // a call for a grant instead
};

std::vector<std::byte> encoded(const Change& change) {
  std::vector<std::byte> payload;
  if (change.grant) {
    kv::append(payload, std::uint64_t{3});
    kv::append(payload, std::uint64_t{50});
  } else if (!change.value) {
    kv::append_key(payload, change.key);
  } else {
    kv::KvPut put;
    put.key = change.key;
    put.value = std::as_bytes(std::span(*change.value));
    put.crc = crc32c(put.value, crc32c(std::as_bytes(std::span(change.key))));
    payload = kv::encode_set(put, false);
  }
  return payload;
}

std::uint32_t operator_of(const Change& change) {
  const auto call = change.grant   ? kv::KvCall::Grant
                    : change.value ? kv::KvCall::Set
                                   : kv::KvCall::Erase;
  return static_cast<std::uint32_t>(call);
}

class KvCrash : public testing::Test {
 protected:
  void make(PersistenceDomain domain, std::uint64_t value_bytes, std::uint64_t seed) {
    executor_.reset();
    random_ = Random(seed);
    cut_in_ = flushes_ = 0;
    sequence_ = durable_ = end_ = 0;
    shape_ = {};
    shape_.clients = 2;
    shape_.ring_bytes = round_up(3 * (value_bytes + 1024), 64);
    shape_.window_bytes = round_up(pmem::kPoolDataOffset + rpc::kRingAt + shape_.ring_bytes, 4096);
    shape_.replies = 16;
    shape_.reply_bytes_max = 32;
    shape_.transaction_bytes = round_up(2 * value_bytes + 16384, 4096);
    shape_.data_bytes = round_up(3 * value_bytes + 65536, 4096);
    store_.keys_max = 64;
    store_.block_bytes = 512;
    store_.grants = 2;
    store_.value_bytes_max = 1024 * 1024;
    region_ = *pmem::CrashableRegion::open(
        {.bytes = pmem::kPoolDataOffset + shape_.bytes(), .domain = domain});
    region_->watch_flushes([this](std::uint64_t) {
      ++flushes_;
      if (cut_in_ != 0 && --cut_in_ == 0) region_->power_cut(random_);
    });
    ASSERT_TRUE(pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region_), {}).ok());
    ASSERT_TRUE(open().ok());
    const auto place =
        executor_->add_client("one", [](std::size_t at) { return Result<std::size_t>(at); });
    ASSERT_TRUE(place.ok()) << place.error().message;
    client_ = executor_->welcome(*place, 0)->client;
    flushes_ = 0;
  }

  Result<void> open() {
    executor_.reset();
    PERDURE_TRY(attached, pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_)));
    PERDURE_TRY(pool, rpc::RpcPool::open(std::move(attached), shape_));
    rpc::ExecutorOptions options;
    options.handlers = kv::call_handlers(store_);
    options.queries = kv::query_handlers(store_);
    PERDURE_TRY(executor, rpc::Executor::open(std::move(pool), std::move(options)));
    executor_ = std::move(executor);
    return {};
  }

  /// Writes a call as a method does: the commit word behind the rest. False: no power.
  bool call(const Change& change) {
    const std::vector<std::byte> payload = encoded(change);
    const std::uint64_t bytes = rpc::entry_bytes(payload.size());
    const std::uint64_t at = rpc::place_entry(end_, bytes, shape_.ring_bytes);
    rpc::Entry entry;
    entry.client = client_;
    entry.sequence = ++sequence_;
    entry.position = at;
    entry.operation = operator_of(change);
    entry.payload_bytes = static_cast<std::uint32_t>(payload.size());
    std::vector<std::byte> written(bytes);
    rpc::encode_entry(entry, payload, written.data());
    const std::uint64_t place = pmem::kPoolDataOffset + shape_.ring_at(0) + at % shape_.ring_bytes;
    end_ = at + bytes;
    std::byte* const to = region_->bytes().data() + place;
    std::copy(written.begin() + 8, written.end(), to + 8);
    if (!region_->flush(place, bytes).ok()) return false;
    std::copy_n(written.begin(), 8, to);
    if (!region_->flush(place, 8).ok()) return false;
    durable_ = sequence_;
    return true;
  }

  Result<void> execute_all() {
    for (;;) {
      PERDURE_TRY(done, executor_->process());
      if (done == 0) return {};
    }
  }

  /// The power comes back, and fails again in the flush of that number of the recovery; then it
  /// stays.
  void recover(std::uint64_t fails_again_in) {
    for (int attempt = 0; attempt < 2; ++attempt) {
      executor_.reset();
      region_->power_on();
      cut_in_ = attempt == 0 ? fails_again_in : 0;
      auto recovered = open();
      if (recovered.ok()) recovered = execute_all();
      const bool whole = recovered.ok() && region_->powered();
      cut_in_ = 0;
      if (whole) return;
      ASSERT_FALSE(attempt == 1) << recovered.error().message;
    }
  }

  Model contents() {
    Model found;
    const kv::KvImage image(executor_->pool().handlers_data());
    const auto laws = kv::audit(image);
    EXPECT_TRUE(laws.ok()) << laws.error().message;
    const auto reader = kv::KvReader::open(image);
    EXPECT_TRUE(reader.ok());
    for (std::uint64_t number = 1; number <= reader->state().slots_begun; ++number) {
      const auto slot = reader->slot(number);
      if (!slot.ok() || !*slot) continue;
      const auto value = reader->value_of((*slot)->slot);
      found[*reader->key_of((*slot)->slot)] =
          std::string(reinterpret_cast<const char*>(value->data()), value->size());
    }
    return found;
  }

  static Model expected_after(const std::vector<Change>& changes, std::uint64_t executed) {
    Model expected;
    for (std::uint64_t index = 0; index < executed; ++index) {
      const Change& each = changes[index];
      if (each.grant) continue;
      if (each.value) expected[each.key] = *each.value;
      if (!each.value) expected.erase(each.key);
    }
    return expected;
  }

  /// What is there is what the executed changes make of it.
  void judge(const std::vector<Change>& changes) {
    const std::uint64_t executed = executor_->applied(0);
    ASSERT_GE(executed, durable_) << "a durable change was not executed";
    ASSERT_LE(executed, sequence_);
    ASSERT_TRUE(contents() == expected_after(changes, executed)) << executed << " were executed";
  }

  /// Runs until the power fails in that flush. False: it was through before.
  bool run(const std::vector<Change>& changes, std::uint64_t cut_in) {
    cut_in_ = cut_in;
    for (const Change& change : changes) {
      if (!call(change)) return true;
      if (!execute_all().ok()) return true;
      if (random_.below(2) == 0) (void)region_->drain_some(random_);
    }
    cut_in_ = 0;
    return !region_->powered();
  }

  void cut_everywhere(PersistenceDomain domain, const std::vector<Change>& changes,
                      std::uint64_t value_bytes, std::uint64_t seeds) {
    std::uint64_t cuts = 0;
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      for (std::uint64_t flush = 1;; ++flush) {
        SCOPED_TRACE(fmt::format("{}, seed {}, flush {}", to_string(domain), seed, flush));
        make(domain, value_bytes, seed * 1000 + flush);
        if (HasFatalFailure()) return;
        const bool cut = run(changes, flush);
        cuts += cut ? 1 : 0;
        if (cut) recover(random_.below(6));
        if (HasFatalFailure()) return;
        judge(changes);
        if (HasFatalFailure() || HasNonfatalFailure()) return;
        if (!cut) break;
      }
    }
    EXPECT_GT(cuts, seeds * changes.size());
  }

  Random random_{1};
  rpc::PoolShape shape_;
  kv::KvShape store_;
  std::unique_ptr<pmem::CrashableRegion> region_;
  std::unique_ptr<rpc::Executor> executor_;
  std::uint64_t client_ = 0;
  std::uint64_t sequence_ = 0;
  std::uint64_t durable_ = 0;
  std::uint64_t end_ = 0;
  std::uint64_t cut_in_ = 0;
  std::uint64_t flushes_ = 0;
};

TEST_F(KvCrash, EveryChangeIsWholeWhereverThePowerFails) {
  const std::vector<Change> changes = {
      {"b", "first"},
      {"", "", true},
      {"a", std::string(3000, 'a')},
      {"long " + std::string(300, 'k'), std::string(900, 'l')},
      {"b", std::string(700, 'b')},  // out of its slot into blocks
      {"a", std::string(2000, 'A')},
      {"b", {}},
      {"c", std::string(1200, 'c')},  // in blocks that others had
      {"a", ""},
      {"long " + std::string(300, 'k'), {}},
      {"b", "back"},
      {"nothing", {}},
  };
  for (const auto domain :
       {PersistenceDomain::Dmp, PersistenceDomain::Page, PersistenceDomain::Mhp}) {
    cut_everywhere(domain, changes, 8192, test::rounds(4, 100));
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

TEST_F(KvCrash, AValueOfOneMebibyteIsThereWholeOrNotAtAll) {
  constexpr std::uint64_t kMebibyte = 1024 * 1024;
  const std::vector<Change> changes = {
      {"large", std::string(kMebibyte, 'x')},
      {"small", "s"},
      {"large", std::string(kMebibyte - 7, 'y')},
      {"large", {}},
  };
  for (const auto domain : {PersistenceDomain::Dmp, PersistenceDomain::Page}) {
    cut_everywhere(domain, changes, kMebibyte, test::rounds(1, 20));
    if (HasFatalFailure() || HasNonfatalFailure()) return;
  }
}

// The judge's own test: a change that is lost, and one that is torn, are seen.
TEST_F(KvCrash, TheJudgeSeesWhatIsWrong) {
  const std::vector<Change> changes = {{"a", std::string(2000, 'a')}, {"b", "b"}};
  make(PersistenceDomain::Dmp, 8192, 1);
  ASSERT_FALSE(run(changes, 0));
  std::vector<Change> others = changes;
  others[0].value->back() = 'x';
  EXPECT_NE(expected_after(others, 2), contents());
  EXPECT_EQ(expected_after(changes, 2), contents());
  const kv::KvImage image(executor_->pool().handlers_data());
  const auto reader = kv::KvReader::open(image);
  const auto slot = reader->find("a");
  ASSERT_TRUE(slot.ok() && *slot);
  const std::uint64_t at = pmem::kPoolDataOffset + shape_.data_at() +
                           reader->geometry().block_at((*slot)->slot.first_block) + 100;
  region_->bytes()[at] ^= std::byte{1};
  EXPECT_EQ(kv::audit(image).code(), ErrorCode::Corrupt);
}

}  // namespace
}  // namespace perdure
