// ThreadText: words that a thread keeps until it says something else, for C interfaces that tell of
// the last error. Nothing of it is destroyed: a thread's other variables are gone when handlers of
// exit() run, and those may still call, fail, and ask why.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace perdure {

class ThreadText {
 public:
  static constexpr std::size_t kBytesMax = 4095;

  /// The beginning of it, if it is longer.
  void set(std::string_view text) { bytes_[text.copy(bytes_, kBytesMax)] = '\0'; }
  const char* c_str() const { return bytes_; }

 private:
  char bytes_[kBytesMax + 1] = {};
};

}  // namespace perdure
