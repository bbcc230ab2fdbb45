// What the numbers of the model of durable RPC mean, for its parts.
#pragma once

#include "model/rpc_model.h"

#include <cstdint>

namespace perdure::model {

inline constexpr std::uint16_t kTorn = 0xffff;
inline constexpr std::uint8_t kGenerationMask = 3;

/// Of the server. Recovery is the first six; of a transaction are those behind Idle.
enum Stage : std::uint8_t {
  kDown,
  kFlushRecords,
  kOldEffects,
  kOldMark,
  kNewEffects,
  kNewMark,
  kFlushStores,
  kIdle,
  kRecordTorn,
  kRecordWhole,
  kCommitted,
  kEffectsStored,
};
/// Of a call on its way: each stage is known to be reached before the next one begins.
enum Wire : std::uint8_t {
  kNowhere,
  kPosted,
  kBodyVisible,
  kBodyDurable,
  kWordVisible,
  kWordDurable,
};

inline std::uint8_t call_of(std::uint8_t sequence, std::uint8_t generation) {
  return static_cast<std::uint8_t>(4 * sequence + generation);
}
inline std::uint8_t sequence_of(std::uint8_t call) { return call / 4; }
inline std::uint8_t generation_of(std::uint8_t call) { return call & kGenerationMask; }
inline std::uint8_t times_of(std::uint8_t effects) { return effects / 4; }

inline std::uint8_t call_in(std::uint16_t record) { return record & 15; }
inline std::size_t client_in(std::uint16_t record) { return record >> 4 & 1; }
inline std::uint8_t times_in(std::uint16_t record) { return record >> 5 & 3; }
inline std::uint8_t number_in(std::uint16_t record) {
  return record == kTorn ? 0 : static_cast<std::uint8_t>(record >> 8);
}

template <typename Each>
void drain(Each& line) {
  line.durable = line.visible;
}
template <typename Each>
void lose(Each& line) {
  line.visible = line.durable;
}

}  // namespace perdure::model
