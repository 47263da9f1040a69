#include "kernels/nccl/group.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "kernels/nccl/device.hpp"
#include "kernels/nccl/thread_value.hpp"

namespace mscclpp::nccl {

namespace {

/// Runs bodies at once, the last one in this thread. Throws the first exception when all have ended.
void runTogether(const std::vector<std::function<void()>>& bodies) {
  std::vector<std::exception_ptr> failures(bodies.size());
  const auto run = [&](std::size_t i) {
    try {
      bodies[i]();
    } catch (...) {
      failures[i] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i + 1 < bodies.size(); ++i) threads.emplace_back(run, i);
    if (!bodies.empty()) run(bodies.size() - 1);
  }
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
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

// Set-ups over the same connections use the same tags and choose numbers for the new sets, so that they must not
// overlap. Their order must be the same on all ranks: it is by the parent's number, which its ranks agree on, and then
// that of the calls.
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
  std::vector<std::function<void()>> bodies;
  for (const auto& queue : queues) {
    bodies.emplace_back([&queue] {
      std::exception_ptr failure;
      for (const SetUp* setUp : queue) {
        try {
          const DeviceScope scope(setUp->device);
          setUp->body();
        } catch (...) {
          if (!failure) failure = std::current_exception();
        }
      }
      if (failure) std::rethrow_exception(failure);
    });
  }
  runTogether(bodies);
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
  setUps_.push_back({parent, std::move(body), currentDevice()});
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
