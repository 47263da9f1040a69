// Builds collections of algorithms: the library's own, and those of users.
#include "mscclpp/kernels/algorithm_collection_builder.hpp"

#include <utility>

#include "collective_algorithm.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::collective {

namespace {

/// The builder of this process.
struct Instance {
  std::mutex mutex;
  std::shared_ptr<AlgorithmCollectionBuilder> builder;
};

Instance& instance() {
  static Instance instance;
  return instance;
}

}  // namespace

std::shared_ptr<AlgorithmCollectionBuilder> AlgorithmCollectionBuilder::getInstance() {
  const std::lock_guard lock(instance().mutex);
  auto& builder = instance().builder;
  if (builder == nullptr) builder = std::make_shared<AlgorithmCollectionBuilder>();
  return builder;
}

void AlgorithmCollectionBuilder::reset() {
  std::shared_ptr<AlgorithmCollectionBuilder> previous;  // destroyed without the lock
  const std::lock_guard lock(instance().mutex);
  previous.swap(instance().builder);
}

void AlgorithmCollectionBuilder::addAlgorithmBuilder(std::shared_ptr<AlgorithmBuilder> builder) {
  if (builder == nullptr) throw Error("addAlgorithmBuilder: the builder is null", ErrorCode::InvalidUsage);
  const std::lock_guard lock(mutex_);
  builders_.push_back(std::move(builder));
}

void AlgorithmCollectionBuilder::setAlgorithmSelector(AlgoSelectFunc selector) {
  const std::lock_guard lock(mutex_);
  selector_ = std::move(selector);
}

void AlgorithmCollectionBuilder::setFallbackAlgorithmSelector(AlgoSelectFunc selector) {
  const std::lock_guard lock(mutex_);
  fallbackSelector_ = std::move(selector);
}

AlgorithmCollection AlgorithmCollectionBuilder::build() {
  std::vector<std::shared_ptr<AlgorithmBuilder>> builders;
  AlgorithmCollection collection;
  {
    const std::lock_guard lock(mutex_);
    builders = builders_;
    collection.setSelectors(selector_, fallbackSelector_);
  }
  for (const auto& builder : builders) {
    const std::shared_ptr<Algorithm> algorithm = builder->build();
    if (algorithm == nullptr) throw Error("an AlgorithmBuilder returned no algorithm", ErrorCode::InvalidUsage);
    collection.registerAlgorithm(algorithm->collective(), algorithm->name(), algorithm);
  }
  return collection;
}

AlgorithmCollection AlgorithmCollectionBuilder::buildDefaultAlgorithms(DeviceType deviceType) {
  AlgorithmCollection collection = kernels::collectiveAlgorithms(deviceType);
  const std::lock_guard lock(mutex_);
  collection.setSelectors(selector_, fallbackSelector_ ? fallbackSelector_ : AlgoSelectFunc(kernels::selectBySize));
  return collection;
}

AlgorithmCollection AlgorithmCollectionBuilder::buildDefaultAlgorithms(std::uintptr_t, std::size_t, std::uintptr_t,
                                                                       std::size_t, int) {
  return buildDefaultAlgorithms(DeviceType::GPU);
}

}  // namespace mscclpp::collective
