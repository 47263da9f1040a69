#include "kernels/nccl/group.hpp"

#include <algorithm>
#include <exception>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "kernels/nccl/device.hpp"
#include "kernels/nccl/thread_value.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::nccl {

namespace {

/// Of several threads: the first in time, since the others may be its consequences.
class FirstFailure {
 public:
  /// Of the exception that is being handled.
  void keep() noexcept {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
  }
  /// When the threads have ended.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr failure_;
};

/// Runs bodies at once, the last one in this thread. Throws the first exception when all have ended. None runs if there
/// are not threads for all: they wait for each other.
void runTogether(const std::vector<std::function<void()>>& bodies) {
  if (bodies.empty()) return;
  FirstFailure failure;
  const auto run = [&](const std::function<void()>& body) {
    try {
      body();
    } catch (...) {
      failure.keep();
    }
  };
  {
    std::promise<bool> decision;
    const std::shared_future<bool> hasAllThreads = decision.get_future().share();
    std::vector<std::jthread> threads;
    try {
      for (std::size_t i = 0; i + 1 < bodies.size(); ++i) {
        threads.emplace_back([&, hasAllThreads, i] {
          if (hasAllThreads.get()) run(bodies[i]);
        });
      }
    } catch (const std::exception& error) {
      decision.set_value(false);
      const auto* system = dynamic_cast<const std::system_error*>(&error);
      if (system == nullptr) throw;
      throw SysError("cannot start a thread for each rank of the group", system->code().value());
    }
    decision.set_value(true);
    run(bodies.back());
  }
  failure.rethrow();
}

void requireSuccess(const Failure& failure) {
  if (failure.result != ncclSuccess) throw ApiError(failure.result, "a call of the group failed: " + failure.message);
}

}  // namespace

Group& Group::ofThisThread() {
  return ThreadValue<Group>::get();
}

void Group::start() {
  if (depth_++ > 0) return;
  const RealNccl* real = RealNccl::findLoaded();
  isForwarded_ = real != nullptr && real->groupStart() == ncclSuccess;
}

bool Group::close(const char* function) {
  if (depth_ == 0) throwInvalidUsage(std::string(function) + " without ncclGroupStart");
  return --depth_ == 0;
}

void Group::end() {
  if (!close("ncclGroupEnd")) return;
  const auto setUps = std::exchange(setUps_, {});
  const auto calls = std::exchange(calls_, {});
  const Failure failure = std::exchange(failure_, {ncclSuccess, {}});
  const ncclResult_t forwarded = std::exchange(isForwarded_, false) ? RealNccl::findLoaded()->groupEnd() : ncclSuccess;
  requireSuccess(failure);
  if (forwarded != ncclSuccess) throw ApiError(forwarded, "NCCL failed: see its own messages");

  perform(setUps);

  // On CPU ranks a call returns when it is complete, so that two ranks of this thread would wait for each other.
  const bool isTogether = calls.size() > 1 && deviceType() == DeviceType::CPU;
  std::vector<std::function<void()>> bodies;
  for (const CallsOfComm& each : calls) bodies.emplace_back([&each] { each.comm->run(each.calls); });
  if (isTogether) {
    runTogether(bodies);
  } else {
    for (const auto& body : bodies) body();
  }
}

// Set-ups of a parent use the same tags, so that they must not overlap. Those of several parents over the same
// connections might, but reserve blocks of the same GPUs, which is to have the same result on all ranks. So their order
// is the same there: by the parent's number, which its ranks agree on, and then that of the calls.
void Group::perform(std::vector<SetUp> setUps) {
  const auto numberOf = [](const SetUp& setUp) { return setUp.parent ? setUp.parent->ranks().key().context : 0; };
  std::stable_sort(setUps.begin(), setUps.end(),
                   [&](const SetUp& a, const SetUp& b) { return numberOf(a) < numberOf(b); });
  std::vector<std::vector<const SetUp*>> queues;
  for (const SetUp& setUp : setUps) {
    const auto found = std::find_if(queues.begin(), queues.end(), [&](const auto& queue) {
      const auto& first = queue.front()->parent;
      return first && setUp.parent && first->ranks().sharesConnectionsWith(setUp.parent->ranks());
    });
    if (found != queues.end()) {
      found->push_back(&setUp);
    } else {
      queues.push_back({&setUp});
    }
  }
  FirstFailure failure;
  std::vector<std::function<void()>> bodies;
  for (const auto& queue : queues) {
    bodies.emplace_back([&queue, &failure] {
      for (const SetUp* setUp : queue) {
        try {
          const DeviceScope scope(setUp->device);
          setUp->body();
        } catch (...) {
          failure.keep();
          if (setUp->connections) setUp->connections->close();
        }
      }
    });
  }
  runTogether(bodies);
  failure.rethrow();
}

void Group::drop() {
  if (!close("ncclGroupSimulateEnd")) return;
  setUps_.clear();
  calls_.clear();
  const Failure failure = std::exchange(failure_, {ncclSuccess, {}});
  if (std::exchange(isForwarded_, false)) static_cast<void>(RealNccl::findLoaded()->groupEnd());
  requireSuccess(failure);
}

void Group::setUp(const std::shared_ptr<Comm>& parent, std::function<void()> body) {
  if (depth_ == 0) return body();
  setUps_.push_back({parent, std::move(body), currentDevice(), {}, nullptr});
}

void Group::connect(const std::shared_ptr<Comm>& parent, const UniqueId& id,
                    const std::function<void(PendingConnections&)>& body) {
  if (depth_ == 0) {
    PendingConnections alone;
    return body(alone);
  }
  const auto found = std::find_if(setUps_.begin(), setUps_.end(),
                                  [&](const SetUp& each) { return each.connections != nullptr && each.id == id; });
  const auto connections = found != setUps_.end() ? found->connections : std::make_shared<PendingConnections>();
  setUps_.push_back({parent, [=] { body(*connections); }, currentDevice(), id, connections});
}

void Group::call(const std::shared_ptr<Comm>& comm, const PendingCall& call) {
  if (depth_ == 0) return comm->run({&call, 1});
  auto found = std::find_if(calls_.begin(), calls_.end(), [&](const CallsOfComm& each) { return each.comm == comm; });
  if (found == calls_.end()) found = calls_.insert(found, CallsOfComm{comm, {}});
  found->calls.push_back(call);
}

void Group::fail(const Failure& failure) {
  if (depth_ > 0 && failure_.result == ncclSuccess) failure_ = failure;
}

}  // namespace mscclpp::nccl
