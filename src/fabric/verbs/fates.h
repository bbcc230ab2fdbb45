// What an RNIC's asynchronous events do to the connections on it.
#pragma once

#include <infiniband/verbs.h>

#include "core/log_message.h"

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace perdure::fabric::verbs {

/// What the RNIC's asynchronous events did to one connection. Set by whichever thread reads them.
struct Fate {
  std::atomic<bool> broken{false};
};

/// Which connections an event is the end of.
enum class EventReach : std::uint8_t {
  None,
  Connection,  // that of its queue pair
  Queue,       // each whose completion queue it is
  Device,      // all, for ever: the RNIC's context serves nobody any more. No key of it is known
               // to be gone by that: see has_let_go
};

struct EventMeaning {
  EventReach reach = EventReach::None;
  Severity severity = Severity::Debug;  // to log it with; of one connection it says so itself
};

/// ibv_get_async_event(3) has the list. What is not named here says nothing about connections.
constexpr EventMeaning meaning_of(ibv_event_type event) {
  switch (event) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: return {EventReach::Connection, Severity::Debug};
    case IBV_EVENT_CQ_ERR: return {EventReach::Queue, Severity::Error};  // completions are lost
    case IBV_EVENT_DEVICE_FATAL: return {EventReach::Device, Severity::Error};
    case IBV_EVENT_PORT_ERR:  // connections outlast it, or their retries end them
    case IBV_EVENT_PORT_ACTIVE: return {EventReach::None, Severity::Warning};
    default: return {};
  }
}

/// Connections by their queue pairs: those of one RNIC. Threads: any.
class Fates {
 public:
  void watch(ibv_qp* qp, std::shared_ptr<Fate> fate) {
    const std::lock_guard lock(mutex_);
    if (dead()) fate->broken = true;
    fates_[qp] = std::move(fate);
  }
  void unwatch(ibv_qp* qp) {
    const std::lock_guard lock(mutex_);
    fates_.erase(qp);
  }

  /// Tells those that an event is the end of.
  void take(const ibv_async_event& event) {
    const std::lock_guard lock(mutex_);
    switch (meaning_of(event.event_type).reach) {
      case EventReach::None: break;
      case EventReach::Connection:
        if (const auto found = fates_.find(event.element.qp); found != fates_.end()) {
          found->second->broken = true;
        }
        break;
      case EventReach::Queue:
        for (const auto& [qp, fate] : fates_) {
          if (qp->send_cq == event.element.cq || qp->recv_cq == event.element.cq) {
            fate->broken = true;
          }
        }
        break;
      case EventReach::Device: end_all(); break;
    }
  }
  /// The RNIC is being removed.
  void condemn() {
    const std::lock_guard lock(mutex_);
    end_all();
  }
  /// Its name has another context now: the kernel took all that was made on this one before it made
  /// that (ib_unregister_device).
  void note_successor() {
    condemn();
    reset_.store(true);
  }
  /// Whether it failed, or was removed. Whoever is watched from then on is broken already.
  bool dead() const { return dead_.load(); }
  /// Whether it is known to have been reset, or removed and come back.
  bool was_reset() const { return reset_.load(); }
  /// Whether what the RNIC was asked to destroy is known to be gone, by its answer. `answers`: it
  /// was asked something afterwards that its driver makes up no answer for, and answered.
  bool has_let_go(int returned, bool answers) const {
    // A failed RNIC is asked in vain: mlx5's driver answers for it, with success
    // (mlx5_internal_err_ret_value of Linux), and what it still does to memory nobody knows. That
    // begins before the event says so.
    return dead() ? was_reset() : returned == 0 && answers;
  }

 private:
  void end_all() {
    dead_.store(true);
    for (const auto& [qp, fate] : fates_) fate->broken = true;
  }

  std::mutex mutex_;
  std::map<ibv_qp*, std::shared_ptr<Fate>> fates_;
  std::atomic<bool> dead_{false};
  std::atomic<bool> reset_{false};
};

}  // namespace perdure::fabric::verbs
