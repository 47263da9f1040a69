// The receiving end of a TCP connection with GPU memory, whose copies are made by hand here: what is answered when, and
// for how long memory is held.
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

#include "../../host/socket.hpp"
#include "../../host/transport/tcp/inbound.hpp"
#include "mscclpp/host/error.hpp"
#include "mscclpp/host/logger.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::detail::tcp;
using namespace std::chrono_literals;

namespace {

constexpr int gpu = 3;

/// Copies are made when the test lets them be made; small chunks, so that everything is cut.
class FakeCopies : public StagedCopies {
 public:
  /// What the "GPU" has been asked for; shared with the test.
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

  explicit FakeCopies(std::shared_ptr<Queue> queue) : queue_(std::move(queue)) {}
  ~FakeCopies() override { queue_->make(); }

  int gpu() const noexcept override { return ::gpu; }
  std::span<char> room() override { return room_; }
  void toGpu(void* target, std::size_t bytes) override {
    add([target, piece = std::vector<char>(room_.data(), room_.data() + bytes)] {
      std::memcpy(target, piece.data(), piece.size());
    });
  }
  void setWord(void* target, std::uint64_t value) override {
    add([target, value] { std::atomic_ref(*static_cast<std::uint64_t*>(target)).store(value); });
  }
  void mark() override {
    std::lock_guard lock(queue_->mutex);
    mark_ = queue_->started;
  }
  bool reached() override {
    std::lock_guard lock(queue_->mutex);
    if (queue_->isBroken) throw Error("the GPU is broken", ErrorCode::SystemError);
    return queue_->made >= mark_;
  }
  void finish() override { queue_->make(); }
  void fromGpu(const void*, std::size_t, const std::function<void(const char*, std::size_t)>&) override {}

 private:
  void add(std::function<void()> copy) {
    std::lock_guard lock(queue_->mutex);
    queue_->work.push_back(std::move(copy));
    ++queue_->started;
  }

  std::shared_ptr<Queue> queue_;
  std::array<char, 1000> room_;
  std::uint64_t mark_ = 0;
};

/// An Inbound served by hand, and the peer's end of its socket.
struct Rig {
  static constexpr std::size_t bytes = 100'000;

  Rig() {
    std::array<int, 2> ends;
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) == 0);
    peer = UniqueFd(ends[0]);
    inbound = std::make_unique<Inbound>(UniqueFd(ends[1]), registry, std::make_unique<FakeCopies>(queue));
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
    for (int i = 0; i < 20 && goesOn; ++i) goesOn = inbound->serve();
    return goesOn;
  }
  /// Number of the answer, or nothing if there is none.
  std::optional<Answer> answer() {
    Answer answer;
    if (::recv(peer.get(), &answer, sizeof(answer), MSG_DONTWAIT) != sizeof(answer)) return std::nullopt;
    return answer;
  }

  std::shared_ptr<FakeCopies::Queue> queue = std::make_shared<FakeCopies::Queue>();
  Registry registry;
  std::vector<char> memory = std::vector<char>(bytes);
  Id128 name;
  UniqueFd peer;
  std::unique_ptr<Inbound> inbound;
  std::uint64_t number = 0;
};

}  // namespace

