#include "kernels/nccl/group.hpp"

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "kernels/nccl/device.hpp"

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

}  // namespace

Group& Group::ofThisThread() {
  thread_local Group group;
  return group;
}

void Group::start() {
  if (depth_++ > 0) return;
  const RealNccl* real = RealNccl::findLoaded();
  isForwarded_ = real != nullptr && real->groupStart() == ncclSuccess;
}

bool Group::close() {
  if (depth_ == 0) throwInvalidUsage("ncclGroupEnd without ncclGroupStart");
  return --depth_ == 0;
}

void Group::end() {
  if (!close()) return;
  const auto setUps = std::exchange(setUps_, {});
  const auto calls = std::exchange(calls_, {});
  const Failure failure = std::exchange(failure_, {ncclSuccess, {}});
  const ncclResult_t forwarded = std::exchange(isForwarded_, false) ? RealNccl::findLoaded()->groupEnd() : ncclSuccess;
  if (failure.result != ncclSuccess) throw ApiError(failure.result, "a call of the group failed: " + failure.message);
  if (forwarded != ncclSuccess) throw ApiError(forwarded, "NCCL failed: see its own messages");

  std::vector<std::function<void()>> bodies;
  for (const SetUp& setUp : setUps) {
    bodies.emplace_back([&setUp] {
      const DeviceScope scope(setUp.device);
      setUp.body();
    });
  }
  runTogether(bodies);

  // On CPU ranks a call returns when it is complete, so that two ranks of this thread would wait for each other.
  const bool isTogether = calls.size() > 1 && deviceType() == DeviceType::CPU;
  bodies.clear();
  for (const CallsOfComm& each : calls) bodies.emplace_back([&each] { each.comm->run(each.calls); });
  if (isTogether) {
    runTogether(bodies);
  } else {
    for (const auto& body : bodies) body();
  }
}

void Group::drop() {
  if (!close()) return;
  setUps_.clear();
  calls_.clear();
  failure_ = {ncclSuccess, {}};
  if (std::exchange(isForwarded_, false)) static_cast<void>(RealNccl::findLoaded()->groupEnd());
}

void Group::setUp(std::function<void()> body) {
  if (depth_ == 0) return body();
  setUps_.push_back({std::move(body), currentDevice()});
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
