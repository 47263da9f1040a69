// Algorithms made of users' functions.
#include <functional>
#include <utility>

#include "algorithm_call.hpp"
#include "comm_result.hpp"
#include "context_table.hpp"
#include "mscclpp/kernels/algorithm.hpp"

std::size_t std::hash<mscclpp::AlgorithmCtxKey>::operator()(const mscclpp::AlgorithmCtxKey& key) const noexcept {
  std::size_t result = 14695981039346656037u;  // FNV-1a
  for (const std::size_t value :
       {reinterpret_cast<std::size_t>(key.baseSendBuff), reinterpret_cast<std::size_t>(key.baseRecvBuff),
        key.baseSendSize, key.baseRecvSize, static_cast<std::size_t>(key.tag)}) {
    result = (result ^ value) * 1099511628211u;
  }
  return result;
}

namespace mscclpp {

using namespace kernels;

namespace {

std::pair<std::size_t, std::size_t> rangeOf(const std::string& name, std::size_t shortest, std::size_t longest) {
  if (shortest > longest) {
    throw Error("algorithm " + name + ": the shortest message, " + std::to_string(shortest) +
                    " bytes, is longer than the longest, " + std::to_string(longest),
                ErrorCode::InvalidUsage);
  }
  return {shortest, longest};
}

}  // namespace

class NativeAlgorithm::Contexts : public ContextTable<AlgorithmCtxKey, void> {};

NativeAlgorithm::NativeAlgorithm(std::string name, std::string collective, InitFunc initFunc, KernelFunc kernelFunc,
                                 ContextInitFunc contextInitFunc, ContextKeyGenFunc contextKeyGenFunc,
                                 std::size_t minMessageSize, std::size_t maxMessageSize,
                                 CollectiveBufferMode bufferMode, std::unordered_map<std::string, std::uint64_t> tags,
                                 Constraint constraint)
    : name_(std::move(name)),
      collective_(std::move(collective)),
      initFunc_(std::move(initFunc)),
      kernelFunc_(std::move(kernelFunc)),
      contextInitFunc_(std::move(contextInitFunc)),
      contextKeyGenFunc_(std::move(contextKeyGenFunc)),
      messageRange_(rangeOf(name_, minMessageSize, maxMessageSize)),
      bufferMode_(bufferMode),
      tags_(std::move(tags)),
      constraint_(constraint),
      contexts_(std::make_unique<Contexts>()) {
  if (name_.empty() || collective_.empty() || !kernelFunc_) {
    throw Error("NativeAlgorithm: give it a name, a collective and a kernel function", ErrorCode::InvalidUsage);
  }
}
NativeAlgorithm::~NativeAlgorithm() = default;

void NativeAlgorithm::setMessageSizeRange(std::size_t minMessageSize, std::size_t maxMessageSize) {
  messageRange_ = rangeOf(name_, minMessageSize, maxMessageSize);
}

CommResult NativeAlgorithm::execute(std::shared_ptr<Communicator> communicator, const void* input, void* output,
                                    std::size_t inputSize, std::size_t outputSize, DataType dtype, ReduceOp op,
                                    CUstream_st* stream, std::shared_ptr<Executor>, int nBlocks, int nThreads,
                                    bool symmetricMemory, const std::unordered_map<std::string, std::uintptr_t>& extras,
                                    DataType accumDtype) {
  return resultOf(name_, [&] {
    requireAccepted(*this, communicator, {input, output, inputSize, outputSize});
    const AlgorithmCtxKey key = contextKeyGenFunc_
                                    ? contextKeyGenFunc_(input, output, inputSize, outputSize, dtype, symmetricMemory)
                                    : AlgorithmCtxKey{};
    const std::shared_ptr<void> context = contexts_->findOrMake(
        communicator, key,
        [&] {
          if (initFunc_) initFunc_(communicator);
        },
        [&]() -> std::shared_ptr<void> {
          if (!contextInitFunc_) return nullptr;
          return contextInitFunc_(communicator, input, output, inputSize, outputSize, dtype);
        });
    return kernelFunc_(context, input, output, inputSize, outputSize, dtype, op, stream, nBlocks, nThreads, extras,
                       accumDtype);
  });
}

void NativeAlgorithm::reset() {
  contexts_->clear();
}

}  // namespace mscclpp
