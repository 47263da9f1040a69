// Random calls of all compiled collectives in a row, on CPU ranks, one rank per thread. All calls of an object share
// its regions of scratch. MSCCLPP_SOAK_CALLS sets the number of calls of each team.
#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "message_plan.hpp"
#include "mixed_calls.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

const std::vector<DataType> soakTypes{DataType::FLOAT32, DataType::BFLOAT16, DataType::UINT8, DataType::INT64};

/// Delays this rank for a random time: mostly not at all, else for up to `longest`.
class RandomDelay {
 public:
  RandomDelay(int rank, std::chrono::microseconds longest)
      : random_(static_cast<unsigned>(rank) + 1), longest_(static_cast<std::uint64_t>(longest.count())) {}
  void operator()() {
    if (random_() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random_() % longest_));
  }

 private:
  std::mt19937_64 random_;
  std::uint64_t longest_;
};

/// Makes the pointers of a call from offsets in the buffers.
CollectiveCall withPointers(CollectiveCall call, Bytes& from, Bytes* to) {
  const auto inputAt = reinterpret_cast<std::size_t>(call.input);
  const auto outputAt = reinterpret_cast<std::size_t>(call.output);
  if (call.input != nullptr) call.input = from.data() + inputAt;
  if (call.output != nullptr) call.output = (to == nullptr ? from : *to).data() + outputAt;
  return call;
}

}  // namespace

TEST_CASE("mixed calls of all collectives and algorithms back to back") {
  const std::uint64_t calls = soakCalls(detectsRaces ? 100 : 600);
  for (const int ranks : {2, 3, 4, 5}) {
    CAPTURE(ranks);
    runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
      const int rank = bootstrap->getRank();
      Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU, Collectives::Algorithms::All);
      MixedCalls mixed(collectives, ranks, soakTypes, static_cast<unsigned>(ranks));
      RandomDelay delay(rank, std::chrono::microseconds(1000));
      for (std::uint64_t i = 0; i < calls; ++i) {
        const CheckedCall checked = mixed.next(40'000);
        delay();
        INFO("call " << i << ": " << describe(checked));
        checkCollective(checked, rank, ranks, [&](const CollectiveCall& call, Bytes& from, Bytes* to) {
          collectives.run(withPointers(call, from, to));
        });
      }
      bootstrap->barrier();
    });
  }
}

TEST_CASE("exchanges between calls of other collectives") {
  const std::uint64_t rounds = soakCalls(600) / 60 + 1;
  for (const int ranks : {2, 3, 5}) {
    CAPTURE(ranks);
    runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
      const int rank = bootstrap->getRank();
      Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU, Collectives::Algorithms::All);
      MixedCalls mixed(collectives, ranks, {DataType::FLOAT32}, static_cast<unsigned>(ranks));
      for (std::uint64_t i = 0; i < rounds; ++i) {
        const MessagePlan plan(ranks, 20, {0, 100, 5000, 70'000}, 1 + i % 8, static_cast<unsigned>(i));
        const Bytes input = plan.inputOf(rank);
        Bytes output(plan.bytes(), poisonByte);
        plan.perform(collectives, rank, input.data(), output.data());
        const std::string difference = plan.differenceOf(rank, output);
        CHECK(difference == "");
        const CheckedCall checked = mixed.next(20'000);
        INFO(describe(checked));
        checkCollective(checked, rank, ranks, [&](const CollectiveCall& call, Bytes& from, Bytes* to) {
          collectives.run(withPointers(call, from, to));
        });
      }
      bootstrap->barrier();
    });
  }
}

TEST_CASE("every collective while the epochs pass 2^32") {
  // Epochs have 62 bits, since sentinel packets shift them by two, and a flag of zero is skipped. An object whose epoch
  // is set must be new: its slots would keep flags that 2^32 calls would have cleared.
  const std::uint64_t wrap = std::uint64_t{1} << 32;
  for (const std::uint64_t first : {wrap - 8, 2 * wrap - 3, (std::uint64_t{1} << 61) + 77}) {
    CAPTURE(first);
    runAsThreads(3, [&](std::shared_ptr<Bootstrap> bootstrap) {
      const int rank = bootstrap->getRank();
      Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU, Collectives::Algorithms::All);
      MixedCalls mixed(collectives, 3, soakTypes, 7);
      RandomDelay delay(rank, std::chrono::microseconds(300));
      collectives.setEpoch(first);
      for (int i = 0; i < 600; ++i) {
        // The first calls of each region are those of the all-reduce and so on, or mixed.
        const CollectiveType collective = i < 270 ? everyCollective[static_cast<std::size_t>(i) / 30]
                                                  : everyCollective[mixed.below(everyCollective.size())];
        const CheckedCall checked = mixed.next(collective, i % 3 == 0 ? 3000 : mixed.below(50));
        delay();
        INFO("call " << i << ": " << describe(checked));
        checkCollective(checked, rank, 3, [&](const CollectiveCall& call, Bytes& from, Bytes* to) {
          collectives.run(withPointers(call, from, to));
        });
      }
      bootstrap->barrier();
    });
  }
}
