// The compiled dispatches and combines on CPU ranks when a rank is killed or does not call. Each rank is a process.
#include <doctest/doctest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "mscclpp/kernels/moe_buffer.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/ranks.hpp"

using namespace mscclpp;
using namespace std::chrono_literals;
using test::ChildProcess;

namespace {

constexpr int ranks = 3;

void expect(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

std::shared_ptr<TcpBootstrap> connected(int rank, const std::string& address) {
  auto bootstrap = std::make_shared<TcpBootstrap>(rank, ranks);
  bootstrap->initialize(address);
  return bootstrap;
}

/// A rank with a buffer of both forms, and calls in which every rank sends rows to every rank.
class Rank {
 public:
  static constexpr std::uint32_t count = 40;
  static constexpr std::uint32_t hidden = 512;

  Rank(int rank, const std::string& address)
      : bootstrap_(connected(rank, address)),
        communicator_(bootstrap_),
        buffer_(communicator_, DeviceType::CPU,
                {.maxTokens = count, .maxLowLatencyTokens = count, .topk = ranks, .experts = ranks, .hidden = hidden}),
        handle_(buffer_.makeHandle()),
        rows_(std::size_t{count} * hidden),
        received_(std::size_t{ranks * count} * hidden) {
    for (std::uint32_t i = 0; i < count * ranks; ++i) experts_.push_back(i % ranks);
  }

  void dispatch(moe::Form form) {
    if (form == moe::Form::LowLatency) {
      buffer_.lowLatencyDispatch(tokens(), batch(), handle_, nullptr, true)();
    } else {
      buffer_.dispatch(tokens(), batch(), handle_);
    }
    expect(counts_[0] == ranks * count, "a dispatch succeeded without the rows of a rank");
  }
  void combine(moe::Form form) {
    if (form == moe::Form::LowLatency) {
      buffer_.lowLatencyCombine(received_.data(), rows_.data(), handle_, nullptr, true)();
    } else {
      buffer_.combine(received_.data(), rows_.data(), handle_);
    }
  }
  /// The first part of a call: this rank's rows travel.
  void sendOnly(moe::Form form) {
    if (form == moe::Form::LowLatency) {
      buffer_.lowLatencyDispatch(tokens(), batch(), handle_, nullptr, true);
    } else {
      buffer_.dispatch(tokens(), batch(), handle_, nullptr, moe::Phase::Send);
    }
  }
  void check() const { buffer_.check(); }

 private:
  struct alignas(16) Element {
    std::array<std::uint64_t, 2> words;
  };
  moe::Tokens tokens() const { return {rows_.data(), nullptr, experts_.data(), nullptr, count}; }
  moe::ExpertBatch batch() {
    return {received_.data(), nullptr, counts_.data(), offsets_.data(), nullptr, ranks * count};
  }

  std::shared_ptr<TcpBootstrap> bootstrap_;
  Communicator communicator_;
  moe::Buffer buffer_;
  moe::DispatchHandle handle_;
  std::vector<Element> rows_, received_;
  std::vector<std::int64_t> experts_;
  std::array<std::uint32_t, 1> counts_{};
  std::array<std::uint32_t, 2> offsets_{};
};

/// Calls until one fails, which is soon after the failure and names rank 2; so do the later ones.
void expectFailure(Rank& self, ErrorCode code, const std::string& part, double within,
                   const std::function<void()>& call) {
  const auto start = std::chrono::steady_clock::now();
  for (const auto& each : {call, call, std::function<void()>([&] { self.check(); })}) {
    bool hasFailed = false;
    while (!hasFailed) {
      try {
        each();
      } catch (const Error& error) {
        hasFailed = true;
        expect(error.getErrorCode() == code && std::string(error.what()).find(part) != std::string::npos,
               std::string("unexpected error: ") + error.what());
      }
      expect(test::secondsSince(start) < within, "the failure was reported too late");
    }
  }
}

/// When rank 2 is killed.
enum class Killed { BeforeDispatch, AfterSending, BeforeCombine };

void kill(Killed when, moe::Form form, bool othersWait) {
  const std::string address = "127.0.0.1:" + std::to_string(test::freePort());
  const test::Reports calling, ended, mayExit;
  std::vector<ChildProcess> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&, rank] {
      Rank self(rank, address);
      self.dispatch(form);
      self.combine(form);
      if (when == Killed::BeforeCombine) self.dispatch(form);
      if (rank == 2) {
        if (when == Killed::AfterSending) self.sendOnly(form);
        calling.wait(2);
        if (othersWait) std::this_thread::sleep_for(200ms);
        std::raise(SIGKILL);
      }
      calling.add();
      std::string problem;
      try {
        if (when == Killed::AfterSending) {
          // The rows of the killed rank have been sent: this dispatch may succeed, and its combine cannot.
          try {
            self.dispatch(form);
          } catch (const Error&) {
          }
        }
        expectFailure(self, ErrorCode::RemoteError, "rank 2 failed", test::soon, [&] {
          if (when != Killed::BeforeDispatch) self.combine(form);
          self.dispatch(form);
        });
      } catch (const std::exception& error) {
        problem = error.what();
      }
      ended.add();
      mayExit.wait(1);  // a rank that exits would be another failed rank
      expect(problem.empty(), problem);
    });
  }
  ended.wait(2);
  processes[2].kill(SIGKILL);
  mayExit.add();
  mayExit.add();
  CHECK(processes[0].wait() == "");
  CHECK(processes[1].wait() == "");
  CHECK(processes[2].wait() == "signal 9");
}

}  // namespace

