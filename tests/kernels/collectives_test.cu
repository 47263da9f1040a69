// The compiled collectives on GPUs, one process and GPU per rank.
#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "call_failure.cuh"
#include "checked_calls.cuh"
#include "element_types.hpp"
#include "every_collective.hpp"
#include "gpu_rank.cuh"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/cuda/gpu_memory.hpp"
#include "mscclpp/kernels/collectives.hpp"
#include "tests/host/trace/trace_file.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

/// One call with these inputs, `shift` elements off alignment; checks every byte and compares the ranks.
void checkCall(const GpuRank& rank, Collectives& collectives, cudaStream_t stream, DataType type, ReduceOp op,
               const std::vector<Bytes>& inputs, const std::string& algorithm, Output where, std::size_t shift) {
  const Bytes& input = inputs[static_cast<std::size_t>(rank.rank)];
  const std::size_t margin = 128;
  const std::size_t start = margin + shift * sizeOf(type);
  Bytes from(start + input.size() + margin, poisonByte);
  std::copy(input.begin(), input.end(), from.begin() + static_cast<std::ptrdiff_t>(start));
  const auto source = copyToGpu(from);
  const auto other = copyToGpu(Bytes(from.size(), poisonByte));
  auto* target = where == Output::InPlace ? source.get() : other.get();
  collectives.allReduce(source.get() + start, target + start, input.size() / sizeOf(type), type, op, stream, algorithm);
  MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
  collectives.check();
  Bytes all(from.size());
  gpuMemcpy(all.data(), target, all.size(), cudaMemcpyDeviceToHost);
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(start);
  const auto end = begin + static_cast<std::ptrdiff_t>(input.size());
  const Bytes output(begin, end);
  const std::string difference = describeDifference(type, op, inputs, output);
  CHECK(difference == "");
  CHECK(std::count(all.begin(), begin, poisonByte) == begin - all.begin());
  CHECK(std::count(end, all.end(), poisonByte) == all.end() - end);
  CHECK(sameOnAllRanks(*rank.bootstrap, hashOf(output)));
}

std::vector<std::string> algorithmsFor(const Collectives& collectives, std::size_t count, DataType type, ReduceOp op) {
  return test::algorithmsFor(collectives, allReduceOf(count, type, op));
}

/// Runs a call on copies of buffers in GPU memory, for checkCollective().
auto performer(Collectives& collectives, cudaStream_t stream) {
  return [&collectives, stream](CollectiveCall call, Bytes& from, Bytes* to) {
    const auto inputAt = reinterpret_cast<std::size_t>(call.input);
    const auto outputAt = reinterpret_cast<std::size_t>(call.output);
    const auto source = copyToGpu(from);
    const auto target = to == nullptr ? nullptr : copyToGpu(*to);
    if (call.input != nullptr) call.input = source.get() + inputAt;
    if (call.output != nullptr) call.output = (to == nullptr ? source : target).get() + outputAt;
    call.stream = stream;
    collectives.run(call);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    collectives.check();
    gpuMemcpy(from.data(), source.get(), from.size(), cudaMemcpyDeviceToHost);
    if (to != nullptr) gpuMemcpy(to->data(), target.get(), to->size(), cudaMemcpyDeviceToHost);
  };
}

}  // namespace

TEST_CASE("every element type with every operator and every algorithm") {
  runOnAllGpus("a rank with every element type");
}
TEST_CASE("a rank with every element type" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  unsigned calls = 0;
  for (const DataType type : elementTypes) {
    for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{8191}}) {
      const auto inputs = inputBytes(type, count, rank.ranks, static_cast<unsigned>(count));
      for (const ReduceOp op : operators) {
        for (const auto& algorithm : algorithmsFor(collectives, count, type, op)) {
          INFO("type " << static_cast<int>(type) << ", operator " << static_cast<int>(op) << ", " << algorithm);
          checkCall(rank, collectives, stream, type, op, inputs, algorithm,
                    calls % 2 == 0 ? Output::InPlace : Output::OtherBuffer, calls / 2 % 3);
          ++calls;
        }
      }
    }
  }
  rank.report(std::to_string(calls) + " calls over 14 element types, 5 operators and every algorithm, whole outputs");
}

