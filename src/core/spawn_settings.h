// SpawnSettings: how a program is started that this one watches over.
#pragma once

#include <signal.h>
#include <spawn.h>

#include <initializer_list>

namespace perdure {

/// For posix_spawn: no signal is blocked, those given are handled as by default, and the program
/// has a process group of its own: what a terminal sends to this process is this one's to answer.
class SpawnSettings {
 public:
  explicit SpawnSettings(std::initializer_list<int> by_default) {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    sigset_t usual;
    sigemptyset(&usual);
    for (const int each : by_default) sigaddset(&usual, each);
    posix_spawnattr_setsigdefault(&attributes, &usual);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

}  // namespace perdure
