#include "measure.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "implementations.hpp"
#include "kernels/tuning_table.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"
#include "plans.hpp"
#include "rank_group.hpp"
#include "report.hpp"
#include "timing_modes.hpp"
#include "trace_recording.hpp"

namespace mscclpp::perf {

namespace {

std::vector<CollectiveShape> shapesOf(const Options& options, int ranks) {
  std::vector<CollectiveShape> shapes;
  for (const std::uint64_t bytes : options.sizes) {
    const CollectiveShape shape = shapeOf(options.collective, ranks, bytes, sizeOf(options.type));
    if (shapes.empty() || shapes.back().count != shape.count) shapes.push_back(shape);  // sizes may round to the same
  }
  return shapes;
}

CollectiveCall callOf(const Options& options, const CollectiveShape& shape, int rank) {
  CollectiveCall call;
  call.collective = options.collective;
  call.count = shape.count;
  call.type = options.type;
  call.reduction = options.op;
  call.root = options.root;
  if (options.collective == CollectiveType::SendReceive) {
    call.destination = (rank + 1) % shape.ranks;
    call.origin = (rank + shape.ranks - 1) % shape.ranks;
    call.receivedCount = shape.count;
  }
  return call;
}

/// Checks and times the implementations on one rank.
class Bench {
 public:
  Bench(const Options& options, const RankGroup& group, const MeasuredDevice& device, Collectives& collectives)
      : options_(options),
        group_(group),
        device_(device),
        elementBytes_(sizeOf(options.type)),
        wrong_(device.backend.allocate(sizeof(std::uint64_t))),
        aligned_(device.backend.allocate(2 * sizeof(float))),
        timer_(options, device.backend, device.kernels, alignment(collectives)) {}

  std::size_t pairs(const CollectiveShape& shape) const {
    const std::size_t elements =
        options_.inPlace ? std::max(shape.input(), shape.output()) : shape.input() + shape.output();
    return timer_.pairs(elements * elementBytes_);
  }
  std::size_t inputBytes(const CollectiveShape& shape) const {
    return pairs(shape) * BufferPairs::stride(shape.input(), elementBytes_);
  }
  std::size_t outputBytes(const CollectiveShape& shape) const {
    return pairs(shape) * BufferPairs::stride(shape.output(), elementBytes_);
  }

  CollectiveCall call(const Implementation& implementation, const CollectiveShape& shape, std::size_t pair = 0) const {
    const CallBuffers buffers = buffersOf(implementation, shape, pair);
    CollectiveCall call = callOf(options_, shape, group_.rank());
    call.input = buffers.input;
    call.output = buffers.output;
    call.algorithm = implementation.algorithm;
    return call;
  }
  Call runnable(const Implementation& implementation, const CollectiveShape& shape, std::size_t pair = 0) const {
    return [run = implementation.run, call = call(implementation, shape, pair)](CUstream_st* stream) mutable {
      call.stream = stream;
      run(call);
    };
  }

  /// Fills the inputs of all pairs; poisons the outputs.
  void fill(const Implementation& implementation, const CollectiveShape& shape, const InputRule& rule) {
    Backend& backend = device_.backend;
    backend.fill(implementation.inputs.get(), poisonByte, inputBytes(shape));
    backend.fill(implementation.outputs.get(), poisonByte, outputBytes(shape));
    backend.runOnce([&](CUstream_st* stream) {
      for (std::size_t pair = 0; pair < pairs(shape); ++pair) {
        device_.data.fillInput(options_.collective, options_.type, rule, group_.rank(),
                               buffersOf(implementation, shape, pair).input, shape.input(), stream);
      }
    });
  }

