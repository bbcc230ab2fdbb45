// The measurements that `perdure bench` offers, one function per file.
#pragma once

#include "commands.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace perdure::app {

/// What stands between any of the separators; nothing is no word.
inline std::vector<std::string> words_between(const std::string& text,
                                              std::string_view separators) {
  std::vector<std::string> words;
  std::string word;
  for (const char c : text) {
    if (separators.find(c) == separators.npos) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::exchange(word, {}));
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

void add_bench_remotelog(Command bench);  // bench_remotelog_command.cc
void add_bench_limits(Command bench);     // bench_limits_command.cc
void add_bench_mirror(Command bench);     // bench_limits_command.cc
void add_bench_files(Command bench);      // bench_files_command.cc
void add_bench_rpc(Command bench);        // bench_rpc_command.cc

}  // namespace perdure::app