TEST_CASE("lengths, alignment, in place") {
  runOnAllGpus("a rank with many lengths");
}
TEST_CASE("a rank with many lengths" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  unsigned calls = 0;
  for (const std::size_t count : {3, 1000, 4097, 16384, 65536, 100'003, 1'000'001, 5'000'003}) {
    for (const DataType type : {DataType::FLOAT32, DataType::BFLOAT16}) {
      if (type == DataType::FLOAT32 && count > 2'000'000) continue;
      const auto inputs = inputBytes(type, count, rank.ranks, ++calls);
      for (const auto& algorithm : algorithmsFor(collectives, count, type, ReduceOp::SUM)) {
        INFO(count << " elements, " << algorithm);
        for (const Output where : {Output::OtherBuffer, Output::InPlace}) {
          checkCall(rank, collectives, stream, type, ReduceOp::SUM, inputs, algorithm, where, calls++ % 3);
        }
      }
    }
  }
  rank.report(std::to_string(calls) + " calls of 3 to 5,000,003 elements, whole outputs");
}

TEST_CASE("every collective with every algorithm") {
  runOnAllGpus("a rank with every collective");
}
TEST_CASE("a rank with every collective" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const auto perform = performer(collectives, stream);
  unsigned calls = checkEveryCollective(collectives, rank.rank, rank.ranks, {1, 37, 4096, 65'536, 100'003},
                                        {DataType::BFLOAT16, DataType::FLOAT32, DataType::INT8}, perform);
  calls +=
      checkEveryCollective(collectives, rank.rank, rank.ranks, {2'000'000, 3'000'001}, {DataType::FLOAT16}, perform);
  calls += checkEveryCollective(collectives, rank.rank, rank.ranks, {999}, {elementTypes.begin(), elementTypes.end()},
                                perform);
  rank.report(std::to_string(calls) + " calls of 9 collectives, whole outputs");
}

/// Processes on one GPU take turns of some milliseconds, so that a call takes many of them: correctness only.
TEST_CASE("every collective with 3, 5, 6 and 7 ranks, several on a GPU where there are fewer") {
  for (const int ranks : {3, 5, 6, 7}) {
    if (ranks != gpus()) runAsProcesses(ranks, "a rank that may share a GPU", std::chrono::seconds(timeoutSeconds));
  }
}
TEST_CASE("a rank that may share a GPU" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const unsigned calls = checkEveryCollective(collectives, rank.rank, rank.ranks, {1, 4099, 100'003},
                                              {DataType::BFLOAT16}, performer(collectives, stream));
  rank.report(std::to_string(calls) + " calls of 9 collectives by " + std::to_string(rank.ranks) +
              " ranks, whole outputs");
}

TEST_CASE("every collective with registered buffers") {
  runOnAllGpus("a rank with registered buffers");
}
TEST_CASE("a rank with registered buffers" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  constexpr std::size_t bytes = 40 << 20;
  const auto source = detail::gpuCallocUnique<unsigned char>(bytes);
  const auto target = detail::gpuCallocUnique<unsigned char>(bytes);
  const auto sourceRegistration = collectives.registerBuffer(source.get(), bytes);
  const auto targetRegistration = collectives.registerBuffer(target.get(), bytes);
  const auto perform = [&](CollectiveCall call, Bytes& from, Bytes* to) {
    const auto inputAt = reinterpret_cast<std::size_t>(call.input);
    const auto outputAt = reinterpret_cast<std::size_t>(call.output);
    auto* const outputs = to == nullptr ? source.get() : target.get();
    REQUIRE(from.size() <= bytes);
    rank.bootstrap->barrier();  // no rank writes what another one still reads or has stored to
    gpuMemcpy(source.get(), from.data(), from.size(), cudaMemcpyHostToDevice);
    if (to != nullptr) gpuMemcpy(target.get(), to->data(), to->size(), cudaMemcpyHostToDevice);
    if (call.input != nullptr) call.input = source.get() + inputAt;
    if (call.output != nullptr) call.output = outputs + outputAt;
    call.stream = stream;
    rank.bootstrap->barrier();
    collectives.run(call);
    MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
    collectives.check();
    gpuMemcpy(from.data(), source.get(), from.size(), cudaMemcpyDeviceToHost);
    if (to != nullptr) gpuMemcpy(to->data(), target.get(), to->size(), cudaMemcpyDeviceToHost);
  };
  const unsigned calls = checkEveryCollective(collectives, rank.rank, rank.ranks, {1, 999, 65'536, 3'000'001},
                                              {DataType::BFLOAT16, DataType::UINT8}, perform, target.get());
  rank.report(std::to_string(calls) + " calls with registered buffers, whole outputs");
  rank.bootstrap->barrier();
}

TEST_CASE("recorded calls: the same results, and one clock for all GPUs") {
  runOnAllGpus("a rank that records");
}
TEST_CASE("a rank that records" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  const auto trace = collectives.makeTrace();
  collectives.record(trace);
  std::size_t calls = 0;
  for (const std::size_t count : {1001, 16'384, 1'000'001}) {
    const auto inputs = inputBytes(DataType::FLOAT32, count, rank.ranks, 7);
    for (const auto& algorithm : algorithmsFor(collectives, count, DataType::FLOAT32, ReduceOp::SUM)) {
      INFO(count << " elements, " << algorithm);
      checkCall(rank, collectives, stream, DataType::FLOAT32, ReduceOp::SUM, inputs, algorithm, Output::OtherBuffer,
                calls++ % 2);
    }
    trace->collect();
  }
  CHECK(trace->lost() == 0);
  const TemporaryFile file("gpus.json");  // only rank 0's is written
  writeTrace(file.path(), *trace, *rank.bootstrap);
  if (rank.rank == 0) {
    const Json json = file.read();
    double error = 0;  // microseconds
    for (const Json& summary : json.at("otherData").at("ranks")) {
      error = std::max(error, summary.at("clockErrorNanoseconds").get<double>() / 1000);
    }
    CHECK(error < 100);
    // On one clock, a call starts after the host has launched it, and ends on no rank before it has started on all.
    std::vector<double> begun(calls, 0), ended(calls, 1e300);
    int blocks = 0;
    for (const auto& [key, track] : tracksOf(json)) {
      if (track.name != "block 0") continue;
      ++blocks;
      const auto spans = spansOf(track, "all_reduce");
      REQUIRE(spans.size() == calls);
      for (std::size_t i = 0; i < calls; ++i) {
        begun[i] = std::max(begun[i], spans[i].begin);
        ended[i] = std::min(ended[i], spans[i].end);
      }
    }
    CHECK(blocks == rank.ranks);
    // The resolution of the globaltimer adds to the error on both sides.
    for (std::size_t i = 0; i < calls; ++i) CHECK(begun[i] < ended[i] + 2 * error + 2);
    rank.report(std::to_string(calls) + " recorded calls, clocks within " + std::to_string(error) + " us");
  }
  rank.bootstrap->barrier();
}

TEST_CASE("without LL128 where lines may be split") {
  runOnAllGpus("a rank whose lines may be split");
}
TEST_CASE("a rank whose lines may be split" * doctest::skip()) {
  ::setenv("MSCCLPP_LL128", std::getenv("MSCCLPP_TEST_RANK") == std::string("0") ? "off" : "auto",
           1);  // before the library reads it
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  for (const auto& name : collectives.algorithms()) CHECK(name.find("ll128") == std::string::npos);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  for (const std::size_t count : {std::size_t{100}, std::size_t{20000}, std::size_t{300000}}) {
    const auto inputs = inputBytes(DataType::BFLOAT16, count, rank.ranks, 1);
    CHECK(collectives.selectedAlgorithm(allReduceOf(count, DataType::BFLOAT16, ReduceOp::SUM)).find("ll128") ==
          std::string::npos);
    checkCall(rank, collectives, stream, DataType::BFLOAT16, ReduceOp::SUM, inputs, "", Output::OtherBuffer, 0);
  }
  rank.report("LL128 switched off by one rank");
}

TEST_CASE("1,000 replays of a graph give the same bits on all ranks") {
  runOnAllGpus("a rank that replays a graph");
}
TEST_CASE("a rank that replays a graph" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  constexpr int replays = 1000;
  int graphs = 0;
  for (const std::size_t count : {1001, 60'000}) {
    for (const DataType type : {DataType::BFLOAT16, DataType::FLOAT32}) {
      const auto inputs = inputBytes(type, count, rank.ranks, 99);
      const auto input = copyToGpu(inputs[static_cast<std::size_t>(rank.rank)]);
      const std::size_t bytes = count * sizeOf(type);
      const auto output = detail::gpuCallocUnique<unsigned char>(bytes);
      for (const auto& algorithm : algorithmsFor(collectives, count, type, ReduceOp::SUM)) {
        CAPTURE(algorithm);
        const auto hash = detail::gpuCallocUnique<unsigned long long>();
        const auto hashNow = [&] {
          MSCCLPP_CUDATHROW(cudaStreamSynchronize(stream));
          collectives.check();
          unsigned long long value = 0;
          gpuMemcpy(&value, hash.get(), 1, cudaMemcpyDeviceToHost);
          return value;
        };
        const Graph graph(stream, [&] {
          collectives.allReduce(input.get(), output.get(), count, type, ReduceOp::SUM, stream, algorithm);
          addHash<<<32, 256, 0, stream>>>(output.get(), bytes, 0, hash.get());
          MSCCLPP_CUDATHROW(cudaGetLastError());
        });
        graph.launch();
        const auto once = hashNow();
        for (int i = 1; i < replays; ++i) graph.launch();
        const auto total = hashNow();
        CHECK(total == once * replays);
        CHECK(sameOnAllRanks(*rank.bootstrap, once));
        ++graphs;
      }
    }
  }
  rank.report(std::to_string(graphs) + " graphs replayed 1,000 times, hashes of all outputs");
}

TEST_CASE("100,000 calls of ranks that are randomly late") {
  runOnAllGpus("a rank that comes late");
}
TEST_CASE("a rank that comes late" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  constexpr int callsPerGraph = 100;
  constexpr int rounds = 1000;
  constexpr std::size_t longest = 300'000;
  CheckedCalls calls(rank, collectives, longest);
  std::mt19937_64 random(11);  // the same calls on every rank
  const Graph graph(calls.stream(), [&] {
    for (int call = 0; call < callsPerGraph; ++call) {
      const std::size_t count =
          call % 25 == 24 ? longest - random() % 1000 : 1 + random() % (call % 2 == 0 ? 300 : 20'000);
      const auto names = algorithmsFor(collectives, count, DataType::FLOAT32, ReduceOp::SUM);
      calls.enqueue(sumOf(count, names[random() % names.size()]));
    }
    calls.enqueueNextRound();
  });
  for (int round = 0; round < rounds; ++round) graph.launch();
  CHECK(calls.wrongElements() == 0);
  rank.report(std::to_string(callsPerGraph * rounds) + " calls with random delays, whole outputs");
}

TEST_CASE("a graph replayed while the epoch passes 2^32") {
  runOnAllGpus("a rank whose call number wraps");
}
TEST_CASE("a rank whose call number wraps" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  constexpr std::size_t longest = 20'000;
  CheckedCalls calls(rank, collectives, longest);
  const auto names = algorithmsFor(collectives, longest, DataType::FLOAT32, ReduceOp::SUM);
  const Graph graph(calls.stream(), [&] {
    for (const auto& name : names) {
      calls.enqueue(sumOf(longest, name));
      calls.enqueue(sumOf(7, name));
      calls.enqueue(sumOf(longest, name));
      calls.enqueue(sumOf(longest / 2, name));
      calls.enqueue(sumOf(longest, name));
    }
    calls.enqueueNextRound();
  });
  graph.launch();
  CHECK(calls.wrongElements() == 0);
  rank.bootstrap->barrier();
  collectives.setEpoch((std::uint64_t{1} << 32) - 20);
  for (int replay = 0; replay < 20; ++replay) graph.launch();
  CHECK(calls.wrongElements() == 0);
  rank.report("100 calls of each algorithm from epoch 2^32 - 20 on");
}

TEST_CASE("two contexts on two streams at once") {
  runOnAllGpus("a rank with two streams");
}
TEST_CASE("a rank with two streams" * doctest::skip()) {
  GpuRank rank;
  Collectives first(rank.communicator, DeviceType::GPU, Collectives::Algorithms::Selected, 16);
  Collectives second(rank.communicator, DeviceType::GPU, Collectives::Algorithms::Selected, 16);
  REQUIRE(first.isConcurrent());
  REQUIRE(second.isConcurrent());
  constexpr std::size_t longest = 4096;
  CheckedCalls one(rank, first, longest);
  CheckedCalls two(rank, second, longest);
  // Loading a kernel may wait for running ones, so load all first.
  const auto enqueueRound = [&](CheckedCalls& calls, unsigned seed) {
    std::mt19937_64 random(seed);
    for (int call = 0; call < 50; ++call) calls.enqueue(sumOf(1 + random() % longest));
    calls.enqueueNextRound();
  };
  enqueueRound(one, 1);
  CHECK(one.wrongElements() == 0);
  enqueueRound(two, 2);
  CHECK(two.wrongElements() == 0);
  const Graph graphOne(one.stream(), [&] { enqueueRound(one, 3); });
  const Graph graphTwo(two.stream(), [&] { enqueueRound(two, 4); });
  rank.bootstrap->barrier();
  for (int round = 0; round < 100; ++round) {
    // Ranks start the two in different orders.
    if ((round + rank.rank) % 2 == 0) {
      graphOne.launch();
      graphTwo.launch();
    } else {
      graphTwo.launch();
      graphOne.launch();
    }
  }
  CHECK(one.wrongElements() == 0);
  CHECK(two.wrongElements() == 0);
  rank.report("5,000 calls on each of two streams at once");
}

namespace {

/// Makes all-reduces until one fails.
Failure reduceUntilFailure(Collectives& collectives, cudaStream_t stream, std::size_t count) {
  const auto values = detail::gpuCallocUnique<float>(count);
  const auto enqueue = [&] {
    collectives.allReduce(values.get(), values.get(), count, DataType::FLOAT32, ReduceOp::SUM, stream);
  };
  return callUntilFailure(stream, enqueue, [&] { collectives.check(); });
}

void testRankLoss(std::size_t count) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  if (rank.rank == rank.ranks - 1) killSoon();
  const auto failure = reduceUntilFailure(collectives, stream, count);
  checkFailure(failure, ErrorCode::RemoteError, "rank " + std::to_string(rank.ranks - 1) + " failed");
  CHECK_THROWS_AS(collectives.check(), Error);
  rank.report("a killed rank was named after " + std::to_string(failure.seconds) + " s: " + failure.text);
}

}  // namespace

TEST_CASE("a killed rank is named to the others within 5 s, and their kernels end") {
  runOnAllGpus("a rank that loses another in short calls", gpus() - 1);
  runOnAllGpus("a rank that loses another in long calls", gpus() - 1);
}
TEST_CASE("a rank that loses another in short calls" * doctest::skip()) {
  testRankLoss(1000);
}
TEST_CASE("a rank that loses another in long calls" * doctest::skip()) {
  testRankLoss(20'000'000);
}

TEST_CASE("a rank that does not call: waits time out") {
  runOnAllGpus("a rank whose wait times out");
}
TEST_CASE("a rank whose wait times out" * doctest::skip()) {
  ::setenv("MSCCLPP_WAIT_TIMEOUT", "0.5", 1);
  GpuRank rank;
  for (const std::size_t count : {std::size_t{1000}, std::size_t{20'000'000}}) {
    Collectives collectives(rank.communicator, DeviceType::GPU);
    const CudaStreamWithFlags stream(cudaStreamNonBlocking);
    if (rank.rank != 1) {
      const auto failure = reduceUntilFailure(collectives, stream, count);
      checkFailure(failure, ErrorCode::Timeout, "past its deadline");
      rank.report("a wait timed out after " + std::to_string(failure.seconds) + " s: " + failure.text);
    }
    rank.bootstrap->barrier();
  }
}

TEST_CASE("abort from another thread ends the kernels") {
  runOnAllGpus("a rank that is aborted");
}
TEST_CASE("a rank that is aborted" * doctest::skip()) {
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU);
  const CudaStreamWithFlags stream(cudaStreamNonBlocking);
  if (rank.rank == 0) {
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      rank.communicator->abort();
    });
    const auto failure = reduceUntilFailure(collectives, stream, 1000);
    other.join();
    checkFailure(failure, ErrorCode::Aborted, "aborted");
    rank.report("abort() ended the kernels");
  }
  rank.bootstrap->barrier();
}

namespace {

/// For CUDA_VISIBLE_DEVICES: the name of a GPU in every process.
std::string uuidOf(int device) {
  cudaDeviceProp properties{};
  MSCCLPP_CUDATHROW(cudaGetDeviceProperties(&properties, device));
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

/// Whether all GPUs have native atomics on each other: then LL128 is to be used.
bool allLinked() {
  for (int from = 0; from < gpus(); ++from) {
    for (int to = 0; to < gpus(); ++to) {
      int atomics = 1;
      if (from != to) {
        MSCCLPP_CUDATHROW(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to));
      }
      if (atomics == 0) return false;
    }
  }
  return true;
}

}  // namespace

TEST_CASE("ranks that see one GPU each run the same algorithms, LL128 included") {
  std::vector<std::string> variables;
  for (int device = 0; device < gpus(); ++device) variables.push_back("CUDA_VISIBLE_DEVICES=" + uuidOf(device));
  const char* testCase = allLinked() ? "one process sees one GPU" : "one process sees one GPU without NVLink";
  runAsProcesses(gpus(), testCase, std::chrono::seconds(timeoutSeconds), -1, variables);
}
TEST_CASE("one process sees one GPU" * doctest::skip()) {
  REQUIRE(gpus() == 1);
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  CudaStreamWithFlags stream(cudaStreamNonBlocking);
  for (const char* name : {"one_shot_ll128", "two_shot_ll128"}) {
    CAPTURE(name);
    CHECK(collectives.supports(allReduceOf(1024, DataType::FLOAT32, ReduceOp::SUM, name)));
  }
  CheckedCalls calls(rank, collectives, 1 << 18);
  for (const std::size_t count : {std::size_t{1} << 10, std::size_t{1} << 16}) {
    for (const auto& name : algorithmsFor(collectives, count, DataType::FLOAT32, ReduceOp::SUM)) {
      calls.enqueue(sumOf(count, name));
    }
  }
  CHECK(calls.wrongElements() == 0);
  rank.bootstrap->barrier();
}
TEST_CASE("one process sees one GPU without NVLink" * doctest::skip()) {
  REQUIRE(gpus() == 1);
  GpuRank rank;
  Collectives collectives(rank.communicator, DeviceType::GPU, Collectives::Algorithms::All);
  CHECK_FALSE(collectives.supports(allReduceOf(1024, DataType::FLOAT32, ReduceOp::SUM, "one_shot_ll128")));
  rank.bootstrap->barrier();
}
