// What the library would like to say: a connection was lost, a replica is down, or back. It prints
// nothing and logs nowhere by itself; a program that wants to know says who listens.
//
//   perdure::set_message_callback([](perdure::Severity severity, const std::string& message) {
//     std::cerr << perdure::to_string(severity) << ": " << message << '\n';
//   });
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace perdure {

enum class Severity {
  Debug,
  Info,     // what was expected, or is over: a replica is back
  Warning,  // the library goes on: a replica is down, a connection was lost
  Error,    // somebody has to see to it
};

std::string_view to_string(Severity severity);

/// One sentence for people; what a program acts on is returned by its calls.
using MessageCallback = std::function<void(Severity, const std::string& message)>;

/// Who gets the messages of this process from now on; an empty one discards them (the default).
/// When this returns, the earlier one is not being called any more.
/// Threads: any. The callback is called by whichever thread has something to say, also one of the
/// library's, one call at a time; the library waits for it. It must not throw, nor call the
/// library: what that would say is discarded, and this function ends the program.
void set_message_callback(MessageCallback callback);

}  // namespace perdure