TEST_CASE("an answer waits for the copies before it, and for no others") {
  Rig rig;
  rig.write(10, std::vector<char>(5000, 1));
  rig.query();
  rig.serve();
  CHECK_FALSE(rig.answer());
  CHECK(rig.inbound->impatience() == 0);
  const std::size_t first = rig.queue->waiting();
  CHECK(first >= 5);
  // The stream goes on: the copies are never all done.
  rig.write(20'000, std::vector<char>(5000, 2));
  rig.serve();
  rig.queue->make(first - 1);
  rig.serve();
  CHECK_FALSE(rig.answer());
  rig.queue->make(1);
  rig.serve();
  const auto answer = rig.answer();
  REQUIRE(answer);
  CHECK(answer->completed == 1);
  CHECK(answer->outcome == Outcome::Fine);
  CHECK(rig.memory[5009] == 1);
  CHECK(rig.queue->waiting() > 0);
  CHECK(rig.memory[20'000] == 0);

  rig.query();
  rig.serve();
  CHECK_FALSE(rig.answer());
  rig.queue->make();
  rig.serve();
  CHECK(rig.answer()->completed == 2);
  CHECK(rig.memory[20'000] == 2);
  rig.serve();
  CHECK(rig.inbound->impatience() == -1);
}

TEST_CASE("any cut of messages and chunks gives the same memory") {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    Rig rig;
    for (int i = 0; i < 60; ++i) {
      const std::size_t size = 1 + random() % (std::size_t{1} << (1 + random() % 14));
      const std::size_t offset = random() % (Rig::bytes - size);
      rig.write(offset, std::vector<char>(size, static_cast<char>(random())));
      if (random() % 3 == 0) rig.serve();
      if (random() % 4 == 0) rig.queue->make(random() % 8);
    }
    std::vector<char> last(Rig::bytes - 8);
    for (auto& byte : last) byte = static_cast<char>(random());
    rig.write(0, last);
    rig.update(Rig::bytes - 8, 77);
    rig.query();
    for (int i = 0; i < 100; ++i) rig.serve();
    rig.queue->make();
    rig.serve();
    const auto answer = rig.answer();
    REQUIRE(answer);
    CHECK(answer->completed == 62);
    CHECK(std::memcmp(rig.memory.data(), last.data(), last.size()) == 0);
    std::uint64_t word;
    std::memcpy(&word, rig.memory.data() + Rig::bytes - 8, 8);
    CHECK(word == 77);
  }
}

TEST_CASE("withdrawing memory waits for its copies") {
  Rig rig;
  rig.write(0, std::vector<char>(3000, 1));
  rig.serve();
  CHECK(rig.inbound->impatience() == 1);
  std::atomic<bool> isWithdrawn = false;
  std::thread owner([&] {
    rig.registry.remove(rig.name);
    isWithdrawn = true;
    std::memset(rig.memory.data(), 9, Rig::bytes);  // under ThreadSanitizer a late copy would show
  });
  while (rig.registry.find(rig.name)) std::this_thread::yield();
  rig.serve();
  CHECK_FALSE(isWithdrawn);
  rig.queue->make();
  rig.serve();
  owner.join();
  CHECK(isWithdrawn);
  rig.write(0, std::vector<char>(3000, 2));
  rig.serve();
  const auto answer = rig.answer();
  REQUIRE(answer);
  CHECK(answer->outcome == Outcome::UnknownMemory);
  CHECK(answer->completed == 1);
  CHECK(rig.memory[0] == 9);
  // It is heard no more, and gone in the end.
  rig.peer = UniqueFd();
  CHECK_FALSE(rig.serve());
}

TEST_CASE("a refused operation does not make those before it complete") {
  Rig rig;
  rig.write(0, std::vector<char>(3000, 1));
  rig.serve();
  REQUIRE(rig.queue->waiting() > 0);
  rig.write(Rig::bytes - 10, std::vector<char>(11, 2));
  rig.serve();
  const auto answer = rig.answer();
  REQUIRE(answer);
  CHECK(answer->outcome == Outcome::OutOfRange);
  CHECK(answer->completed == 1);
  CHECK(rig.queue->waiting() == 0);
  CHECK(rig.memory[2999] == 1);
}

TEST_CASE("a GPU that fails is told to the peer, and holds nobody's memory") {
  setLogLevel(LogLevel::None);
  Rig rig;
  rig.write(0, std::vector<char>(3000, 1));
  rig.query();
  rig.serve();
  rig.queue->isBroken = true;
  CHECK(rig.serve());
  const auto answer = rig.answer();
  REQUIRE(answer);
  CHECK(answer->outcome == Outcome::CopyFailed);
  CHECK(answer->completed == 0);  // though all of the bytes have been taken
  rig.registry.remove(rig.name);
  CHECK(rig.inbound->impatience() > 0);
}