TEST_CASE("a rank killed in a dispatch or a combine is named to the others") {
  bool othersWait = false;
  for (const auto form : {moe::Form::Bandwidth, moe::Form::LowLatency}) {
    for (const auto when : {Killed::BeforeDispatch, Killed::AfterSending, Killed::BeforeCombine}) {
      CAPTURE(static_cast<int>(form));
      CAPTURE(static_cast<int>(when));
      kill(when, form, othersWait);
      othersWait = !othersWait;
    }
  }
}

TEST_CASE("a rank that does not call: the others' waits time out and name it") {
  for (const auto form : {moe::Form::Bandwidth, moe::Form::LowLatency}) {
    CAPTURE(static_cast<int>(form));
    const std::string address = "127.0.0.1:" + std::to_string(test::freePort());
    const test::Reports ended;
    std::vector<ChildProcess> processes;
    for (int rank = 0; rank < ranks; ++rank) {
      processes.emplace_back([&, rank] {
        ::setenv("MSCCLPP_WAIT_TIMEOUT", "1", 1);
        Rank self(rank, address);
        std::string problem;
        if (rank == 2) {
          ended.wait(2);
        } else {
          try {
            expectFailure(self, ErrorCode::Timeout, "of rank 2 past its deadline", test::soon,
                          [&] { self.dispatch(form); });
          } catch (const std::exception& error) {
            problem = error.what();
          }
          ended.add();
        }
        expect(problem.empty(), problem);
      });
    }
    for (auto& process : processes) CHECK(process.wait() == "");
  }
}

#if !MSCCLPP_TEST_ASAN && !MSCCLPP_TEST_TSAN  // their shadow memory counts too
/// Lets this process map so many bytes more.
void limitMemory(std::size_t bytes) {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const rlim_t all = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)) + bytes;
  const rlimit limit{all, all};
  if (::setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("setrlimit");
}

TEST_CASE("a rank without memory for its workspace: no rank gets a buffer") {
  const std::string address = "127.0.0.1:" + std::to_string(test::freePort());
  const test::Reports ended, mayExit;
  std::vector<ChildProcess> processes;
  for (int rank = 0; rank < ranks; ++rank) {
    processes.emplace_back([&, rank] {
      ::mallopt(M_ARENA_MAX, 1);  // the heap of another thread would be large
      Communicator communicator(connected(rank, address));
      // The workspace takes about 100 MB, and the windows of all ranks together 20 MB.
      const moe::BufferConfig config{.maxTokens = 1, .topk = 1, .experts = ranks * 65535, .hidden = 16};
      if (rank == 2) limitMemory(std::size_t{80} << 20);
      std::string outcome = "a buffer without memory";
      const auto start = std::chrono::steady_clock::now();
      try {
        const moe::Buffer buffer(communicator, DeviceType::CPU, config);
      } catch (const std::exception& error) {
        outcome = error.what();
      }
      ended.add();
      mayExit.wait(1);  // a rank that exits would be another failed rank
      expect(test::secondsSince(start) < test::soon, "the failure was reported too late");
      const bool isNamed = outcome.find("rank 2 failed to allocate its workspace") != std::string::npos;
      expect(outcome != "a buffer without memory" && (rank == 2 || isNamed), outcome);
    });
  }
  ended.wait(ranks);
  for (int rank = 0; rank < ranks; ++rank) mayExit.add();
  for (auto& process : processes) CHECK(process.wait() == "");
}
#endif
