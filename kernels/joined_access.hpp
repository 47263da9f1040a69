// The source and the sink of a call that performs several.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "joined_reductions.hpp"
#include "kernel_call.hpp"
#include "mscclpp/collective/joined_calls.hpp"
#include "scaled_source.hpp"

namespace mscclpp::kernels {

namespace detail {

/// Access: JoinedCallSource or JoinedCallSink. accessOf(call): that of a call.
template <class T, template <class, class, int> class Joined, class AccessOf>
auto joinedAccess(const KernelCall& call, const AccessOf& accessOf) {
  constexpr auto most = static_cast<int>(maxJoinedReductions);
  const CollectiveCall none;
  std::array<std::size_t, maxJoinedReductions> counts{};
  for (std::size_t c = 0; c < call.joined.size(); ++c) counts[c] = call.joined[c].count;
  auto joined = [&]<std::size_t... c>(std::index_sequence<c...>) {
    return Joined<T, decltype(accessOf(none)), most>{
        {{accessOf(c < call.joined.size() ? call.joined[c] : none)...}, {}, {}, 0}};
  }
  (std::make_index_sequence<maxJoinedReductions>());
  joined.setCounts(counts.data(), static_cast<int>(call.joined.size()));
  return joined;
}

}  // namespace detail

/// The inputs of the joined calls, each multiplied by its factor, if it has one.
template <class T>
auto joinedSource(const KernelCall& call) {
  return detail::joinedAccess<T, JoinedCallSource>(
      call, [](const CollectiveCall& one) { return scaledSource<T>(one.input, one.reduction); });
}
template <class T>
auto joinedSink(const KernelCall& call) {
  return detail::joinedAccess<T, JoinedCallSink>(
      call, [](const CollectiveCall& one) { return ArraySink<T>(static_cast<T*>(one.output)); });
}

}  // namespace mscclpp::kernels
