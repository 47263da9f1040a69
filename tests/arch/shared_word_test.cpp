// A word through which one thread tells another how far it is, or threads take items: on the CPU.
#include "mscclpp/arch/shared_word.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <thread>
#include <vector>

using namespace mscclpp;

TEST_CASE("shared word: who has loaded a count sees what was written before it was stored") {
  constexpr std::uint32_t count = 1000;
  std::vector<std::uint32_t> items(count);
  std::uint32_t stored = 0;
  std::uint64_t sum = 0;
  std::thread reader([&] {
    for (std::uint32_t i = 0; i < count; ++i) {
      while (arch::loadSharedAcquire(&stored) <= i) std::this_thread::yield();
      sum += items[i];
    }
  });
  for (std::uint32_t i = 0; i < count; ++i) {
    items[i] = i + 1;
    arch::storeSharedRelease(&stored, i + 1);
  }
  reader.join();
  CHECK(sum == std::uint64_t{count} * (count + 1) / 2);
}

TEST_CASE("shared word: threads that add take different numbers") {
  constexpr std::uint32_t each = 1000;
  std::uint32_t next = 0;
  std::vector<std::uint32_t> taken(4 * each);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (std::uint32_t n = 0; n < each; ++n) ++taken[arch::fetchAddShared(&next, 1)];
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(next == 4 * each);
  CHECK(taken == std::vector<std::uint32_t>(4 * each, 1));
}
