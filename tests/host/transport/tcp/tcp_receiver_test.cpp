// The receiving end of a TCP connection with GPU memory, with simulated copies: when each reply is sent, and for how
// long memory is held.
#include "host/transport/tcp/tcp_receiver.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "host/net/socket.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/base/logger.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::detail::tcp;
using namespace std::chrono_literals;

namespace {

constexpr int gpu = 3;

/// Executes copies when the test requests it; small chunks, so that every transfer is split.
class FakeStagingCopier : public StagingCopier {
 public:
  /// The copies requested of the "GPU"; shared with the test.
  struct Queue {
    std::mutex mutex;
    std::deque<std::function<void()>> work;
    std::uint64_t started = 0;
    std::uint64_t made = 0;
    bool isBroken = false;

    void make(std::size_t atMost = SIZE_MAX) {
      std::lock_guard lock(mutex);
      for (; atMost > 0 && !work.empty(); --atMost) {
        work.front()();
        work.pop_front();
        ++made;
      }
    }
    std::size_t waiting() {
      std::lock_guard lock(mutex);
      return work.size();
    }
  };

  explicit FakeStagingCopier(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  ~FakeStagingCopier() override { queue_->make(); }

  int gpu() const noexcept override { return ::gpu; }
  std::span<char> stagingBuffer() override { return room_; }
  void copyToGpu(void* target, std::size_t bytes) override {
    add([target, piece = std::vector<char>(room_.data(), room_.data() + bytes)] {
      std::memcpy(target, piece.data(), piece.size());
    });
  }
  void storeWord(void* target, std::uint64_t value) override {
    add([target, value] { std::atomic_ref(*static_cast<std::uint64_t*>(target)).store(value); });
  }
  void recordEvent() override {
    std::lock_guard lock(queue_->mutex);
    event_ = queue_->started;
  }
  bool isEventComplete() override {
    std::lock_guard lock(queue_->mutex);
    if (queue_->isBroken) throw Error("the GPU is broken", ErrorCode::SystemError);
    return queue_->made >= event_;
  }
  void synchronize() override { queue_->make(); }
  void copyFromGpu(const void*, std::size_t, const std::function<void(const char*, std::size_t)>&) override {}

 private:
  void add(std::function<void()> copy) {
    std::lock_guard lock(queue_->mutex);
    queue_->work.push_back(std::move(copy));
    ++queue_->started;
  }

  std::shared_ptr<Queue> queue_;
  std::array<char, 1000> room_;
  std::uint64_t event_ = 0;
};

/// A TcpReceiver that the test serves, and the peer's end of its socket.
struct Fixture {
  static constexpr std::size_t bytes = 100'000;

  Fixture() {
    std::array<int, 2> ends;
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    peer = UniqueFd(ends[0]);
    receiver = std::make_unique<TcpReceiver>(UniqueFd(ends[1]), registry, std::make_unique<FakeStagingCopier>(queue));
    name = registry.add(std::make_shared<Registration>(memory.data(), bytes, gpu));
  }

  void send(const void* data, std::size_t size) {
    const auto* next = static_cast<const char*>(data);
    while (size > 0) {
      const ssize_t count = ::send(peer.get(), next, size, MSG_NOSIGNAL);
      if (count > 0) {
        next += count;
        size -= static_cast<std::size_t>(count);
      } else {
        serve();
      }
    }
  }
  void write(std::size_t offset, const std::vector<char>& data) {
    const Message message{Operation::Write, 0, ++number, name, offset, data.size(), 0};
    send(&message, sizeof(message));
    send(data.data(), data.size());
  }
  void update(std::size_t offset, std::uint64_t value) {
    const Message message{Operation::Update, 0, ++number, name, offset, 0, value};
    send(&message, sizeof(message));
  }
  void query() {
    const Message message{Operation::Query, 0, number, {}, 0, 0, 0};
    send(&message, sizeof(message));
  }
  bool serve() {
    bool goesOn = true;
    for (int i = 0; i < 20 && goesOn; ++i) goesOn = receiver->serve();
    return goesOn;
  }
  /// The next reply, or nothing if there is none.
  std::optional<Reply> answer() {
    Reply answer;
    if (::recv(peer.get(), &answer, sizeof(answer), MSG_DONTWAIT) != sizeof(answer)) return std::nullopt;
    return answer;
  }

