#include "mscclpp/host/transport/registered_memory.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "host/memory/fd_server.hpp"
#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/transport/context.hpp"
#include "mscclpp/host/transport/endpoint.hpp"
#include "tests/host/ranks.hpp"

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

// Each prefix, each longer form and each changed header is rejected; random corruption never crashes. A corrupted byte
// may also leave a valid form with another meaning, which only its use can detect.
template <typename Deserialize>
void checkMalformedInput(const std::vector<char>& good, const Deserialize& deserialize) {
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

TEST_CASE("a corrupted serialised form is rejected") {
  auto context = Context::create();
  HostBuffer buffer(4096);
  const auto memory = context->registerMemory(buffer.data(), 100, Transport::SharedMemory);
  checkMalformedInput(memory.serialize(), [](const auto& bytes) { RegisteredMemory::deserialize(bytes); });

  const auto endpoint = context->createEndpoint(Transport::SharedMemory);
  checkMalformedInput(endpoint.serialize(), [](const auto& bytes) { Endpoint::deserialize(bytes); });

  const auto connection = context->connect(endpoint, endpoint);
  const SemaphoreStub stub(connection);
  checkMalformedInput(stub.serialize(), [](const auto& bytes) { SemaphoreStub::deserialize(bytes); });

  CHECK(codeOf([&] { RegisteredMemory::deserialize(endpoint.serialize()); }) == ErrorCode::InvalidUsage);
  CHECK(codeOf([&] { Endpoint::deserialize(memory.serialize()); }) == ErrorCode::InvalidUsage);
}

TEST_CASE("fields out of range are rejected") {
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
  // Of another process of this host, and larger than its allocation: rejected before anything is mapped.
  auto foreign = with(48, std::uint64_t{5000});
  foreign[24] = static_cast<char>(foreign[24] + 1);
  CHECK(refused(foreign));
  // A kind of handle that its transport does not have.
  foreign = with(64, std::uint32_t{3});
  foreign[24] = static_cast<char>(foreign[24] + 1);
  CHECK(refused(foreign));
  // On another host nothing can be mapped.
  auto elsewhere = with(16, std::uint64_t{1});
  elsewhere[24] = static_cast<char>(elsewhere[24] + 1);
  CHECK(refused(elsewhere));
}

TEST_CASE("each network transport has its handle, and no handle belongs to another transport") {
  auto context = Context::create();
  HostBuffer buffer(4096);
  const auto memory = context->registerMemory(buffer.data(), 100, Transport::SharedMemory | Transport::Ethernet);
  const auto good = memory.serialize();
  checkMalformedInput(good, [](const auto& bytes) { RegisteredMemory::deserialize(bytes); });
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
  // A missing handle for Ethernet is an error here, not at the first write.
  CHECK(refused(68 + (good.size() - 64 - 16) / 2, static_cast<std::uint32_t>(Transport::SharedMemory)));
}

TEST_CASE("a peer that cannot map the memory passes on the whole registration") {
  auto context = Context::create();
  HostBuffer buffer(4096);
  auto bytes = context->registerMemory(buffer.data(), 100, Transport::SharedMemory | Transport::Ethernet).serialize();
  bytes[16] = static_cast<char>(bytes[16] + 1);  // of another host
  bytes[24] = static_cast<char>(bytes[24] + 1);  // and so of another process
  const auto remote = RegisteredMemory::deserialize(bytes);
  CHECK(remote.data() == nullptr);
  CHECK(remote.transports() == TransportFlags(Transport::Ethernet));
  CHECK(remote.serialize() == bytes);
}

TEST_CASE("a registration of this process is found by its id, whatever address the bytes hold") {
  auto context = Context::create();
  std::vector<char> memory(4096);
  std::vector<char> other(4096);
  const auto registered = context->registerMemory(memory.data(), 100, NoTransports);
  const auto good = registered.serialize();
  CHECK(RegisteredMemory::deserialize(good).data() == memory.data());
  // Header (16), host (8), process (16), address (8), size (8); the id is at the end.
  auto elsewhere = good;
  const auto address = reinterpret_cast<std::uint64_t>(other.data());
  std::memcpy(elsewhere.data() + 40, &address, sizeof(address));
  CHECK(codeOf([&] { RegisteredMemory::deserialize(elsewhere); }) == ErrorCode::InvalidUsage);
  auto longer = good;
  const std::uint64_t size = 4096;
  std::memcpy(longer.data() + 48, &size, sizeof(size));
  CHECK(codeOf([&] { RegisteredMemory::deserialize(longer); }) == ErrorCode::InvalidUsage);
  auto unknown = good;
  unknown.back() = static_cast<char>(unknown.back() ^ 1);
  CHECK(codeOf([&] { RegisteredMemory::deserialize(unknown); }) == ErrorCode::RemoteError);
}

TEST_CASE("memory of a peer is mapped only if it is sealed and has the announced size") {
  // As another process of this host would register it.
  const auto server = detail::FdServer::create();
  const auto map = [&](std::size_t bytes, std::size_t announced, int seals) {
    const detail::UniqueFd fd(::memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0);
    if (seals != 0) REQUIRE(::fcntl(fd.get(), F_ADD_SEALS, seals) == 0);
    const auto offer = server->registerFd(fd.get(), nullptr);
    detail::MemoryHandle handle{};
    handle.kind = detail::HandleKind::SharedMemoryFd;
    handle.transport = Transport::SharedMemory;
    handle.allocationBytes = announced;
    handle.allocation = detail::randomId();
    handle.setAccess(offer->key());
    detail::MemoryRegistration memory;
    memory.hostHash = detail::hostHash();
    memory.process = detail::randomId();
    memory.address = 4096;
    memory.size = announced;
    memory.handles.push_back(handle);
    return codeOf([&] { RegisteredMemory::deserialize(memory.serialize()); });
  };
  constexpr int sealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  CHECK(map(8192, 8192, sealed) == ErrorCode::InternalError);  // nothing was thrown
  CHECK(map(8192, 8192, 0) == ErrorCode::RemoteError);
  CHECK(map(8192, 8192, F_SEAL_GROW) == ErrorCode::RemoteError);
  CHECK(map(4096, 8192, sealed) == ErrorCode::RemoteError);
  CHECK(map(4096, std::size_t{1} << 40, sealed) == ErrorCode::RemoteError);
  CHECK(map(8192, 4096, sealed) == ErrorCode::RemoteError);
}

namespace {

// A process that registers memory and waits to be killed.
class MemoryOwner {
 public:
  MemoryOwner() {
    std::array<int, 2> ends{};
    REQUIRE(::pipe(ends.data()) == 0);
    process_ = std::make_unique<test::ChildProcess>([&] {
      auto context = Context::create();
      HostBuffer buffer(4096);
      const auto memory = context->registerMemory(buffer.data(), 100, Transport::SharedMemory);
      const auto bytes = memory.serialize();
      const auto size = static_cast<ssize_t>(bytes.size());
      if (::write(ends[1], bytes.data(), bytes.size()) != size) throw std::runtime_error("write of a registration");
      while (true) ::pause();
    });
    std::vector<char> bytes(4096);
    const ssize_t count = ::read(ends[0], bytes.data(), bytes.size());
    for (const int end : ends) ::close(end);
    REQUIRE(count > 0);
    bytes.resize(static_cast<std::size_t>(count));
    registration_ = std::move(bytes);
  }

  const test::ChildProcess& process() const { return *process_; }
  const std::vector<char>& registration() const { return registration_; }

 private:
  std::unique_ptr<test::ChildProcess> process_;
  std::vector<char> registration_;
};

}  // namespace

TEST_CASE("a stopped owner delays no import of another owner's memory") {
  using namespace std::chrono_literals;
  const MemoryOwner stopped;
  const MemoryOwner healthy;
  stopped.process().stop();

  detail::Event cancelled;
  std::atomic<bool> started{false};
  std::atomic<bool> ended{false};
  ErrorCode outcome{};
  std::thread blocked([&] {
    started = true;
    outcome = codeOf([&] {
      detail::deserializeMemory(stopped.registration(), detail::Deadline::after(20s).orWhenCancelled(cancelled));
    });
    ended = true;
  });
  while (!started) std::this_thread::yield();
  // Each import maps the memory anew. The first ones may precede that of the other thread.
  for (int i = 0; i < 500; ++i) {
    CHECK(detail::deserializeMemory(healthy.registration(), detail::Deadline::after(20s)).size() == 100);
  }
  CHECK_FALSE(ended);
  // A second import of the memory that cannot be had ends at its own deadline.
  CHECK(codeOf([&] { detail::deserializeMemory(stopped.registration(), detail::Deadline::after(100ms)); }) ==
        ErrorCode::Timeout);
  CHECK_FALSE(ended);
  cancelled.set();
  blocked.join();
  CHECK(outcome == ErrorCode::Timeout);

  stopped.process().kill(SIGCONT);
  CHECK(detail::deserializeMemory(stopped.registration(), detail::Deadline::after(20s)).size() == 100);
}

TEST_CASE("an import that waits for another thread's takes over when that one fails") {
  detail::MemoryHandle handle{};
  handle.kind = detail::HandleKind::SharedMemoryFd;
  handle.allocationBytes = 4096;
  handle.allocation = detail::randomId();
  auto& table = detail::MappingTable::instance();
  const auto deadline = detail::Deadline::after(std::chrono::seconds(20));
  constexpr int threads = 8;
  std::atomic<int> calls{0};
  std::atomic<int> finished{0};
  const auto outcomes = test::onThreads(threads, [&](int) {
    const auto mapping = table.findOrCreate(handle, -1, deadline, [&]() -> std::shared_ptr<detail::Mapping> {
      if (++calls == 1) throw std::runtime_error("the owner refused");
      return std::make_shared<detail::Mapping>(4096);
    });
    // All that succeed share one mapping: none drops it before every thread has got it.
    ++finished;
    while (finished < threads - 1) std::this_thread::yield();
  });
  CHECK(calls == 2);
  CHECK(std::count(outcomes.begin(), outcomes.end(), "the owner refused") == 1);
  CHECK(std::count(outcomes.begin(), outcomes.end(), "") == threads - 1);
}

TEST_CASE("use of an empty registration is an error") {
  const RegisteredMemory empty;
  CHECK(empty.data() == nullptr);
  CHECK(empty.size() == 0);
  CHECK_THROWS_AS(empty.serialize(), Error);
  CHECK_THROWS_AS(empty.transports(), Error);
  CHECK_THROWS_AS(empty.originalDataPtr(), Error);
}

TEST_CASE("a deserialised registration is serialised unchanged") {
  auto context = Context::create();
  HostBuffer buffer(4096);
  const auto memory = context->registerMemory(static_cast<char*>(buffer.data()) + 8, 100, Transport::SharedMemory);
  const auto remote = RegisteredMemory::deserialize(memory.serialize());
  CHECK(remote.serialize() == memory.serialize());
  CHECK(remote.transports() == TransportFlags(Transport::SharedMemory));
  CHECK(remote.size() == 100);
}

TEST_CASE("a registration of freed memory of this process is rejected") {
  auto context = Context::create();
  std::vector<char> serialized;
  for (int i = 0; i < 2; ++i) {  // the second buffer usually has the address of the first
    HostBuffer buffer(4096);
    if (i == 0) serialized = context->registerMemory(buffer.data(), 4096, Transport::SharedMemory).serialize();
    if (i == 1) CHECK_THROWS_WITH_AS(RegisteredMemory::deserialize(serialized), doctest::Contains("freed"), Error);
  }
  CHECK_THROWS_WITH_AS(RegisteredMemory::deserialize(serialized), doctest::Contains("freed"), Error);
}
