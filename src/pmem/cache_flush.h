// CacheFlush: which instruction writes cache lines back on this processor, and how to run it.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <span>
#include <string_view>

namespace perdure::pmem {

enum class FlushInstruction {
  None,        // this processor has none that Perdure knows
  Clflush,     // writes back and evicts, one line after another
  Clflushopt,  // writes back and evicts, many lines at once
  Clwb,        // writes back and may keep the line: the best one
};

std::string_view to_string(FlushInstruction instruction);

/// The best instruction of this processor (CPUID; Intel SDM volume 2A, CPUID leaf 7: EBX bit 24 is
/// CLWB, bit 23 CLFLUSHOPT; leaf 1: EDX bit 19 is CLFLUSH).
FlushInstruction best_flush_instruction();

/// Writes lines back towards the memory controller. Asked once at open, a plain call afterwards.
class CacheFlush {
 public:
  /// Errors  Unsupported: there is no such instruction here, so `dmp` is not possible.
  static Result<CacheFlush> best();

  /// Starts writing back every line that `bytes` touches.
  void lines(std::span<const std::byte> bytes) const { flush_(bytes.data(), bytes.size()); }

  FlushInstruction instruction() const { return instruction_; }

 private:
  using FlushFunction = void (*)(const std::byte* at, std::size_t length);
  CacheFlush(FlushInstruction instruction, FlushFunction flush)
      : instruction_(instruction), flush_(flush) {}

  FlushInstruction instruction_;
  FlushFunction flush_;
};

enum class Processor { X86, Arm64, Other };

/// What store_fence() executes on a processor, in the language of its assembler; empty: a fence of
/// C++, sequentially consistent.
std::string_view store_fence_instruction(Processor processor);

/// What stands between the responder's last store and an answer that calls it durable: on `mhp` and
/// `wsp` nothing else does, on `dmp` line write-backs come before it.
///
///   x86    SFENCE  earlier stores and line write-backs are accepted by the memory controller (it
///                  orders CLWB and CLFLUSHOPT: Intel SDM volume 1, section 11.4.4.1)
///   Arm64  DSB SY  earlier accesses are complete, for every observer of the full system, of which
///                  an RNIC is one. DMB would only order them, and DMB ISH, the fence of C++, only
///                  within the inner shareable domain (Arm ARM DDI 0487, B2.3.12)
void store_fence();

}  // namespace perdure::pmem