  std::shared_ptr<FakeStagingCopier::Queue> queue = std::make_shared<FakeStagingCopier::Queue>();
  Registry registry;
  std::vector<char> memory = std::vector<char>(bytes);
  Id128 name;
  UniqueFd peer;
  std::unique_ptr<TcpReceiver> receiver;
  std::uint64_t number = 0;
};

}  // namespace

TEST_CASE("a reply waits for the copies before it, and for no others") {
  Fixture fixture;
  fixture.write(10, std::vector<char>(5000, 1));
  fixture.query();
  fixture.serve();
  CHECK_FALSE(fixture.answer());
  CHECK(fixture.receiver->pollTimeout() == 0);
  const std::size_t first = fixture.queue->waiting();
  CHECK(first >= 5);
  // The stream continues: at no time are all copies complete.
  fixture.write(20'000, std::vector<char>(5000, 2));
  fixture.serve();
  fixture.queue->make(first - 1);
  fixture.serve();
  CHECK_FALSE(fixture.answer());
  fixture.queue->make(1);
  fixture.serve();
  const auto answer = fixture.answer();
  REQUIRE(answer);
  CHECK(answer->completed == 1);
  CHECK(answer->status == Status::Ok);
  CHECK(fixture.memory[5009] == 1);
  CHECK(fixture.queue->waiting() > 0);
  CHECK(fixture.memory[20'000] == 0);

  fixture.query();
  fixture.serve();
  CHECK_FALSE(fixture.answer());
  fixture.queue->make();
  fixture.serve();
  CHECK(fixture.answer()->completed == 2);
  CHECK(fixture.memory[20'000] == 2);
  fixture.serve();
  CHECK(fixture.receiver->pollTimeout() == -1);
}

TEST_CASE("any split of messages and chunks gives the same memory contents") {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    Fixture fixture;
    for (int i = 0; i < 60; ++i) {
      const std::size_t size = 1 + random() % (std::size_t{1} << (1 + random() % 14));
      const std::size_t offset = random() % (Fixture::bytes - size);
      fixture.write(offset, std::vector<char>(size, static_cast<char>(random())));
      if (random() % 3 == 0) fixture.serve();
      if (random() % 4 == 0) fixture.queue->make(random() % 8);
    }
    std::vector<char> last(Fixture::bytes - 8);
    for (auto& byte : last) byte = static_cast<char>(random());
    fixture.write(0, last);
    fixture.update(Fixture::bytes - 8, 77);
    fixture.query();
    for (int i = 0; i < 100; ++i) fixture.serve();
    fixture.queue->make();
    fixture.serve();
    const auto answer = fixture.answer();
    REQUIRE(answer);
    CHECK(answer->completed == 62);
    CHECK(std::memcmp(fixture.memory.data(), last.data(), last.size()) == 0);
    std::uint64_t word;
    std::memcpy(&word, fixture.memory.data() + Fixture::bytes - 8, 8);
    CHECK(word == 77);
  }
}

TEST_CASE("deregistering memory waits for its copies") {
  Fixture fixture;
  fixture.write(0, std::vector<char>(3000, 1));
  fixture.serve();
  CHECK(fixture.receiver->pollTimeout() == 1);
  std::atomic<bool> isWithdrawn = false;
  std::thread owner([&] {
    fixture.registry.remove(fixture.name);
    isWithdrawn = true;
    std::memset(fixture.memory.data(), 9, Fixture::bytes);  // ThreadSanitizer would report a late copy
  });
  while (fixture.registry.find(fixture.name)) std::this_thread::yield();
  fixture.serve();
  CHECK_FALSE(isWithdrawn);
  fixture.queue->make();
  fixture.serve();
  owner.join();
  CHECK(isWithdrawn);
  fixture.write(0, std::vector<char>(3000, 2));
  fixture.serve();
  const auto answer = fixture.answer();
  REQUIRE(answer);
  CHECK(answer->status == Status::UnknownMemory);
  CHECK(answer->completed == 1);
  CHECK(fixture.memory[0] == 9);
  // Nothing more is read from the peer, and its disconnect is detected.
  fixture.peer = UniqueFd();
  CHECK_FALSE(fixture.serve());
}

TEST_CASE("a rejected operation does not make those before it complete") {
  Fixture fixture;
  fixture.write(0, std::vector<char>(3000, 1));
  fixture.serve();
  REQUIRE(fixture.queue->waiting() > 0);
  fixture.write(Fixture::bytes - 10, std::vector<char>(11, 2));
  fixture.serve();
  const auto answer = fixture.answer();
  REQUIRE(answer);
  CHECK(answer->status == Status::OutOfRange);
  CHECK(answer->completed == 1);
  CHECK(fixture.queue->waiting() == 0);
  CHECK(fixture.memory[2999] == 1);
}

TEST_CASE("the failure of a GPU is reported to the peer, and blocks no deregistration") {
  setLogLevel(LogLevel::None);
  Fixture fixture;
  fixture.write(0, std::vector<char>(3000, 1));
  fixture.query();
  fixture.serve();
  fixture.queue->isBroken = true;
  CHECK(fixture.serve());
  const auto answer = fixture.answer();
  REQUIRE(answer);
  CHECK(answer->status == Status::CopyFailed);
  CHECK(answer->completed == 0);  // though all bytes have been read
  fixture.registry.remove(fixture.name);
  CHECK(fixture.receiver->pollTimeout() > 0);
}
