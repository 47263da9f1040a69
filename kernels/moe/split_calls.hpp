// The order of a moe::Buffer's calls, which may be split: sent, and received later.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "mscclpp/kernels/moe_buffer.hpp"

namespace mscclpp::moe::detail {

struct DispatchArrays {
  Tokens tokens;
  ExpertBatch batch;
  friend bool operator==(const DispatchArrays&, const DispatchArrays&) = default;
};
struct CombineArrays {
  const void* results;
  void* output;
  friend bool operator==(const CombineArrays&, const CombineArrays&) = default;
};
/// What a call is given: both of its parts the same.
struct CallArguments {
  const void* handle;        ///< any address of the handle's own
  const void* handleMemory;  ///< what the handle is in, which several handles may share
  std::variant<DispatchArrays, CombineArrays> arrays;
  friend bool operator==(const CallArguments&, const CallArguments&) = default;
};

/// Knows the calls that have been sent and not received: up to one of each kind (dispatch, combine) and form, since a
/// second one would use the same slots. Nothing else is known of a call; the caller makes it in between:
///
///   calls.requireNext(form, arguments, phase);
///   ...  // enqueue the call
///   const std::uint64_t number = calls.record(form, arguments, phase);
class SplitCalls {
 public:
  /// Throws Error(InvalidUsage) unless the call may come next. Phase::Receive: such a call has been sent, with the same
  /// arguments; otherwise none of its kind and form has been sent and not received. In either case no other call that
  /// has been sent and not received uses the memory of the handle.
  void requireNext(Form form, const CallArguments& arguments, Phase phase) const;
  /// The call has been made. Returns its number, which isSent() takes, with Phase::Send; else 0.
  std::uint64_t record(Form form, const CallArguments& arguments, Phase phase);
  /// Whether the call with this number still has to be received.
  bool isSent(std::uint64_t number) const;

 private:
  struct Sent {
    std::uint64_t number = 0;  ///< 0: none
    CallArguments arguments{};
  };
  static std::size_t indexOf(Form form, const CallArguments& arguments);

  std::array<Sent, 4> sent_;  ///< by kind and form
  std::uint64_t calls_ = 0;   ///< that were sent without being received at once
};

}  // namespace mscclpp::moe::detail
