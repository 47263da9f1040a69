#include "mscclpp/host/communicator/registered_buffer.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "tests/host/process_resources.hpp"
#include "tests/host/spawned_ranks.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

// How many mappings of buffers with this name the process has: its own and those of its peers.
int mappingsOf(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:" + name) != std::string::npos) ++count;
  }
  return count;
}

constexpr std::size_t slot = 24;
constexpr char poison = 0x5a;

char valueOf(int writer, int owner, int round) {
  return static_cast<char>(1 + writer + 7 * owner + 31 * round);
}

// A buffer for one slot per rank, at an offset that differs over the ranks, and what surrounds it.
class OwnBuffer {
 public:
  OwnBuffer(int rank, int nRanks, const std::string& name)
      : nRanks_(nRanks), offset_(static_cast<std::size_t>(100 * rank + rank)), memory_(10000, name) {
    std::fill_n(begin(), memory_.bytes(), poison);
  }
  char* data() const { return begin() + offset_; }
  std::size_t bytes() const { return static_cast<std::size_t>(nRanks_) * slot; }
  /// Every rank has written its slot, and nobody anything else.
  bool isWritten(int rank, int round) const {
    std::vector<char> expected(memory_.bytes(), poison);
    for (int writer = 0; writer < nRanks_; ++writer) {
      const auto first =
          expected.begin() + static_cast<std::ptrdiff_t>(offset_ + static_cast<std::size_t>(writer) * slot);
      std::fill_n(first, slot, valueOf(writer, rank, round));
    }
    return std::equal(expected.begin(), expected.end(), begin());
  }

 private:
  char* begin() const { return static_cast<char*>(memory_.data()); }

  int nRanks_;
  std::size_t offset_;
  HostBuffer memory_;
};

// Each rank writes its slot of every rank's buffer through the window.
template <class Window>
void writeSlots(Bootstrap& bootstrap, const Window& window, int round) {
  bootstrap.barrier();
  const int rank = bootstrap.getRank();
  for (int owner = 0; owner < bootstrap.getNranks(); ++owner) {
    std::byte* to = window.at(owner, static_cast<std::size_t>(rank) * slot);
    std::fill_n(reinterpret_cast<char*>(to), slot, valueOf(rank, owner, round));
  }
  bootstrap.barrier();
}

void writeEverywhere(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int nRanks = bootstrap->getNranks();
  Communicator communicator(bootstrap);
  const OwnBuffer own(rank, nRanks, "written-buffer");
  RegisteredBuffer buffer(communicator, own.data(), own.bytes());
  CHECK(buffer.rank() == rank);
  CHECK(buffer.nRanks() == nRanks);
  CHECK(buffer.local() == own.data());
  CHECK(buffer.peer(rank) == own.data());
  CHECK(buffer.bytes() == own.bytes());
  CHECK(buffer.isAllocated());
  buffer.requireEqualBytes();
  for (int peer = 0; peer < nRanks; ++peer) {
    CHECK(buffer.bytes(peer) == own.bytes());
    CHECK(buffer.window().at(peer) == buffer.peer(peer));
    CHECK(buffer.memory(peer).data() == buffer.peer(peer));
  }
  CHECK_THROWS_AS(buffer.peer(-1), Error);
  CHECK_THROWS_AS(buffer.bytes(nRanks), Error);
  CHECK_THROWS_WITH_AS(buffer.window<9>(), doctest::Contains("RegisteredBuffer: a window of 9 ranks"), Error);
  writeSlots(*bootstrap, buffer.window(), 0);
  CHECK(own.isWritten(rank, 0));
  const RegisteredBuffer moved = std::move(buffer);
  writeSlots(*bootstrap, moved.window(), 1);
  CHECK(own.isWritten(rank, 1));
  bootstrap->barrier();
}

