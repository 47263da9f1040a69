// Look-ups of registered GPU memory, in particular after it was freed. The ranks are threads.
#include <doctest/doctest.h>

#include <memory>
#include <optional>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/communicator/registered_buffers.hpp"
#include "mscclpp/host/cuda/gpu_buffer.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

TEST_CASE("registered GPU buffers are found, and an error once their memory was freed") {
  runAsThreads(2, [](std::shared_ptr<Bootstrap> bootstrap) {
    int gpus = 0;
    MSCCLPP_CUDATHROW(cudaGetDeviceCount(&gpus));
    MSCCLPP_CUDATHROW(cudaSetDevice(bootstrap->getRank() % gpus));
    Communicator communicator(bootstrap);
    RegisteredBuffers buffers;
    auto memory = std::optional<GpuBuffer<char>>(std::in_place, 4096);
    char* data = memory->data();
    auto handle = std::optional(buffers.add(RegisteredBuffer(communicator, data, 4096)));
    const auto match = buffers.find(data + 40, 4056);
    REQUIRE(match.has_value());
    CHECK(match->offset == 40);
    CHECK(match->buffer == &handle->buffer());
    CHECK_FALSE(buffers.find(data + 40, 4057).has_value());
    bootstrap->barrier();

    memory.reset();
    const auto freed = doctest::Contains("has been freed; end its registration");
    CHECK_THROWS_WITH_AS(buffers.find(data, 100), freed, Error);
    // Another allocation, at the same address or not, is found by its own registration only.
    memory.emplace(4096);
    {
      const auto next = buffers.add(RegisteredBuffer(communicator, memory->data(), 4096));
      const auto found = buffers.find(memory->data(), 4096);
      REQUIRE(found.has_value());
      CHECK(found->buffer == &next.buffer());
      bootstrap->barrier();
    }
    CHECK_THROWS_WITH_AS(buffers.find(data, 100), freed, Error);
    handle.reset();
    CHECK_FALSE(buffers.find(data, 100).has_value());
    bootstrap->barrier();
  });
}
