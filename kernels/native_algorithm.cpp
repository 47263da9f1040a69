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

class NativeAlgorithm::Contexts : public ContextTable<AlgorithmCtxKey, void> {};

NativeAlgorithm::NativeAlgorithm(std::string name, std::string collective, InitFunc initFunc, KernelFunc kernelFunc,
                                 ContextInitFunc contextInitFunc, ContextKeyGenFunc contextKeyGenFunc,
                                 std::size_t minMessageSize, std::size_t maxMessageSize,
                                 CollectiveBufferMode bufferMode, std::unordered_map<std::string, std::uint64_t> tags,
                                 Constraint constraint)
    : DescribedAlgorithm({std::move(name),
                          std::move(collective),
                          {minMessageSize, maxMessageSize},
                          bufferMode,
                          std::move(tags),
                          constraint}),
      initFunc_(std::move(initFunc)),
      kernelFunc_(std::move(kernelFunc)),
      contextInitFunc_(std::move(contextInitFunc)),
      contextKeyGenFunc_(std::move(contextKeyGenFunc)),
      contexts_(std::make_unique<Contexts>()) {
  if (!kernelFunc_) {
    throw Error("NativeAlgorithm: the kernel function of \"" + this->name() + "\" is empty", ErrorCode::InvalidUsage);
  }
}
NativeAlgorithm::~NativeAlgorithm() = default;

CommResult NativeAlgorithm::execute(std::shared_ptr<Communicator> communicator, const void* input, void* output,
                                    std::size_t inputSize, std::size_t outputSize, DataType dtype, ReduceOp op,
                                    CUstream_st* stream, std::shared_ptr<Executor>, int nBlocks, int nThreads,
                                    bool symmetricMemory, const std::unordered_map<std::string, std::uintptr_t>& extras,
                                    DataType accumDtype) {
  return resultOf(name(), [&] {
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
