#include "kernels/moe/split_calls.hpp"

#include <algorithm>
#include <string>

#include "kernels/moe/require.hpp"

namespace mscclpp::moe::detail {

namespace {

std::string kindOf(const CallArguments& arguments) {
  return std::holds_alternative<DispatchArrays>(arguments.arrays) ? "dispatch" : "combine";
}

}  // namespace

std::size_t SplitCalls::indexOf(Form form, const CallArguments& arguments) {
  return 2 * arguments.arrays.index() + static_cast<std::size_t>(form);
}

void SplitCalls::requireNext(Form form, const CallArguments& arguments, Phase phase) const {
  const std::string kind = kindOf(arguments);
  const Sent& own = sent_[indexOf(form, arguments)];
  if (phase == Phase::Receive) {
    require(own.number != 0, "there is no " + kind + " to receive: make the call with Phase::Send first");
    require(own.arguments == arguments,
            "the " + kind + " was sent with other arguments: receive it with the same ones");
  } else {
    require(own.number == 0, "the " + kind +
                                 " before has been sent and not received: call its hook, or make the call with "
                                 "Phase::Receive, before the next one of this form; if its hook is lost, make the "
                                 "Buffer again, on all ranks");
  }
  for (const Sent& each : sent_) {
    if (each.number == 0 || (phase == Phase::Receive && &each == &own)) continue;
    require(each.arguments.handleMemory != arguments.handleMemory,
            "a " + kindOf(each.arguments) + " with this handle has been sent and not received: call its hook first");
  }
}

std::uint64_t SplitCalls::record(Form form, const CallArguments& arguments, Phase phase) {
  Sent& own = sent_[indexOf(form, arguments)];
  own = phase == Phase::Send ? Sent{++calls_, arguments} : Sent{};
  return own.number;
}

bool SplitCalls::isSent(std::uint64_t number) const {
  return std::any_of(sent_.begin(), sent_.end(),
                     [&](const Sent& sent) { return sent.number != 0 && sent.number == number; });
}

}  // namespace mscclpp::moe::detail
