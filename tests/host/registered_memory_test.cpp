#include "mscclpp/host/registered_memory.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "mscclpp/host/context.hpp"
#include "mscclpp/host/endpoint.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/host_buffer.hpp"
#include "mscclpp/host/semaphore.hpp"

using namespace mscclpp;

namespace {

ErrorCode codeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.getErrorCode();
  }
  return ErrorCode::InternalError;  // nothing was thrown
}

// Each prefix, each longer form and each changed header is refused; random damage never crashes. A damaged byte may
// also leave a form that is valid and means something else, which only its use can tell.
template <typename Deserialize>
void attack(const std::vector<char>& good, const Deserialize& deserialize) {
  deserialize(good);
  for (std::size_t length = 0; length < good.size(); ++length) {
    const std::vector<char> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
    CHECK(codeOf([&] { deserialize(cut); }) == ErrorCode::InvalidUsage);
  }
  std::vector<char> longer = good;
  longer.push_back(0);
  CHECK(codeOf([&] { deserialize(longer); }) == ErrorCode::InvalidUsage);
  for (std::size_t header = 0; header < 16; ++header) {
    auto changed = good;
    changed[header] = static_cast<char>(changed[header] + 1);
    CHECK(codeOf([&] { deserialize(changed); }) == ErrorCode::InvalidUsage);
  }
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    std::vector<char> noise(random() % 300);
    for (auto& byte : noise) byte = static_cast<char>(random());
    CHECK(codeOf([&] { deserialize(noise); }) == ErrorCode::InvalidUsage);
  }
}

}  // namespace

TEST_CASE("a damaged serialised form is refused") {
  auto context = Context::create();
  HostBuffer buffer(4096);
  const auto memory = context->registerMemory(buffer.data(), 100, Transport::SharedMemory);
  attack(memory.serialize(), [](const auto& bytes) { RegisteredMemory::deserialize(bytes); });

  const auto endpoint = context->createEndpoint(Transport::SharedMemory);
  attack(endpoint.serialize(), [](const auto& bytes) { Endpoint::deserialize(bytes); });

  const auto connection = context->connect(endpoint, endpoint);
  const SemaphoreStub stub(connection);
  attack(stub.serialize(), [](const auto& bytes) { SemaphoreStub::deserialize(bytes); });

  CHECK(codeOf([&] { RegisteredMemory::deserialize(endpoint.serialize()); }) == ErrorCode::InvalidUsage);
  CHECK(codeOf([&] { Endpoint::deserialize(memory.serialize()); }) == ErrorCode::InvalidUsage);
}

TEST_CASE("fields out of range are refused") {
  auto context = Context::create();
  HostBuffer buffer(4096);
  const auto good = context->registerMemory(buffer.data(), 100, Transport::SharedMemory).serialize();
  // Header (16), host (8), process (16), address (8), size (8), transports (4), count of handles (4).
  const auto with = [&](std::size_t offset, auto value) {
    auto changed = good;
    std::memcpy(changed.data() + offset, &value, sizeof(value));
    return changed;
  };
  const auto refused = [&](const std::vector<char>& bytes) {
    return codeOf([&] { RegisteredMemory::deserialize(bytes); }) == ErrorCode::InvalidUsage;
  };
  CHECK(refused(with(48, std::uint64_t{0})));
  CHECK(refused(with(48, UINT64_MAX)));
  CHECK(refused(with(56, UINT32_MAX)));
  CHECK(refused(with(60, UINT32_MAX)));
  CHECK(refused(with(60, std::uint32_t{0})));
  // Of another process of this host, and larger than its allocation: refused before anything is mapped.
  auto foreign = with(48, std::uint64_t{5000});
  foreign[24] = static_cast<char>(foreign[24] + 1);
  CHECK(refused(foreign));
  // On another host nothing can be mapped.
  auto elsewhere = with(16, std::uint64_t{1});
  elsewhere[24] = static_cast<char>(elsewhere[24] + 1);
  CHECK(refused(elsewhere));
}

TEST_CASE("each transport over a network has its handle, and no handle is of another one") {
  auto context = Context::create();
  HostBuffer buffer(4096);
  const auto memory = context->registerMemory(buffer.data(), 100, Transport::SharedMemory | Transport::Ethernet);
  const auto good = memory.serialize();
  attack(good, [](const auto& bytes) { RegisteredMemory::deserialize(bytes); });
  // The transports are at 56, the handles from 64 on, each with its transport behind four bytes.
  const auto refused = [&](std::size_t offset, std::uint32_t value) {
    auto changed = good;
    std::memcpy(changed.data() + offset, &value, sizeof(value));
    return codeOf([&] { RegisteredMemory::deserialize(changed); }) == ErrorCode::InvalidUsage;
  };
  const auto bitOf = [](Transport transport) { return std::uint32_t{1} << static_cast<int>(transport); };
  const std::uint32_t flags = bitOf(Transport::SharedMemory) | bitOf(Transport::Ethernet);
  CHECK_FALSE(refused(56, flags));
  CHECK(refused(56, flags | bitOf(Transport::IB3)));
  CHECK(refused(56, bitOf(Transport::Ethernet)));
  CHECK(refused(56, bitOf(Transport::SharedMemory)));
  for (const auto transport : {Transport::IB0, Transport::Unknown, Transport::NumTransports}) {
    CHECK(refused(68, static_cast<std::uint32_t>(transport)));
  }
  CHECK(refused(68, UINT32_MAX));
  // Whoever finds no handle for Ethernet is told now, not at the first write.
  CHECK(refused(68 + (good.size() - 64) / 2, static_cast<std::uint32_t>(Transport::SharedMemory)));
}

TEST_CASE("an empty registration says so") {
  const RegisteredMemory empty;
  CHECK(empty.data() == nullptr);
  CHECK(empty.size() == 0);
  CHECK_THROWS_AS(empty.serialize(), Error);
  CHECK_THROWS_AS(empty.transports(), Error);
  CHECK_THROWS_AS(empty.originalDataPtr(), Error);
}

TEST_CASE("what is read back is passed on unchanged") {
  auto context = Context::create();
  HostBuffer buffer(4096);
  const auto memory = context->registerMemory(static_cast<char*>(buffer.data()) + 8, 100, Transport::SharedMemory);
  const auto remote = RegisteredMemory::deserialize(memory.serialize());
  CHECK(remote.serialize() == memory.serialize());
  CHECK(remote.transports() == TransportFlags(Transport::SharedMemory));
  CHECK(remote.size() == 100);
}

TEST_CASE("memory of this process that was freed is not handed out again") {
  auto context = Context::create();
  std::vector<char> serialized;
  for (int i = 0; i < 2; ++i) {  // the second buffer as a rule lies where the first was
    HostBuffer buffer(4096);
    if (i == 0) serialized = context->registerMemory(buffer.data(), 4096, Transport::SharedMemory).serialize();
    if (i == 1) CHECK_THROWS_WITH_AS(RegisteredMemory::deserialize(serialized), doctest::Contains("freed"), Error);
  }
  CHECK_THROWS_WITH_AS(RegisteredMemory::deserialize(serialized), doctest::Contains("freed"), Error);
}