// Ranks are processes: threads of one have nothing to map.
void mapEachAllocationOnce(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int nRanks = bootstrap->getNranks();
  Communicator communicator(bootstrap);
  const HostBuffer memory(std::size_t{1} << 16, "shared-once");
  char* data = static_cast<char*>(memory.data());
  CHECK(mappingsOf("shared-once") == 1);
  const std::size_t first = 64 * static_cast<std::size_t>(rank);
  std::optional<RegisteredBuffer> whole(std::in_place, communicator, data, memory.bytes());
  CHECK(mappingsOf("shared-once") == nRanks);
  const std::size_t descriptors = openDescriptors();
  {
    const RegisteredBuffer part(communicator, data + first, 64);
    const RegisteredBuffer same(communicator, data + first, 64);
    // Another communicator has a context of its own, which exports the allocation too; the mapping is shared.
    Communicator second(bootstrap);
    const RegisteredBuffer other(second, data + first, 128);
    CHECK(mappingsOf("shared-once") == nRanks);
    for (int peer = 0; peer < nRanks; ++peer) {
      char* base = static_cast<char*>(whole->peer(peer));
      CHECK(part.peer(peer) == base + 64 * peer);
      CHECK(same.peer(peer) == base + 64 * peer);
      CHECK(other.peer(peer) == base + 64 * peer);
    }
    whole.reset();
    bootstrap->barrier();
    CHECK(mappingsOf("shared-once") == nRanks);
    static_cast<char*>(part.peer((rank + 1) % nRanks))[1] = 42;
    bootstrap->barrier();
    CHECK(data[first + 1] == 42);
    bootstrap->barrier();
  }
  CHECK(mappingsOf("shared-once") == 1);
  bootstrap->barrier();
  CHECK(openDescriptors() < descriptors);
}

// A mapping of a buffer that was freed is never used for the next one at the same address.
void reuseAddresses(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  Communicator communicator(bootstrap);
  std::vector<RegisteredBuffer> kept;
  for (int round = 0; round < 6; ++round) {
    const OwnBuffer own(rank, bootstrap->getNranks(), "reused-address");
    RegisteredBuffer buffer(communicator, own.data(), own.bytes());
    writeSlots(*bootstrap, buffer.window(), round);
    CHECK(own.isWritten(rank, round));
    bootstrap->barrier();
    // Some ranks keep mappings of buffers that others have freed.
    if ((round + rank) % 2 == 0) kept.push_back(std::move(buffer));
  }
  bootstrap->barrier();
}

void differInSize(std::shared_ptr<Bootstrap> bootstrap) {
  const int rank = bootstrap->getRank();
  const int nRanks = bootstrap->getNranks();
  Communicator communicator(bootstrap);
  const HostBuffer memory(4096);
  // Rank 0 has no buffer.
  const RegisteredBuffer buffer(communicator, rank == 0 ? nullptr : memory.data(), 10 * static_cast<std::size_t>(rank));
  for (int peer = 0; peer < nRanks; ++peer) {
    CHECK(buffer.bytes(peer) == 10 * static_cast<std::size_t>(peer));
    CHECK((buffer.peer(peer) == nullptr) == (peer == 0));
    CHECK((buffer.window().at(peer) == nullptr) == (peer == 0));
  }
  CHECK((buffer.local() == nullptr) == (rank == 0));
  CHECK(buffer.isAllocated());
  CHECK_THROWS_WITH_AS(buffer.requireEqualBytes(),
                       doctest::Contains("rank 0 has registered 0 bytes, but rank 1 10; every rank"), Error);
  RegisteredBuffer(communicator, nullptr, 0).requireEqualBytes();
  bootstrap->barrier();
}

// `call` throws on rank 1 what is its own fault, and on the others an error that names it.
template <class Call>
void expectFaultOfRank1(const Bootstrap& bootstrap, const std::string& text, const Call& call) {
  try {
    call();
    CHECK_MESSAGE(false, "nothing was thrown where \"" << text << "\" was expected");
  } catch (const Error& error) {
    const std::string message = error.what();
    CAPTURE(message);
    CHECK(message.find(text) != std::string::npos);
    const bool isMine = bootstrap.getRank() == 1;
    CHECK(error.getErrorCode() == (isMine ? ErrorCode::InvalidUsage : ErrorCode::RemoteError));
    CHECK((message.find("rank 1 failed to share its buffer") != std::string::npos) == !isMine);
  }
}

