// 13: an algorithm of one's own beside the library's: an all-reduce for short messages of floats, registered with a
// selector that chooses it where it applies. All other calls run what the library selects.
#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "example.hpp"
#include "mscclpp/algorithm.hpp"
#include "mscclpp/collective/all_reduce.hpp"
#include "mscclpp/host/communicator/collective_state.hpp"

namespace example {

using namespace mscclpp;

/// The user's kernel: here one of the library's templates, which only sums floats and takes packets of 8 bytes.
using SmallSums = AllReduce<float, Sum, AllReduceConfig{.protocol = Protocol::LL8}>;
using State = CollectiveState<SmallSums>;

constexpr std::size_t maxBytes = 16 << 10;

/// Starts the kernel on a stream, on some blocks of some threads.
using Launch = std::function<void(const SmallSums::Args& args, const float* input, float* output, LaunchShape shape,
                                  CUstream_st* stream)>;

/// Makes the algorithm. Its context, one for each communicator, is what the calls share: scratch and epochs.
class SmallSumsBuilder : public AlgorithmBuilder {
 public:
  SmallSumsBuilder(DeviceType where, Launch launch) : where_(where), launch_(std::move(launch)) {}

  std::shared_ptr<Algorithm> build() override {
    return std::make_shared<NativeAlgorithm>(
        "small_sums", "allreduce", NativeAlgorithm::InitFunc(),
        [launch = launch_](const std::shared_ptr<void> context, const void* input, void* output, std::size_t bytes,
                           std::size_t, DataType type, ReduceOp op, CUstream_st* stream, int blocks, int threads,
                           const std::unordered_map<std::string, std::uintptr_t>&, DataType) {
          if (type != DataType::FLOAT32 || op != ReduceOp::SUM) return CommResult::CommInvalidArgument;
          const auto& state = *std::static_pointer_cast<State>(context);
          if (state.monitor().failed()) state.check();  // throws what becomes the result of execute()
          launch(state.args(bytes / sizeof(float)), static_cast<const float*>(input), static_cast<float*>(output),
                 {.blocks = blocks > 0 ? blocks : 8, .threads = threads > 0 ? threads : 256}, stream);
          return CommResult::CommSuccess;
        },
        [where = where_](std::shared_ptr<Communicator> communicator, const void*, void*, std::size_t, std::size_t,
                         DataType) -> std::shared_ptr<void> {
          return std::make_shared<State>(*communicator, where, maxBytes / sizeof(float));
        },
        NativeAlgorithm::ContextKeyGenFunc(), 0, maxBytes);
  }

 private:
  DeviceType where_;
  Launch launch_;
};

/// The user's algorithm where it applies. Null for other calls: then the library selects by size.
inline std::shared_ptr<Algorithm> selectSmallSums(const AlgorithmMap& algorithms, const CollectiveRequest& request) {
  const bool applies = request.collective == "allreduce" && request.dtype == DataType::FLOAT32 &&
                       request.op == ReduceOp::SUM && request.messageSize <= maxBytes;
  return applies ? algorithms.at("allreduce").at("small_sums") : nullptr;
}

/// The library's algorithms and the user's, with the selector.
inline AlgorithmCollection makeCollection(DeviceType where, const Launch& launch) {
  const auto builder = collective::AlgorithmCollectionBuilder::getInstance();
  builder->addAlgorithmBuilder(std::make_shared<SmallSumsBuilder>(where, launch));
  builder->setAlgorithmSelector(selectSmallSums);
  AlgorithmCollection collection = builder->buildDefaultAlgorithms(where);
  collection.extend(builder->build());
  return collection;
}

/// Sums one buffer over the ranks, as a program would that knows no algorithm by name. Returns the name of the one that
/// was selected. All ranks call it alike.
inline std::string allReduce(const AlgorithmCollection& collection, const std::shared_ptr<Communicator>& communicator,
                             const float* input, float* output, std::size_t count, ReduceOp op, CUstream_st* stream) {
  const auto bootstrap = communicator->bootstrap();
  const std::size_t bytes = count * sizeof(float);
  const auto algorithm = collection.selectAlgorithm({.worldSize = bootstrap->getNranks(),
                                                     .nRanksPerNode = bootstrap->getNranksPerNode(),
                                                     .rank = bootstrap->getRank(),
                                                     .input = input,
                                                     .output = output,
                                                     .messageSize = bytes,
                                                     .stream = stream,
                                                     .collective = "allreduce",
                                                     .dtype = DataType::FLOAT32,
                                                     .op = op});
  require(algorithm != nullptr, "no algorithm was selected");
  const CommResult result =
      algorithm->execute(communicator, input, output, bytes, bytes, DataType::FLOAT32, op, stream, nullptr);
  require(result == CommResult::CommSuccess, algorithm->name() + " failed; the log says why");
  return algorithm->name();
}

/// Calls of both kinds: count, operator, and the algorithm that is to be selected.
struct Call {
  std::size_t count;
  ReduceOp op;
  const char* selected;
};
inline const std::vector<Call> calls{{1000, ReduceOp::SUM, "small_sums"},
                                     {1000, ReduceOp::MAX, "mscclpp_allreduce"},
                                     {300'007, ReduceOp::SUM, "mscclpp_allreduce"},
                                     {4096, ReduceOp::SUM, "small_sums"}};

inline float inputAt(std::size_t i, int rank) {
  return static_cast<float>(i % 10) + static_cast<float>(rank);
}
inline float resultAt(std::size_t i, ReduceOp op, int ranks) {
  const auto n = static_cast<float>(ranks);
  const float sum = n * inputAt(i, 0) + n * (n - 1) / 2;
  return op == ReduceOp::SUM ? sum : inputAt(i, ranks - 1);
}

/// Throws unless the output and the selection are right.
inline void check(const Call& call, const std::string& selected, const std::vector<float>& output, int rank,
                  int ranks) {
  require(selected == call.selected, selected + " was selected instead of " + call.selected);
  for (std::size_t i = 0; i < output.size(); ++i) {
    require(output[i] == resultAt(i, call.op, ranks), "element " + std::to_string(i) + " is wrong");
  }
  if (rank == 0) {
    std::printf("%zu floats, %s, over %d ranks by %s: right\n", call.count, nameOf(call.op), ranks, selected.c_str());
  }
}

}  // namespace example
