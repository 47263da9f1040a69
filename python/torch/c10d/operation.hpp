// A call of the backend as a value: what an executor performs.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "mscclpp/kernels/collective_call.hpp"
#include "torch_headers.hpp"

namespace mscclpp::torch_c10d {

/// A send or receive of torch.distributed.
struct Message {
  void* data;
  std::size_t bytes;
  int peer;
  int tag;
  bool isSend;
};

/// The parts are independent of each other; the collectives and the exchange are performed in that order, the messages
/// beside them.
struct Operation {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* name = "";
  c10::Device device{c10::DeviceType::CPU};
  /// The caller goes on while it runs; else, on a GPU, it runs on the caller's stream.
  bool isAsync = true;
  bool isBatch = false;        ///< several calls in one, among which messages progress together
  bool isHostBarrier = false;  ///< its wait() blocks the host on a GPU, too
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;

  std::vector<CollectiveCall> calls;
  std::vector<SentMessage> sends;  ///< of collectives whose parts are tensors of their own
  std::vector<ReceivedMessage> receives;
  std::vector<Message> messages;

  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> kept;                   ///< inputs and temporaries
  std::vector<std::vector<std::size_t>> numbers;  ///< that the spans of `calls` refer to

  bool hasCollectives() const { return !calls.empty() || !sends.empty() || !receives.empty(); }
  bool isEmpty() const { return !hasCollectives() && messages.empty(); }

  /// Adds the parts of another one, on the same device.
  void append(Operation other) {
    const auto move = [](auto& to, auto& from) {
      to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
    };
    move(calls, other.calls);
    move(sends, other.sends);
    move(receives, other.receives);
    move(messages, other.messages);
    move(outputs, other.outputs);
    move(kept, other.kept);
    move(numbers, other.numbers);
  }
};

}  // namespace mscclpp::torch_c10d