void passWrongArguments(std::shared_ptr<Bootstrap> bootstrap) {
  const bool isRank1 = bootstrap->getRank() == 1;
  Communicator communicator(bootstrap);
  const HostBuffer memory(4096);
  char* data = static_cast<char*>(memory.data());
  const auto construct = [&](void* pointer, std::size_t bytes) {
    return [&communicator, pointer, bytes] { RegisteredBuffer(communicator, pointer, bytes); };
  };
  expectFaultOfRank1(*bootstrap, "the pointer is null, and the size is 64 bytes",
                     construct(isRank1 ? nullptr : data, 64));
  expectFaultOfRank1(*bootstrap, "4097 bytes exceed the HostBuffer", construct(data, isRank1 ? 4097 : 64));
  expectFaultOfRank1(*bootstrap, "4096 bytes exceed the HostBuffer", construct(isRank1 ? data + 1 : data, 4096));
  expectFaultOfRank1(*bootstrap, "exceed the address space", construct(data, isRank1 ? SIZE_MAX : 64));
  // A wrong argument is no reason to fall back to copies.
  expectFaultOfRank1(*bootstrap, "4097 bytes exceed the HostBuffer",
                     [&] { RegisteredBuffer::tryRegister(communicator, data, isRank1 ? 4097 : 64); });

  // Memory that cannot be shared is the same outcome on all ranks.
  std::array<char, 64> onStack{};
  void* mine = isRank1 ? onStack.data() : data;
  const auto text = doctest::Contains("rank 1 cannot share its buffer: registerMemory: Transport::SharedMemory needs");
  CHECK_THROWS_WITH_AS(construct(mine, 64)(), text, Error);
  CHECK_FALSE(RegisteredBuffer::tryRegister(communicator, mine, 64).has_value());

  const auto afterwards = RegisteredBuffer::tryRegister(communicator, data, 64);
  REQUIRE(afterwards.has_value());
  const int next = (bootstrap->getRank() + 1) % bootstrap->getNranks();
  static_cast<char*>(afterwards->peer(next))[0] = 1;
  bootstrap->barrier();
  CHECK(data[0] == 1);
  bootstrap->barrier();
}

}  // namespace

TEST_CASE("every rank writes into the buffers of all, ranks as threads") {
  for (int nRanks : {1, 2, 3}) runAsThreads(nRanks, writeEverywhere);
}
TEST_CASE("every rank writes into the buffers of all, ranks as processes") {
  runAsProcesses(3, "one process writes into all buffers");
}
TEST_CASE("one process writes into all buffers" * doctest::skip()) {
  const auto bootstrap = bootstrapOfProcess();
  writeEverywhere(bootstrap);  // the first registration starts what lasts as long as the process, like a GPU's driver
  const std::size_t descriptors = openDescriptors();
  const std::size_t threads = liveThreads();
  writeEverywhere(bootstrap);
  CHECK(mappingsOf("written-buffer") == 0);
  CHECK(openDescriptors() == descriptors);
  CHECK(threadCountReturnsTo(threads));
}

TEST_CASE("an allocation is mapped once, however often its parts are registered") {
  runAsProcesses(3, "one process registers parts");
}
TEST_CASE("one process registers parts" * doctest::skip()) {
  mapEachAllocationOnce(bootstrapOfProcess());
}

TEST_CASE("a buffer at the address of one that was freed is mapped anew, ranks as threads") {
  runAsThreads(2, reuseAddresses);
}
TEST_CASE("a buffer at the address of one that was freed is mapped anew, ranks as processes") {
  runAsProcesses(3, "one process reuses addresses");
}
TEST_CASE("one process reuses addresses" * doctest::skip()) {
  reuseAddresses(bootstrapOfProcess());
  CHECK(mappingsOf("reused-address") == 0);
}

TEST_CASE("buffers may differ in size, and a rank may have none") {
  runAsThreads(3, differInSize);
  runAsProcesses(3, "one process differs in size");
}
TEST_CASE("one process differs in size" * doctest::skip()) {
  differInSize(bootstrapOfProcess());
}

TEST_CASE("what is wrong on one rank is an error on all") {
  runAsThreads(3, passWrongArguments);
  runAsProcesses(3, "one process passes wrong arguments");
}
TEST_CASE("one process passes wrong arguments" * doctest::skip()) {
  passWrongArguments(bootstrapOfProcess());
}

TEST_CASE("buffers of another host cannot be mapped, which all ranks learn") {
  runAsProcesses(3, "one process is on another host", hangLimit, -1,
                 {"MSCCLPP_HOSTID=a", "MSCCLPP_HOSTID=a", "MSCCLPP_HOSTID=b"});
}
TEST_CASE("one process is on another host" * doctest::skip()) {
  const auto bootstrap = bootstrapOfProcess();
  Communicator communicator(bootstrap);
  const HostBuffer memory(4096);
  CHECK_FALSE(RegisteredBuffer::tryRegister(communicator, memory.data(), 64).has_value());
  CHECK_THROWS_WITH_AS(RegisteredBuffer(communicator, memory.data(), 64),
                       doctest::Contains("rank 0 cannot map the buffers of the others: RegisteredBuffer: memory of "
                                         "rank 2: the memory was registered on another host"),
                       Error);
}
