// The half of an endpoint that serves: executes the peer's requests in order, on this side's
// memory and receive buffers. Nothing of what the peer wrote is believed before it is checked.
#pragma once

#include "fabric/fabric.h"
#include "fabric/shm/frame.h"
#include "fabric/shm/key_table.h"
#include "fabric/shm/shared_rings.h"

#include <vector>

namespace perdure::fabric::shm {

class Target {
 public:
  enum class State {
    Serving,
    Refused,  // the peer named memory that it may not reach
    Broken,   // the peer sent nonsense, or a message longer than the buffer for it
  };

  Target(std::size_t receive_depth, std::shared_ptr<KeyTable> keys,
         std::span<const std::byte> request_stream, std::span<std::byte> answer_stream,
         Published& own, const Published& peer);

  /// Once `cut` is set, the peer learns of nothing more that is executed. It outlives this.
  void obey(const std::atomic<bool>& cut) { answers_.obey(cut); }
  bool post_receive(const Segment& buffer, std::uint64_t context);
  /// Executes requests, a bounded amount at a time. True: something moved.
  ///
  /// What was executed is told at once, except when a message came in: then the owner most likely
  /// answers next, and the peer, which looks at one cache line for everything, should not lose it
  /// to us twice. So it is told by publish(), or by the next advance().
  bool advance();
  void publish();
  /// Whether advance would do something, as far as one look tells.
  bool anything();
  State state() const { return state_; }

  /// The next received message to report.
  bool report(Completion& completion);
  bool reportable() const { return reported_ != completed_; }
  /// The connection is lost: fails the buffers that are still posted.
  void fail_receives();

 private:
  struct Receive {
    Segment buffer;
    std::uint64_t context = 0;
    Completion completion;
  };

  bool step();
  bool begin();
  bool place();
  bool place_piece(std::uint64_t length);
  bool finish_payload();
  bool answer();
  bool answer_atomic();
  bool answer_read();
  bool execute_atomic(std::uint64_t& old_value);
  void complete_receive(std::uint64_t length);
  void executed();
  bool refuse();
  bool waits_for_receive() const;

  std::shared_ptr<KeyTable> keys_;
  StreamReader requests_;
  StreamWriter answers_;
  Published& own_;
  State state_ = State::Serving;

  RequestFrame frame_;       // the request in flight, copied out of the shared memory
  bool has_frame_ = false;   // frame_ is valid
  std::uint64_t moved_ = 0;  // payload placed, or answer bytes put
  std::uint64_t executed_ = 0;
  bool untold_ = false;  // something was executed and not published

  std::vector<Receive> receives_;  // a ring
  std::uint64_t reported_ = 0;
  std::uint64_t completed_ = 0;
  std::uint64_t posted_ = 0;
};

}  // namespace perdure::fabric::shm
