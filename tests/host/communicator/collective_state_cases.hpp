// Cases of CollectiveState that run on CPUs and on GPUs: calls with the state of each rank, and errors of construction.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::test {

template <Protocol protocol>
using StateAllReduce = AllReduce<float, Sum, AllReduceConfig{.protocol = protocol, .pattern = Pattern::TwoShot}>;

/// Calls of one collective, whose results are compared. Device: where and how it runs; see collective_state_test.cpp.
template <class C, class Device>
void callWithState(Communicator& communicator, const Device& device) {
  const int rank = communicator.bootstrap()->getRank();
  const int ranks = communicator.bootstrap()->getNranks();
  const std::size_t maxCount = 1000;
  const CollectiveState<C> state(communicator, Device::type, maxCount, {.tilePacks = 16, .blocks = 1, .slots = 4});
  CHECK(state.maxCount() == maxCount);
  CHECK(state.scratch().windowBytes() == state.args(1).scratch.windowBytes());
  CHECK(state.args(7).count == 7);
  for (const std::size_t count : {maxCount, std::size_t{1}, std::size_t{0}, std::size_t{123}, maxCount}) {
    std::vector<float> input(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      input[i] = static_cast<float>(rank + 1) * static_cast<float>(i % 100);
      expected[i] = static_cast<float>(ranks * (ranks + 1) / 2) * static_cast<float>(i % 100);
    }
    CHECK(device.template run<C>(state.args(count), input) == expected);
    state.check();
  }
  communicator.bootstrap()->barrier();
}

/// Every collective, in turn: states do not disturb each other.
template <class Device>
void callWithStates(const std::shared_ptr<Bootstrap>& bootstrap, const Device& device) {
  Communicator communicator(bootstrap);
  callWithState<StateAllReduce<Protocol::LL16>>(communicator, device);
  callWithState<StateAllReduce<Protocol::Sentinel>>(communicator, device);
  callWithState<StateAllReduce<Protocol::Simple>>(communicator, device);
}

/// Errors of construction, and of args().
template <class Device>
void rejectWrongStates(const std::shared_ptr<Bootstrap>& bootstrap) {
  using C = StateAllReduce<Protocol::LL16>;
  using Pipeline = StateAllReduce<Protocol::Simple>;
  Communicator communicator(bootstrap);
  const int rank = bootstrap->getRank();
  const auto messageOf = [](const auto& construct) -> std::string {
    try {
      construct();
    } catch (const Error& error) {
      return std::string(error.getErrorCode() == ErrorCode::InvalidUsage ? "" : "not invalid usage: ") + error.what();
    }
    return "nothing was thrown";
  };
  const auto contains = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  contains(messageOf([&] { CollectiveState<C>(communicator, Device::type, rank == 1 ? 200 : 100); }),
           "CollectiveState: the maxCount is 100 on rank 0, but 200 on rank 1");
  contains(messageOf([&] {
             if (rank == 1) {
               CollectiveState<StateAllReduce<Protocol::LL8>>(communicator, Device::type, 100);
             } else {
               CollectiveState<C>(communicator, Device::type, 100);
             }
           }),
           "the type of collective, as a number, is ");
  contains(messageOf([&] { CollectiveState<Pipeline>(communicator, Device::type, 100, {.blocks = 1 + rank}); }),
           "the PipelineShape::blocks is 1 on rank 0, but 2 on rank 1");
  // All ranks are wrong, and each says why.
  contains(messageOf([&] { CollectiveState<Pipeline>(communicator, Device::type, 100, {.slots = 6}); }),
           "CollectiveState: the collective does not accept calls with PipelineShape::slots = 6");
  contains(messageOf([&] { CollectiveState<Pipeline>(communicator, Device::type, 100, {.tilePacks = 12}); }),
           "PipelineShape has 12 packs per tile");
  contains(messageOf([&] { CollectiveState<C>(communicator, Device::type, static_cast<std::size_t>(-1)); }),
           "was it a negative number?");
  contains(messageOf([&] { CollectiveState<C>(communicator, DeviceType::Unknown, 100); }), "the device type must be");
  contains(messageOf([&] {
             CollectiveState<AllReduce<float, Sum, AllReduceConfig{.ranks = 8}>>(communicator, Device::type, 100);
           }),
           "configured for 8 ranks, the communicator has");
  // One rank is wrong: the others name it.
  const std::string message =
      messageOf([&] { CollectiveState<Pipeline>(communicator, Device::type, 100, {.slots = rank == 1 ? 6 : 8}); });
  contains(message, rank == 1 ? "PipelineShape::slots = 6" : "rank 1 failed to state what the collective needs");

  const CollectiveState<C> state(communicator, Device::type, 100);
  contains(messageOf([&] { state.args(900); }),
           "a call with 900 elements does not fit in the scratch, which is for 100");
  CHECK(state.args(100).count == 100);
  // A pipeline takes messages of any size.
  const CollectiveState<Pipeline> pipeline(communicator, Device::type, 100);
  CHECK(pipeline.args(1'000'000).count == 1'000'000);
  // A monitor that is shared.
  const auto monitor = std::make_shared<WaitMonitor>(communicator, Device::type);
  const CollectiveState<C> sharing(communicator, Device::type, 100, {}, monitor);
  CHECK(&sharing.monitor() == monitor.get());
  monitor->abort("enough");
  CHECK_THROWS_WITH(sharing.check(), doctest::Contains("enough"));
  state.check();
  bootstrap->barrier();
}

}  // namespace mscclpp::test
