// A Method made ready for one connection: every decision that depends on device, peer or profile
// is taken here, once, so that the data path only walks arrays.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "core/method.h"
#include "fabric/fabric.h"
#include "persist/responder.h"

#include <vector>

namespace perdure::persist {

/// One entry of a message, before it is known where the item goes.
struct CompiledEntry {
  Item item = 0;
  std::uint32_t actions = 0;  // EntryActions
};

struct CompiledStep {
  RequesterStep source;
  fabric::Opcode opcode = fabric::Opcode::Send;
  std::size_t requests = 0;   // work requests that this step posts
  std::vector<Item> targets;  // the item of each request, but for SEND
  fabric::FlushPlacement placement = fabric::FlushPlacement::Visibility;  // FLUSH
  std::vector<CompiledEntry> entries;                                     // SEND
  std::uint8_t message_flags = 0;                                         // SEND
  std::size_t padding_bytes = 0;  // SEND: of nothing, behind the message; probes only
  bool carries_message = false;   // SEND, WRITE_WITH_IMM
  bool wants_ack = false;         // the responder is to acknowledge this message
  bool awaited = false;           // a later step waits for its completion
};

/// What is known of an item before it comes.
struct ItemUse {
  bool sent = false;       // it travels inside a message
  bool word = false;       // 8 bytes at a multiple of 8, nothing else
  bool immediate = false;  // an immediate says where it goes
};

struct CompiledMethod {
  Method source;
  std::vector<CompiledStep> steps;
  std::size_t posts_end = 0;  // index after the last posting step: then a later update may post
  std::vector<ItemUse> items;
  std::size_t message_header_bytes_max = 0;
  std::size_t message_buffer_bytes = 0;  // what one message needs beside the items' own memory
};

/// Errors: InvalidArgument (malformed, or methods that must not share a connection), Unsupported.
Result<std::vector<CompiledMethod>> compile(const std::vector<Method>& methods,
                                            const ServerProfile& profile,
                                            const Capabilities& device, const ReceiveQueue& queue);

}  // namespace perdure::persist