  /// Executes a call on filled buffers. Returns the number of wrong elements over all ranks.
  std::size_t check(const Implementation& implementation, const CollectiveShape& shape, const InputRule& rule) {
    Backend& backend = device_.backend;
    backend.fill(wrong_.get(), 0, sizeof(std::uint64_t));
    group_.barrier();
    backend.runOnce(runnable(implementation, shape));
    implementation.check();
    const CallBuffers buffers = buffersOf(implementation, shape, 0);
    const OutputData output{buffers.output, shape.output(group_.rank(), options_.root),
                            outputRule(shape, rule, group_.rank(), options_.root, implementation.roundsEachAddition),
                            buffers.guard};
    backend.runOnce([&](CUstream_st* stream) {
      device_.data.countWrong(options_.collective, options_.type, output, static_cast<std::uint64_t*>(wrong_.get()),
                              stream);
    });
    std::uint64_t mine = 0;
    backend.download(&mine, wrong_.get(), sizeof(mine));
    const auto all = group_.gather(mine);
    return std::accumulate(all.begin(), all.end(), std::size_t{0});
  }

  /// Times the implementations in turn, so that what disturbs one disturbs the others.
  std::vector<Timing> time(const std::vector<const Implementation*>& implementations, const CollectiveShape& shape) {
    std::vector<std::unique_ptr<TimedCall>> timed;
    for (const Implementation* each : implementations) {
      group_.barrier();
      timed.push_back(timer_.prepare(operationOf(*each, shape)));
    }
    std::vector<std::vector<double>> samples(timed.size());
    for (int repeat = 0; repeat < options_.timing.repeats; ++repeat) {
      for (std::size_t i = 0; i < timed.size(); ++i) {
        const auto measured = timed[i]->measure([&] { group_.barrier(); });
        samples[i].insert(samples[i].end(), measured.begin(), measured.end());
      }
    }
    std::vector<Timing> timings;
    for (std::size_t i = 0; i < timed.size(); ++i) {
      implementations[i]->check();
      timings.push_back(summarize(options_.mode, samples[i], group_));
    }
    return timings;
  }

 private:
  CallBuffers buffersOf(const Implementation& implementation, const CollectiveShape& shape, std::size_t pair) const {
    return implementation.buffers().at(pair, shape, elementBytes_, group_.rank(), options_.root, options_.inPlace);
  }

  TimedOperation operationOf(const Implementation& implementation, const CollectiveShape& shape) const {
    std::vector<Call> calls;
    for (std::size_t pair = 0; pair < pairs(shape); ++pair) calls.push_back(runnable(implementation, shape, pair));
    const CallBuffers first = buffersOf(implementation, shape, 0);
    return {.call = [calls](std::size_t pair, CUstream_st* stream) { calls[pair](stream); },
            .pairs = calls.size(),
            .input = first.input,
            .inputBytes = shape.input() * elementBytes_,
            .output = first.output,
            .outputBytes = shape.output(group_.rank(), options_.root) * elementBytes_};
  }

  /// An all-reduce of one element: no rank leaves it before every rank has entered it.
  Call alignment(Collectives& collectives) const {
    return [&collectives, memory = aligned_](CUstream_st* stream) {
      auto* element = static_cast<float*>(memory.get());
      collectives.allReduce(element, element + 1, 1, DataType::FLOAT32, ReduceOp::SUM, stream);
    };
  }

