// See resolve.h.
#include "fabric/resolve.h"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "core/mutex.h"
#include "core/per_process.h"
#include "core/stoppable_clock.h"

namespace perdure::fabric {
namespace {

using Addresses = Result<std::vector<SocketAddress>>;

/// What callers and the thread that looks up share; whoever is last lets go of it.
struct Question {
  Mutex mutex;
  std::condition_variable answered;
  std::optional<Addresses> answer PERDURE_GUARDED_BY(mutex);
};

using Name = std::pair<std::string, std::uint16_t>;

/// Those of this process that no answer has come to.
struct Running {
  Mutex mutex;
  std::map<Name, std::shared_ptr<Question>> questions PERDURE_GUARDED_BY(mutex);
};
PerProcess<Running> running;

Addresses look_up(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const int failed = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
  if (failed != 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("host '{}' can not be resolved: {}", host, ::gai_strerror(failed))};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    SocketAddress address;
    if (each->ai_addrlen > sizeof address.storage) continue;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
    addresses.push_back(address);
  }
  return addresses;
}

Error too_late(const std::string& host) {
  return {ErrorCode::TimedOut,
          fmt::format("host '{}' was not resolved in time; try again, write its address, or see "
                      "whether the name server answers",
                      host)};
}

/// In a thread of its own.
void ask(Running& here, const Name& name, const std::shared_ptr<Question>& question,
         const Lookup& lookup) {
  std::thread([&here, name, question, lookup] {
    Addresses answer = lookup(name.first, name.second);
    {
      const MutexLock lock(here.mutex);
      here.questions.erase(name);
    }
    const MutexLock lock(question->mutex);
    question->answer = std::move(answer);
    question->answered.notify_all();
  }).detach();
}

/// The lookup that is running, or one that begins. Errors: TimedOut when too many others are
/// running.
Result<std::shared_ptr<Question>> start(const Name& name, const Lookup& lookup) {
  Running& here = running.here();
  const MutexLock lock(here.mutex);
  if (const auto known = here.questions.find(name); known != here.questions.end()) {
    return known->second;
  }
  if (here.questions.size() >= kLookupsMax) return too_late(name.first);
  auto question = std::make_shared<Question>();
  try {
    ask(here, name, question, lookup);
  } catch (const std::system_error& error) {
    return Error{ErrorCode::SystemError,
                 fmt::format("no thread to resolve a name: {}", error.what())};
  }
  here.questions.emplace(name, question);
  return question;
}

}  // namespace

Addresses system_lookup(const std::string& host, std::uint16_t port) {
  return look_up(host, port, 0);
}

Addresses resolve(const std::string& host, std::uint16_t port, Deadline deadline,
                  const Lookup& lookup) {
  if (auto numeric = look_up(host, port, AI_NUMERICHOST); numeric.ok()) return numeric;
  const auto started = start({host, port}, lookup);
  if (!started) return started.error();
  Question& question = **started;
  MutexLock lock(question.mutex);
  while (!question.answer && !deadline.passed()) {
    lock.wait_for(question.answered, std::min(deadline.left(), kDeadlineLookEvery));
  }
  if (!question.answer) return too_late(host);
  if (question.answer->ok() && question.answer->value().empty()) {
    return Error{ErrorCode::InvalidArgument, fmt::format("host '{}' has no address", host)};
  }
  return *question.answer;
}

}  // namespace perdure::fabric
