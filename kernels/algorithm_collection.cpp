// Collections of algorithms, and the selection of one for a call.
#include "mscclpp/kernels/algorithm_collection.hpp"

#include <utility>

#include "algorithm_call.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp {

CollectiveBufferMode CollectiveRequest::bufferMode() const {
  return kernels::bufferModeOf(collective, input, output, messageSize, rank);
}

struct AlgorithmCollection::Content {
  AlgorithmMap algorithms;
  AlgoSelectFunc primary;
  AlgoSelectFunc fallback;
};

AlgorithmCollection::AlgorithmCollection() : content_(std::make_shared<const Content>()) {}
AlgorithmCollection::AlgorithmCollection(const AlgorithmCollection& other) : content_(other.content()) {}
AlgorithmCollection& AlgorithmCollection::operator=(const AlgorithmCollection& other) {
  auto content = other.content();
  const std::lock_guard lock(mutex_);
  content_.swap(content);
  return *this;
}

std::shared_ptr<const AlgorithmCollection::Content> AlgorithmCollection::content() const {
  const std::lock_guard lock(mutex_);
  return content_;
}

template <class Change>
void AlgorithmCollection::change(Change&& change) {
  std::shared_ptr<const Content> previous;  // destroyed without the lock: it may be the last owner of users' selectors
  const std::lock_guard lock(mutex_);
  auto changed = std::make_shared<Content>(*content_);
  change(*changed);
  previous = std::exchange(content_, std::move(changed));
}

std::shared_ptr<Algorithm> AlgorithmCollection::selectAlgorithm(const CollectiveRequest& request) const {
  const auto content = this->content();  // no lock is held while a selector runs
  for (const AlgoSelectFunc* select : {&content->primary, &content->fallback}) {
    if (!*select) continue;
    if (auto algorithm = (*select)(content->algorithms, request)) return algorithm;
  }
  return nullptr;
}

void AlgorithmCollection::registerAlgorithm(std::string collective, std::string algorithmName,
                                            std::shared_ptr<Algorithm> algorithm) {
  if (algorithm == nullptr) {
    throw Error("registerAlgorithm: the algorithm \"" + algorithmName + "\" is null", ErrorCode::InvalidUsage);
  }
  change([&](Content& content) {
    content.algorithms[std::move(collective)][std::move(algorithmName)] = std::move(algorithm);
  });
}

std::unordered_map<std::string, std::shared_ptr<Algorithm>> AlgorithmCollection::getAlgorithmsByCollective(
    const std::string& collective) const {
  const auto content = this->content();
  const auto found = content->algorithms.find(collective);
  if (found == content->algorithms.end()) return {};
  return found->second;
}

std::vector<std::shared_ptr<Algorithm>> AlgorithmCollection::getAllAlgorithms() const {
  std::vector<std::shared_ptr<Algorithm>> all;
  const auto content = this->content();
  for (const auto& [collective, algorithms] : content->algorithms) {
    for (const auto& [name, algorithm] : algorithms) all.push_back(algorithm);
  }
  return all;
}

void AlgorithmCollection::extend(const AlgorithmCollection& other) {
  const auto added = other.content();
  change([&](Content& content) {
    for (const auto& [collective, algorithms] : added->algorithms) {
      for (const auto& [name, algorithm] : algorithms) content.algorithms[collective][name] = algorithm;
    }
  });
}

void AlgorithmCollection::setSelectors(AlgoSelectFunc primary, AlgoSelectFunc fallback) {
  change([&](Content& content) {
    content.primary = std::move(primary);
    content.fallback = std::move(fallback);
  });
}

}  // namespace mscclpp