  const Options& options_;
  const RankGroup& group_;
  const MeasuredDevice& device_;
  std::size_t elementBytes_;
  std::shared_ptr<void> wrong_;
  std::shared_ptr<void> aligned_;
  ModeTimer timer_;
};

}  // namespace

std::size_t measure(const Options& options, std::shared_ptr<Bootstrap> bootstrap, const MeasuredDevice& device) {
  const RankGroup group(*bootstrap);
  const auto communicator = std::make_shared<Communicator>(bootstrap);
  Collectives collectives(communicator, device.type,
                          options.algorithms.empty() ? Collectives::Algorithms::Selected : Collectives::Algorithms::All,
                          options.maxBlocks);
  const std::vector<CollectiveShape> shapes = shapesOf(options, group.size());
  std::unique_ptr<TraceRecording> recording;
  if (!options.traceFile.empty()) {
    recording = std::make_unique<TraceRecording>(options, group, collectives, device.backend,
                                                 callOf(options, shapes.front(), group.rank()));
  }
  std::unique_ptr<Nccl> nccl;
  if (options.nccl) nccl = std::make_unique<Nccl>(options.ncclLibrary, *bootstrap);
  Bench bench(options, group, device, collectives);
  std::size_t inputBytes = 0;
  std::size_t outputBytes = 0;
  for (const CollectiveShape& shape : shapes) {
    inputBytes = std::max(inputBytes, bench.inputBytes(shape));
    outputBytes = std::max(outputBytes, bench.outputBytes(shape));
  }
  auto all = implementations(options, group.size(), collectives, nccl.get(), device.backend, inputBytes, outputBytes);
  for (auto& plan : planImplementations(options, communicator, device.type, all.front())) all.push_back(plan);
  std::unique_ptr<Report> report;
  if (group.rank() == 0) {
    report = std::make_unique<Report>(options, group.size(),
                                      device.backend.description() + (nccl ? ", NCCL " + nccl->version() : ""));
    if (!options.plans.empty() && !collectives.isConcurrent()) report->printTurns();
  }

  kernels::TuningTable fastest;
  ComparedImplementations compared;
  std::size_t totalWrong = 0;
  std::size_t measured = 0;
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    const CollectiveShape& shape = shapes[s];
    const InputRule rule{1000 + s, options.op};
    if (report) report->progress(s, shapes.size(), shape.size() * sizeOf(options.type));
    std::vector<const Implementation*> supported;
    std::vector<std::size_t> wrong;
    for (const Implementation& implementation : all) {
      if (!implementation.supports(bench.call(implementation, shape))) continue;
      supported.push_back(&implementation);
      bench.fill(implementation, shape, rule);
      wrong.push_back(options.check ? bench.check(implementation, shape, rule) : 0);
      totalWrong += wrong.back();
    }
    measured += supported.size();
    const auto timings = bench.time(supported, shape);
    for (std::size_t i = 0; i < supported.size(); ++i) {
      const Implementation& implementation = *supported[i];
      if (recording && implementation.canRecord) {
        recording->add(bench.runnable(implementation, shape));
        implementation.check();
      }
      if (report) {
        const std::string algorithm = implementation.algorithmOf(bench.call(implementation, shape));
        Row row{implementation.name, algorithm, shape, timings[i], wrong[i]};
        if (implementation.goal && !supported.front()->goal) {
          row.comparison =
              compare(*implementation.goal, timings[i].slowest,
                      supported.front()->algorithmOf(bench.call(*supported.front(), shape)), timings.front().slowest);
          compared.try_emplace(implementation.name, ComparedSizes{*implementation.goal})
              .first->second.add(*row.comparison, shape.size() * sizeOf(options.type));
        }
        report->add(row);
        if (!implementation.algorithm.empty() && wrong[i] == 0) {
          CollectiveShape longest = shape;
          longest.count = std::size_t{1} << 45;
          const bool isUnlimited = implementation.supports(bench.call(implementation, longest));
          fastest.add(shape.count * sizeOf(options.type), implementation.algorithm, implementation.isRegistered,
                      isUnlimited || implementation.isRegistered, timings[i].slowest);
        }
      }
    }
  }
  group.barrier();  // no rank frees memory that a peer may still use
  if (measured == 0) {
    throw Error("none of these algorithms takes messages of these sizes, this type and operator",
                ErrorCode::InvalidUsage);
  }
  if (recording) recording->write(*bootstrap, report.get());
  if (report && !options.tuningFile.empty()) {
    fastest.writeTo(options.tuningFile, device.backend.deviceName(), group.size(), options.collective);
  }
  if (report) {
    report->printComparison(compared);
    report->printVerdict(totalWrong);
  }
  return totalWrong;
}

}  // namespace mscclpp::perf
