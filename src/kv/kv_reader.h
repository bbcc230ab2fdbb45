// KvReader: looks things up in a key-value store: by key, in the order of keys, and in the order of
// slots. Nothing of the store's bytes is trusted: a number that lies outside, or a list without an
// end, is Corrupt.
#pragma once

#include <perdure/result.h>
#include <perdure/rpc.h>

#include "kv/kv_format.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::kv {

struct FoundSlot {
  std::uint32_t number = 0;
  KvSlot slot;
};

/// Valid as long as the data are, and nobody else changes them.
class KvReader {
 public:
  /// Errors: those of read_geometry.
  static Result<KvReader> open(const RpcData& data);

  /// False: nothing was ever stored, and every look-up finds nothing.
  bool formatted() const { return geometry_.magic != 0; }
  const KvGeometry& geometry() const { return geometry_; }
  const KvState& state() const { return state_; }

  Result<std::optional<FoundSlot>> find(std::string_view key) const;
  /// The first key that is not before `key`, or, exclusive, the first behind it.
  Result<std::optional<FoundSlot>> first_from(std::string_view key, bool inclusive) const;
  Result<std::optional<FoundSlot>> behind(const FoundSlot& found) const;
  /// Nothing: the slot is free, or was never used.
  Result<std::optional<FoundSlot>> slot(std::uint64_t number) const;

  Result<std::string> key_of(const KvSlot& slot) const;
  /// Of the record, from `at` on, as many bytes as `into` has. Requires that they lie inside.
  Result<void> read_record(const KvSlot& slot, std::uint64_t at, std::span<std::byte> into) const;
  Result<std::vector<std::byte>> value_of(const KvSlot& slot) const;

  std::uint64_t slots_available() const;
  std::uint64_t blocks_available() const;

 protected:
  explicit KvReader(const RpcData& data) : data_(&data) {}
  Result<void> load();
  Result<KvSlot> load_slot(std::uint64_t number) const;
  Result<std::uint32_t> load_link(std::uint64_t block) const;
  /// Below zero, zero or above: the slot's key is before, is, or is behind `key`.
  Result<int> compare(const KvSlot& slot, std::string_view key) const;
  /// By level, the last slot before `key`; 0: the head of the list.
  using Path = std::array<std::uint32_t, kHeightMax>;
  Result<Path> path_to(std::string_view key) const;
  /// What follows `before`, or the head, at a level.
  Result<std::uint32_t> next_of(std::uint32_t before, std::size_t level) const;

  const RpcData* data_;
  KvGeometry geometry_;
  KvState state_;
};

}  // namespace perdure::kv
