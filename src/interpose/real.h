// The functions that the interposer stands before.
#pragma once

#include "interpose/backend.h"
#include "interpose/lookups.h"
#include "interpose/own_code.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdlib>

namespace perdure::interpose {

/// One of them, looked up when it is first called. A library that the program loaded out of
/// everybody's sight (dlopen, RTLD_LOCAL) is found by its name.
template <typename Function>
class Real {
 public:
  constexpr Real(const char* name, const char* library) : name_(name), library_(library) {}

  Function* get() {
    Function* found = found_.load(std::memory_order_acquire);
    if (found == nullptr) found = look_up();
    return found;
  }

 private:
  Function* look_up() {
    void* symbol = real_dlsym()(RTLD_NEXT, name_);
    if (symbol == nullptr) {
      // Never closed: the program has it open, or calls nothing of it.
      void* const library = ::dlopen(library_, RTLD_LAZY | RTLD_NOLOAD);
      if (library != nullptr) symbol = real_dlsym()(library, name_);
    }
    if (symbol == nullptr) symbol = looked_up(name_);  // of a library with another name
    if (symbol == nullptr) {
      say("called, but the library that has it is not loaded: ", name_);
      std::abort();
    }
    note_library(symbol);
    auto* const function = reinterpret_cast<Function*>(symbol);
    found_.store(function, std::memory_order_release);
    return function;
  }

  const char* const name_;
  const char* const library_;
  std::atomic<Function*> found_{nullptr};
};

/// While one of the interposer's functions runs. What the library calls inside is part of the same
/// call: only the outermost one counts. That the thread is inside of one is not enough to know
/// that: a signal handler may have come in between, or left it by siglongjmp(), and then it never
/// ends. What those call counts.
class Call {
 public:
  /// `caller`: __builtin_return_address(0) of the function.
  explicit Call(const void* caller) : inner_(depth != 0 && is_library(caller)) { ++depth; }
  ~Call() { --depth; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  bool outermost() const { return !inner_; }

 private:
  static inline thread_local unsigned depth = 0;
  const bool inner_;
};

}  // namespace perdure::interpose
