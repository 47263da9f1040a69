// Plans executed on CPU ranks, one rank per thread.
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>

#include "executor_cases.hpp"
#include "kernels/plan/plan_source.hpp"
#include "kernels/plan/proofs.hpp"
#include "kernels/plan/recently_used.hpp"
#include "mscclpp/algorithm.hpp"
#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/kernels/dsl_algorithm.hpp"
#include "mscclpp/kernels/plan/json.hpp"
#include "mscclpp/kernels/plan/library.hpp"
#include "mscclpp/kernels/plan/text.hpp"
#include "mscclpp/kernels/plan/xml.hpp"
#include "mscclpp/plan/program.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/host/spawned_ranks.hpp"
#include "tests/kernels/element_types.hpp"

using namespace mscclpp;
using namespace mscclpp::test;

namespace {

struct Rank {
  std::shared_ptr<Communicator> communicator;
  Bootstrap& bootstrap;
  int rank;
  int ranks;
};

void onRanks(int ranks, const std::function<void(const Rank&)>& body) {
  runAsThreads(ranks, [&](std::shared_ptr<Bootstrap> bootstrap) {
    body({std::make_shared<Communicator>(bootstrap), *bootstrap, bootstrap->getRank(), ranks});
    bootstrap->barrier();
  });
}

/// Memory for a message, poisoned: of the process, or memory that peers can map.
class TestMemory {
 public:
  TestMemory(std::size_t bytes, bool isShared) : own_(isShared ? 0 : bytes), shared_(isShared ? bytes : 0) {
    std::memset(data(), poisonByte, bytes);
  }
  std::byte* data() { return own_.empty() ? static_cast<std::byte*>(shared_.data()) : own_.data(); }

 private:
  std::vector<std::byte> own_;
  HostBuffer shared_;
};

/// The memory of a rank's calls: an input and an output buffer.
class Buffers {
 public:
  Buffers(std::size_t bytes, bool isShared) : bytes_(bytes), in_(bytes, isShared), out_(bytes, isShared) {}

  /// A call at an offset that differs among the ranks. The whole memory of the output is compared.
  template <class T, class Op = Sum>
  void check(Executor& executor, const Rank& rank, const ExecutionPlan& plan, std::size_t count, unsigned seed,
             PacketType packets = PacketType::LL16) {
    const std::size_t offset = (seed % 3 + static_cast<std::size_t>(rank.rank)) * sizeof(T);
    const auto message = planMessage<T, Op>(plan.plan(), rank.rank, count, seed);
    auto* const to = plan.isInPlace() ? in_.data() : out_.data();
    std::vector<std::byte> expected(bytes_, static_cast<std::byte>(poisonByte));
    std::memset(to, poisonByte, bytes_);
    std::memcpy(in_.data() + offset, message.input.data(), count * sizeof(T));
    std::memcpy(expected.data() + offset, message.expected.data(), message.expected.size() * sizeof(T));
    rank.bootstrap.barrier();  // peers write the output
    executor.execute(rank.rank, in_.data() + offset, to + offset, count * sizeof(T),
                     message.expected.size() * sizeof(T), dataTypeOf<T>, plan, nullptr, packets, valueOf<Op>);
    rank.bootstrap.barrier();
    CHECK_MESSAGE(std::memcmp(expected.data(), to, bytes_) == 0, "plan ", plan.name(), ", ", count, " elements, rank ",
                  rank.rank);
  }

 private:
  std::size_t bytes_;
  TestMemory in_;
  TestMemory out_;
};

constexpr std::size_t scratchBytes = std::size_t{8} << 20;

TEST_CASE("every plan with every count, for buffers that are registered or copied") {
  for (const int ranks : thinned({2, 3, 8}, {3})) {
    onRanks(ranks, [&](const Rank& rank) {
      Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
      unsigned seed = 0;
      for (const bool isShared : {false, true}) {
        Buffers buffers(1 << 20, isShared);
        for (const plan::SamplePlan& sample : plan::samplePlans(rank.ranks)) {
          const ExecutionPlan plan = executionPlan(sample.plan, rank.rank, sample.name);
          for (const std::size_t count : thinned<std::size_t>({1, 5, 64, 1001, 20000, 7}, {5, 20000, 7})) {
            const PacketType packets = seed % 2 == 0 ? PacketType::LL16 : PacketType::LL8;
            buffers.check<float>(executor, rank, plan, count, ++seed, packets);
          }
        }
        executor.reset();  // other memory may get the same addresses, on some of the ranks
        rank.bootstrap.barrier();
      }
    });
  }
}

int openDescriptors() {
  int count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

TEST_CASE("calls with other numbers of iterations follow each other, with the same memory") {
  onRanks(3, [&](const Rank& rank) {
    Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
    Buffers buffers(1 << 20, true);
    const ExecutionPlan plan = executionPlan(plan::oneShotInPlacePlan(rank.ranks, 64), rank.rank, "loop");
    buffers.check<float>(executor, rank, plan, 100, 1);
    buffers.check<float>(executor, rank, plan, 3000, 2);  // other room in the scratch
    rank.bootstrap.barrier();
    const int before = openDescriptors();
    for (unsigned call = 0; call < 60; ++call)
      buffers.check<float>(executor, rank, plan, call % 3 == 0 ? 5 : 30 + 41 * call, call);
    rank.bootstrap.barrier();
    CHECK(openDescriptors() <= before + 12);
  });
}

TEST_CASE("what calls keep does not grow with their sizes") {
  onRanks(2, [&](const Rank& rank) {
    Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
    const ExecutionPlan plan = executionPlan(plan::twoShotPlan(rank.ranks), rank.rank);
    for (const bool isShared : {true, false}) {
      constexpr std::size_t most = 1 << 16;
      Buffers buffers(most, isShared);
      buffers.check<float>(executor, rank, plan, 4000, 0);
      rank.bootstrap.barrier();
      const ExecutorMemory first = executor.memory();
      CHECK(first.buffers == 1);
      CHECK((first.stagingBytes == 0) == isShared);
      // Seeds that are multiples of 3: at the same addresses.
      for (unsigned call = 1; call < 150; ++call)
        buffers.check<float>(executor, rank, plan, 1 + call * 1237 % 16000, 3 * call);
      const ExecutorMemory all = executor.memory();
      CHECK(all.buffers <= 150);  // an address may depend on the size
      CHECK(all.contexts <= 2);   // by the room of the scratch's chunks
      CHECK(all.scratchBytes <= 2 * first.scratchBytes + (std::size_t{4} << 16));
      CHECK(all.stagingBytes <= (isShared ? 0 : all.contexts * 2 * most * 9 / 8));
      rank.bootstrap.barrier();
      executor.reset();
      CHECK(executor.memory().contexts == 0);
      rank.bootstrap.barrier();
    }
  });
}

TEST_CASE("what calls keep is bounded for any number of buffers") {
  onRanks(2, [&](const Rank& rank) {
    Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
    const ExecutionPlan plan = executionPlan(plan::twoShotPlan(rank.ranks), rank.rank);
    int descriptors = 0;
    const auto call = [&](float* in, unsigned seed) {
      const auto message = planMessage<float>(plan.plan(), rank.rank, 5, seed);
      std::memcpy(in, message.input.data(), 20);
      rank.bootstrap.barrier();
      executor.execute(rank.rank, in, in + 8, 20, 20, DataType::FLOAT32, plan, nullptr);
      return std::memcmp(in + 8, message.expected.data(), 20) == 0;
    };
    constexpr unsigned pairs = 1200;
    HostBuffer memory(pairs * 64);
    bool isRight = true;
    std::size_t most = 0;
    for (unsigned i = 0; i < pairs; ++i) {
      isRight = isRight && call(static_cast<float*>(memory.data()) + 16 * i, i);
      most = std::max(most, executor.memory().buffers);
      if (i != 100) continue;
      rank.bootstrap.barrier();
      descriptors = openDescriptors();
    }
    // Released ones are set up again.
    for (const unsigned i : {0u, pairs - 1, 1u})
      isRight = isRight && call(static_cast<float*>(memory.data()) + 16 * i, i);
    CHECK(isRight);
    CHECK(most == 1024);
    CHECK(executor.memory().contexts == 1);
    rank.bootstrap.barrier();
    CHECK(openDescriptors() <= descriptors + 4);
    rank.bootstrap.barrier();
  });
}

TEST_CASE("ranks release the same entries, and none that a graph of any rank uses") {
  using Table = kernels::RecentlyUsed<int, int>;
  Table first(8), second(8);
  const auto forBoth = [&](const auto& step) {
    for (Table* const table : {&first, &second}) step(*table);
  };
  const auto release = [&] {
    const std::vector<std::vector<char>> uses{first.uses(), second.uses()};
    forBoth([&](Table& table) {
      CHECK(table.isFull());
      table.release(uses);
      CHECK_FALSE(table.isFull());
    });
  };
  const auto has = [&](const std::vector<int>& expected) {
    forBoth([&](Table& table) {
      bool hasAll = table.size() == expected.size();
      for (const int key : expected) hasAll = hasAll && table.find(key) != nullptr && table.find(key)->value == -key;
      CHECK(hasAll);
    });
  };
  const auto add = [&](int key) {
    forBoth([&](Table& table) {
      CHECK_FALSE(table.isFull());
      table.add(key, -key);
    });
  };
  for (int key = 0; key < 8; ++key) add(key);
  forBoth([](Table& table) { table.touch(*table.find(1)); });
  second.touch(*second.find(0));  // in a call that has thrown on the first rank
  CHECK(first.findNotLess(-5)->key == 0);
  CHECK(first.findNotLess(8) == nullptr);
  release();
  has({1, 3, 4, 5, 6, 7});
  add(8);
  add(9);
  first.find(3)->isCaptured = true;
  second.find(5)->isCaptured = true;
  release();
  has({1, 3, 4, 5, 6, 7, 8, 9});
  add(10);
  add(11);
  release();
  has({1, 3, 5, 7, 8, 9, 10, 11});
  second.add(12, -12);
  CHECK_THROWS_WITH_AS(first.release({first.uses(), second.uses()}), doctest::Contains("make the same calls"), Error);
}

TEST_CASE("every type and operator") {
  onRanks(3, [&](const Rank& rank) {
    Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
    Buffers buffers(4096, true);
    const ExecutionPlan ring = executionPlan(plan::ringPlan(rank.ranks), rank.rank);
    const ExecutionPlan packets = executionPlan(plan::twoShotPacketPlan(rank.ranks), rank.rank);
    unsigned seed = 0;
    for (const DataType type : combinedTypes) {
      visit(
          type,
          [&](auto tag) {
            using T = typename decltype(tag)::Type;
            buffers.check<T, Sum>(executor, rank, ring, 77, ++seed);
            buffers.check<T, Product>(executor, rank, packets, 77, ++seed);
            buffers.check<T, Min>(executor, rank, ring, 77, ++seed);
            buffers.check<T, Max>(executor, rank, packets, 77, ++seed);
          },
          [] {});
    }
  });
}

TEST_CASE("averages divide once, in the last reduction") {
  for (const int ranks : {2, 4}) {
    onRanks(ranks, [&](const Rank& rank) {
      Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
      Buffers buffers(1 << 15, true);
      unsigned seed = 0;
      const auto check = [&](plan::Plan plan, const char* name) {
        const ExecutionPlan named = executionPlan(plan, rank.rank, name);
        for (const std::size_t count : {1, 64, 1001})
          buffers.check<double, Average>(executor, rank, named, count, ++seed);
      };
      for (const plan::SamplePlan& sample : plan::samplePlans(ranks)) {
        if (sample.plan.collective == plan::CollectiveKind::AllReduce) check(sample.plan, sample.name.c_str());
      }
      for (const char* name : {"all_reduce_tree", "all_reduce_halving_doubling", "all_reduce_double_tree"}) {
        check(plan::makeLibraryPlan(name, {.ranks = ranks}), name);
      }
    });
  }
}

TEST_CASE("plans with port channels") {
  for (const int ranks : {2, 3}) {
    onRanks(ranks, [&](const Rank& rank) {
      Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
      for (const bool isShared : {false, true}) {
        Buffers buffers(1 << 16, isShared);
        const auto plan = executionPlan(plan::twoShotPlan(rank.ranks, 2, 0, plan::Access::Port), rank.rank);
        for (const unsigned count : {10, 1000, 3333, 10}) buffers.check<float>(executor, rank, plan, count, count);
        executor.reset();  // other memory may get the same addresses, on some of the ranks
        rank.bootstrap.barrier();
      }
    });
  }
}

/// In place: every rank reads the others' inputs, which are parts of their outputs.
plan::Plan pullingAllGather(int ranks) {
  plan::Program program({.collective = plan::CollectiveKind::AllGather, .ranks = ranks, .inPlace = true});
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<int> peers;
    for (int peer = 0; peer < ranks; ++peer)
      if (peer != rank) peers.push_back(peer);
    auto block = program.block(rank, 0);
    block.signal(peers).wait(peers);
    for (const int peer : peers) block.copy(plan::input(peer, 0), plan::output(rank, peer));
    block.signal(peers).wait(peers);
  }
  return program.finish();
}

TEST_CASE("in place, a rank's part lies at its own place, in buffers that are registered or copied") {
  onRanks(3, [&](const Rank& rank) {
    Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
    const ExecutionPlan plan = executionPlan(pullingAllGather(3), rank.rank);
    constexpr int count = 100;
    for (const bool isShared : {false, true}) {
      TestMemory memory(3 * count * sizeof(int), isShared);
      auto* const output = reinterpret_cast<int*>(memory.data());
      int* const input = output + count * rank.rank;
      for (int i = 0; i < count; ++i) input[i] = 1000 * rank.rank + i;
      executor.execute(rank.rank, input, output, count * sizeof(int), 3 * count * sizeof(int), DataType::INT32, plan,
                       nullptr);
      bool isRight = true;
      for (int i = 0; i < 3 * count; ++i) isRight = isRight && output[i] == 1000 * (i / count) + i % count;
      CHECK(isRight);
      rank.bootstrap.barrier();
      executor.reset();
      rank.bootstrap.barrier();
    }
  });
}

/// Rank 0 sends its input to rank 1; `relays`: through the scratch of rank 2, which otherwise does nothing.
plan::Plan sendToRankOne(bool relays) {
  plan::Program program({.collective = plan::CollectiveKind::Custom, .ranks = 3});
  program.setChunks(0, 1, 0);
  program.setChunks(1, 0, 1);
  program.setChunks(2, 0, 0);
  program.expect(plan::output(1, 0), {plan::input(0, 0)});
  auto sender = program.block(0, 0), receiver = program.block(1, 0);
  if (relays) {
    auto relay = program.block(2, 0);
    relay.signal(0);
    sender.wait(2).copy(plan::input(0, 0), plan::scratch(2, 0)).signal(2);
    receiver.signal(2);
    relay.wait(0).wait(1).copy(plan::scratch(2, 0), plan::output(1, 0)).signal(1);
    receiver.wait(2);
  } else {
    receiver.signal(0);
    sender.wait(1).copy(plan::input(0, 0), plan::output(1, 0)).signal(1);
    receiver.wait(0);
  }
  return program.finish();
}

TEST_CASE("a rank without data takes part in calls whose sizes it does not know") {
  for (const bool relays : {false, true}) {
    onRanks(3, [&](const Rank& rank) {
      Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
      const ExecutionPlan plan = executionPlan(sendToRankOne(relays), rank.rank);
      HostBuffer first(1 << 18), second(1 << 18);
      const auto call = [&](HostBuffer& buffer, std::size_t count) {
        auto* const data = static_cast<float*>(buffer.data());
        for (std::size_t i = 0; i < count; ++i) data[i] = rank.rank == 0 ? static_cast<float>(i + count) : -1.0f;
        const std::size_t in = rank.rank == 0 ? 4 * count : 0, out = rank.rank == 1 ? 4 * count : 0;
        executor.execute(rank.rank, in != 0 ? data : nullptr, out != 0 ? data : nullptr, in, out, DataType::FLOAT32,
                         plan, nullptr);
        bool isRight = true;
        for (std::size_t i = 0; i < count; ++i) isRight = isRight && data[i] == static_cast<float>(i + count);
        CHECK(isRight == (rank.rank != 2 || count == 0));
      };
      for (const std::size_t count : {100, 100, 30000, 5, 0, 65536}) {
        call(first, count);
        call(second, count);
      }
      CHECK_THROWS_WITH_AS(executor.execute(rank.rank, first.data(), first.data(), rank.rank == 0 ? 8 : 0,
                                            rank.rank == 1 ? 4 : 0, DataType::FLOAT32, plan, nullptr),
                           doctest::Contains("all ranks must pass messages of the same size"), Error);
      CHECK_THROWS_WITH_AS(executor.execute(rank.rank, first.data(), first.data(), rank.rank == 0 ? 7 : 0,
                                            rank.rank == 1 ? 8 : 0, DataType::FLOAT32, plan, nullptr),
                           doctest::Contains(rank.rank == 0 ? "the input has 7 bytes" : "rank 0"), Error);
      call(first, 64);
      rank.bootstrap.barrier();
    });
  }
}

TEST_CASE("repeated calls, and the set-up again after reset()") {
  onRanks(2, [&](const Rank& rank) {
    Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
    Buffers buffers(4096, true);
    const ExecutionPlan plan = executionPlan(plan::oneShotPacketPlan(rank.ranks, 2), rank.rank);
    for (int round = 0; round < 2; ++round) {
      for (unsigned call = 0; call < 100; ++call) buffers.check<float>(executor, rank, plan, 1 + call * 7 % 500, call);
      executor.reset();
    }
  });
}

TEST_CASE("a plan of a file") {
  plan::NamedPlan named;
  static_cast<plan::Plan&>(named) = plan::twoShotPacketPlan(2);
  named.name = "from a file";
  const std::string path = "executor_test_plan.json";
  std::ofstream(path) << plan::toJson(named);
  onRanks(2, [&](const Rank& rank) {
    const ExecutionPlan plan(path, rank.rank);
    CHECK(plan.name() == "from a file");
    CHECK(plan.collective() == "allreduce");
    CHECK_FALSE(plan.isInPlace());
    CHECK(plan.contentHash() == ExecutionPlan(path, 1 - rank.rank).contentHash());
    Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
    Buffers(1 << 14, true).check<float>(executor, rank, plan, 1000, 1);
  });
  // Cut short: the error names the file.
  const std::string text = plan::toJson(named);
  std::ofstream(path, std::ios::trunc) << text.substr(0, text.size() / 2);
  CHECK_THROWS_WITH_AS(ExecutionPlan(path, 0), doctest::Contains((path + ": plan: this is not JSON").c_str()), Error);
  std::ofstream(path, std::ios::trunc);
  CHECK_THROWS_WITH_AS(ExecutionPlan(path, 0), doctest::Contains((path + " is empty").c_str()), Error);
  for (const std::string& form : {plan::toText(named), plan::toXml(named)}) {
    std::ofstream(path, std::ios::trunc) << form;
    CHECK(ExecutionPlan(path, 1).name() == "from a file");
  }
  std::ofstream(path, std::ios::trunc) << "{}";
  CHECK_THROWS_WITH_AS(ExecutionPlan(path, 0), doctest::Contains(path.c_str()), Error);
  std::filesystem::remove(path);
  CHECK_THROWS_WITH_AS(ExecutionPlan("no such file", 0), doctest::Contains("no such file cannot be read"), Error);
  CHECK_THROWS_WITH_AS(ExecutionPlan(".", 0), doctest::Contains("the file . cannot be read"), Error);
  CHECK_THROWS_WITH_AS(ExecutionPlan(plan::NamedPlan{}, 0), doctest::Contains("plan"), Error);
}

TEST_CASE("a plan that is a constant runs in a kernel of the caller's, in calls among the executor's own") {
  onRanks(2, [&](const Rank& rank) {
    const ExecutionPlan plan = executionPlan(constantTwoShot(), rank.rank);
    Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
    std::vector<float> input(1001), output(1001);
    GridBarrier barrier{};
    float value = 0;
    int launches = 0;
    const auto launch = [&](const PlanKernel& kernel) {
      ++launches;
      CHECK(kernel.blocks == 2);
      CHECK(kernel.threads % 32 == 0);
      plan::withStaticRank<ConstantTwoShot>(rank.rank, [&]<int own>() {
        emulation::launch<32>({.blocks = kernel.blocks, .threads = 32}, [&](int, const auto& grid) {
          produceReduceDouble<own>(grid, kernel.args, &barrier, static_cast<float*>(kernel.input),
                                   static_cast<float*>(kernel.output), input.size(), value + static_cast<float>(own));
        });
      });
    };
    const std::size_t bytes = input.size() * sizeof(float);
    for (int call = 1; call <= 3; ++call) {
      value = static_cast<float>(call);
      executor.execute(rank.rank, input.data(), output.data(), bytes, bytes, DataType::FLOAT32, plan, nullptr, launch);
      CHECK(launches == call);
      CHECK(output == doubledSums(output.size(), value));
      std::fill(input.begin(), input.end(), 3.0f);
      executor.execute(rank.rank, input.data(), output.data(), bytes, bytes, DataType::FLOAT32, plan, nullptr);
      CHECK(output == std::vector<float>(output.size(), 6.0f));
    }
    executor.execute(rank.rank, nullptr, nullptr, 0, 0, DataType::FLOAT32, plan, nullptr, launch);
    CHECK(launches == 3);
    CHECK_THROWS_WITH_AS(executor.execute(rank.rank, input.data(), output.data(), bytes, bytes, DataType::FLOAT32, plan,
                                          nullptr, std::function<void(const PlanKernel&)>()),
                         doctest::Contains("needs a function that launches the kernel"), Error);
    rank.communicator->bootstrap()->barrier();
  });
}

TEST_CASE("a plan that was proven once is not checked again, by the same checker") {
  const std::filesystem::path folder = std::filesystem::current_path() / "executor_test_proofs";
  std::filesystem::remove_all(folder);
  const plan::Proofs proofs(folder);
  plan::NamedPlan plan;
  static_cast<plan::Plan&>(plan) = plan::twoShotPlan(3, 2);
  const auto positions = [](const plan::Plan& of) {
    std::vector<std::int32_t> all;
    for (const plan::Operation& operation : of.operations) all.push_back(operation.position);
    return all;
  };
  const auto expected = positions(plan);
  for (plan::Operation& operation : plan.operations) operation.position = 0;  // the proof finds them
  const auto files = [&] {
    std::vector<std::filesystem::path> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) all.push_back(entry.path());
    return all;
  };
  CHECK(positions(proofs.verified(plan)) == expected);
  REQUIRE(files().size() == 1);
  const std::filesystem::path proof = files()[0];
  CHECK(positions(proofs.verified(plan)) == expected);

  // A wrong plan has no proof, and is accepted only because one is put there: known plans are not checked.
  plan::NamedPlan wrong = plan;
  wrong.operations[3].kind = plan::OperationKind::Sync;
  CHECK_THROWS_AS(proofs.verified(wrong), Error);
  CHECK(files().size() == 1);
  const jit::detail::ProgramCache cache(folder);
  cache.store(plan::proofKeyOf(wrong), *cache.find(plan::proofKeyOf(plan)));
  CHECK(positions(proofs.verified(wrong)) == expected);
  std::filesystem::remove(files()[files()[0] == proof ? 1 : 0]);
  plan::NamedPlan other = plan;
  other.doubleScratch = true;
  proofs.verified(other);
  REQUIRE(files().size() == 2);
  const std::filesystem::path otherProof = files()[files()[0] == proof ? 1 : 0];
  std::filesystem::copy_file(proof, otherProof, std::filesystem::copy_options::overwrite_existing);
  CHECK(positions(proofs.verified(other)) == expected);  // its name and content do not agree: proven anew
  CHECK(files().size() == 2);

  // A damaged one too.
  std::filesystem::resize_file(proof, std::filesystem::file_size(proof) - 5);
  CHECK(positions(proofs.verified(plan)) == expected);
  CHECK(files().size() == 2);
  // Differences in each list, and in what a call's correctness does not depend on, make other plans.
  const auto digest = plan::digestOf(plan);
  const auto differs = [&](const auto& change) {
    plan::NamedPlan changed = plan;
    change(changed);
    return plan::digestOf(changed) != digest;
  };
  CHECK(differs([](plan::Plan& of) { of.operations[1].relaxed = true; }));
  CHECK(differs([](plan::Plan& of) { of.operations[0].share = 1; }));
  CHECK(differs([](plan::Plan& of) { of.operands[0].first = 7; }));
  CHECK(differs([](plan::Plan& of) { of.channels[0].peer = 2; }));
  CHECK(differs([](plan::Plan& of) { of.references[0] = 1; }));
  CHECK(differs([](plan::Plan& of) { of.rankPlans[0].scratchChunks = 99; }));
  CHECK(differs([](plan::Plan& of) { of.expectations.push_back({}); }));
  CHECK_FALSE(differs([](plan::NamedPlan& of) { of.name = "renamed"; }));
  CHECK(plan::checkerVersion().size() == 64);
  std::filesystem::remove_all(folder);
}

TEST_CASE("whether numbers of iterations may change is proven once, by the same checker") {
  const std::filesystem::path folder = std::filesystem::current_path() / "executor_test_mixed";
  std::filesystem::remove_all(folder);
  const plan::Proofs proofs(folder);
  const jit::detail::ProgramCache cache(folder);
  const plan::Plan plan = plan::oneShotInPlacePlan(3, 64);
  const std::string key = plan::mixedIterationsKeyOf(plan);
  CHECK(key != plan::proofKeyOf(plan));
  CHECK(proofs.allowMixedIterations(plan));
  const auto kept = cache.find(key);
  REQUIRE(kept.has_value());
  // A plan that does not allow it; neither answer is proven again.
  plan::Plan unordered = plan;
  for (plan::Operation& operation : unordered.operations)
    if (operation.kind == plan::OperationKind::Wait) operation.kind = plan::OperationKind::Sync;
  const std::string unorderedKey = plan::mixedIterationsKeyOf(unordered);
  CHECK(unorderedKey != key);
  CHECK_FALSE(proofs.allowMixedIterations(unordered));
  const auto keptUnordered = cache.find(unorderedKey);
  REQUIRE(keptUnordered.has_value());
  cache.store(key, *keptUnordered);
  cache.store(unorderedKey, *kept);
  CHECK_FALSE(proofs.allowMixedIterations(plan));
  CHECK(proofs.allowMixedIterations(unordered));
  // A file of another plan, a damaged one, and one with another content are none.
  const auto fileOf = [&](const std::string& of) { return folder / (of + ".bin"); };
  std::filesystem::copy_file(fileOf(key), fileOf(unorderedKey), std::filesystem::copy_options::overwrite_existing);
  std::filesystem::resize_file(fileOf(key), std::filesystem::file_size(fileOf(key)) - 5);
  CHECK(proofs.allowMixedIterations(plan));
  CHECK_FALSE(proofs.allowMixedIterations(unordered));
  cache.store(unorderedKey, {"may", {}, {}});
  CHECK_FALSE(proofs.allowMixedIterations(unordered));
  CHECK(cache.find(key)->image == kept->image);
  CHECK(cache.find(unorderedKey)->image == keptUnordered->image);
  std::filesystem::remove_all(folder);
}

TEST_CASE("plans as algorithms of a collection") {
  const auto algorithm = std::make_shared<DslAlgorithm>("my_plan", executionPlan(plan::twoShotPacketPlan(2), 0),
                                                        std::unordered_map<std::string, std::uint64_t>{{"packets", 1}},
                                                        Algorithm::Constraint{}, DeviceType::CPU);
  CHECK(algorithm->type() == AlgorithmType::DSL);
  CHECK(algorithm->collective() == "allreduce");
  CHECK(algorithm->constraint().worldSize == 2);
  CHECK(algorithm->tags().at("packets") == 1);
  CHECK(algorithm->bufferMode() == CollectiveBufferMode::OutOfPlace);
  CHECK_THROWS_AS(algorithm->setMessageSizeRange(2, 1), Error);
  algorithm->setMessageSizeRange(0, 1000);
  collective::AlgorithmCollectionBuilder builder;
  AlgorithmCollection collection = builder.buildDefaultAlgorithms(DeviceType::CPU);
  collection.registerAlgorithm("allreduce", "my_plan", algorithm);
  onRanks(2, [&](const Rank& rank) {
    for (const std::size_t count : {100, 300}) {
      const auto message = planMessage<float>(plan::twoShotPacketPlan(2), rank.rank, count, 3);
      std::vector<float> output(count);
      for (const bool inPlace : {false, true}) {
        const void* input = inPlace ? output.data() : message.input.data();
        const auto selected = collection.selectAlgorithm({.worldSize = 2,
                                                          .nRanksPerNode = 2,
                                                          .rank = rank.rank,
                                                          .input = input,
                                                          .output = output.data(),
                                                          .messageSize = count * 4,
                                                          .collective = "allreduce",
                                                          .dtype = DataType::FLOAT32});
        CHECK((selected == algorithm) == (count == 100 && !inPlace));
        if (inPlace) continue;
        CHECK(selected->execute(rank.communicator, input, output.data(), count * 4, count * 4, DataType::FLOAT32,
                                ReduceOp::SUM, nullptr, nullptr) == CommResult::CommSuccess);
        CHECK(output == message.expected);
      }
    }
    const auto executor = std::make_shared<Executor>(rank.communicator, scratchBytes, DeviceType::CPU);
    float one = 1, sum = 0;
    CHECK(algorithm->execute(rank.communicator, &one, &sum, 4, 4, DataType::FLOAT32, ReduceOp::SUM, nullptr,
                             executor) == CommResult::CommSuccess);
    CHECK(sum == 2);
    CHECK(algorithm->execute(rank.communicator, &one, &sum, 4, 4, DataType::FLOAT32, ReduceOp::NOP, nullptr,
                             executor) == CommResult::CommSuccess);
    CHECK(algorithm->execute(rank.communicator, &one, &sum, 4, 4, DataType::FLOAT32, ReduceOp::AVG, nullptr,
                             executor) == CommResult::CommSuccess);
    CHECK(sum == 1);
    rank.bootstrap.barrier();
  });
  algorithm->reset();
}

TEST_CASE("a plan of 2,000 operations, which is interpreted in parts and not compiled") {
  const plan::Plan plan = plan::longPlan(2, 2000, 1000);
  onRanks(2, [&](const Rank& rank) {
    Executor executor(rank.communicator, scratchBytes, DeviceType::CPU);
    Buffers buffers(1 << 14, true);
    for (const unsigned count : {1, 1000}) {
      buffers.check<float>(executor, rank, executionPlan(plan, rank.rank), count, count);
    }
  });
  CHECK(kernels::transfersOf(plan::programOf(plan, 0)) > kernels::mostCompiledTransfers);
  // Blocks of one shape are compiled once.
  const plan::RankProgram alike = plan::programOf(plan::twoShotPlan(8, 8), 3);
  CHECK(kernels::rolesOf(alike).size() == 1);
  CHECK(kernels::transfersOf(alike) == 8);
}

TEST_CASE("two executors at once") {
  onRanks(2, [&](const Rank& rank) {
    const ExecutionPlan plan = executionPlan(plan::twoShotPacketPlan(rank.ranks, 2), rank.rank);
    Executor first(rank.communicator, scratchBytes, DeviceType::CPU);
    Executor second(rank.communicator, scratchBytes, DeviceType::CPU);
    const auto call = [&](Executor& executor, std::size_t count, unsigned seed) {
      const auto message = planMessage<float>(plan.plan(), rank.rank, count, seed);
      std::vector<float> output(count);
      executor.execute(rank.rank, message.input.data(), output.data(), count * 4, count * 4, DataType::FLOAT32, plan,
                       nullptr);
      CHECK(output == message.expected);
    };
    call(first, 4000, 0);
    call(second, 4000, 0);
    std::thread other([&] {
      for (unsigned seed = 0; seed < 100; ++seed) call(second, 1 + seed * 37 % 4000, seed);
    });
    for (unsigned seed = 0; seed < 100; ++seed) call(first, 1 + seed * 41 % 4000, 1000 + seed);
    other.join();
    rank.bootstrap.barrier();
  });
}

TEST_CASE("a switch channel's reduction and broadcast are those of its members' memory") {
  plan::Assembler multicast({.ranks = 2});
  for (int r = 0; r < 2; ++r) {
    const int members[] = {0, 1};
    const plan::Operand all{
        .buffer = plan::BufferKind::Input,
        .access = plan::Access::Switch,
        .rank = static_cast<std::int16_t>(r),
        .channel = static_cast<std::int16_t>(multicast.addSwitchChannel(r, plan::BufferKind::Input, members))};
    const plan::Operand result{.buffer = plan::BufferKind::Output, .rank = static_cast<std::int16_t>(r)};
    const int channels[] = {multicast.addChannel(r, plan::Access::Memory, 1 - r)};
    const auto exchangeSignals = [&] {
      multicast.add(r, 0, {});
      multicast.synchronise(r, 0, plan::OperationKind::Signal, channels);
      multicast.synchronise(r, 0, plan::OperationKind::Wait, channels);
      multicast.add(r, 0, {});
    };
    exchangeSignals();
    multicast.transfer(r, 0, {&all, 1}, {&result, 1}, 1);
    exchangeSignals();
  }
  const plan::Plan plan = multicast.finish();
  onRanks(2, [&](const Rank& rank) {
    Executor executor(rank.communicator, 0, DeviceType::CPU);
    const std::vector<float> input(100, static_cast<float>(rank.rank + 1));
    std::vector<float> output(100, -1.0f);
    executor.execute(rank.rank, input.data(), output.data(), 400, 400, DataType::FLOAT32,
                     executionPlan(plan, rank.rank), nullptr);
    CHECK(output == std::vector<float>(100, 3.0f));
    rank.bootstrap.barrier();
  });
}

/// An all-reduce as a custom collective.
plan::Plan customSum() {
  plan::Program program({.collective = plan::CollectiveKind::Custom, .ranks = 2, .doubleScratch = true});
  for (int rank = 0; rank < 2; ++rank) {
    program.setChunks(rank, 1, 1);
    program.expect(plan::output(rank, 0), {plan::input(0, 0), plan::input(1, 0)});
    program.block(rank, 0)
        .copy(plan::input(rank, 0), plan::scratch(1 - rank, 0).packets())
        .reduce({plan::input(rank, 0), plan::scratch(rank, 0).packets()}, {plan::output(rank, 0)});
  }
  return program.finish();
}

TEST_CASE("wrong calls") {
  onRanks(2, [&](const Rank& rank) {
    Executor executor(rank.communicator, 64 << 10, DeviceType::CPU);
    const ExecutionPlan plan = executionPlan(plan::twoShotPacketPlan(2), rank.rank, "sample plan");
    std::vector<float> input(1 << 20), output(1 << 20);
    const auto call = [&](const ExecutionPlan& of, std::size_t bytes, std::size_t outputBytes, DataType type,
                          ReduceOp op, int caller, const void* from) {
      executor.execute(caller, from, output.data(), bytes, outputBytes, type, of, nullptr, PacketType::LL16, op);
    };
    const auto refused = [&](const std::string& part, const ExecutionPlan& of, std::size_t bytes,
                             std::size_t outputBytes, DataType type = DataType::FLOAT32, ReduceOp op = ReduceOp::SUM,
                             int callerOffset = 0, std::size_t offset = 0) {
      CAPTURE(part);
      CHECK_THROWS_WITH_AS(call(of, bytes, outputBytes, type, op, (rank.rank + callerOffset) % 2,
                                reinterpret_cast<const char*>(input.data()) + offset),
                           doctest::Contains(part.c_str()), Error);
    };
    refused("for 3 ranks, but the communicator has 2", executionPlan(plan::ringPlan(3), rank.rank), 16, 16);
    refused("was loaded for rank", executionPlan(plan::ringPlan(2), 1 - rank.rank), 16, 16);
    refused("but this is rank", plan, 16, 16, DataType::FLOAT32, ReduceOp::SUM, 1);
    refused("the output has 12 bytes, but needs 16", plan, 16, 12);
    refused("a whole number of elements of 4 bytes", plan, 15, 15);
    refused("data type fp8_e4m3b15 is not supported", plan, 16, 16, DataType::FLOAT8_E4M3B15);
    refused("operator nop is not supported", plan, 16, 16, DataType::FLOAT32, ReduceOp::NOP);
    refused("it cannot average", executionPlan(customSum(), rank.rank), 16, 16, DataType::FLOAT32, ReduceOp::AVG);
    refused("the input is not aligned", plan, 16, 16, DataType::FLOAT32, ReduceOp::SUM, 0, 2);
    refused("pass a larger defaultScratchBufferSize", plan, 1 << 20, 1 << 20);
    refused("more than any memory", plan, ~std::size_t{0}, ~std::size_t{0}, DataType::INT8);
    refused("more than any memory", executionPlan(plan::gatherByReadingPlan(2, false), rank.rank), std::size_t{1} << 63,
            0);
    refused("is not supported", plan, 16, 16, static_cast<DataType>(99));
    refused("is not supported", plan, 16, 16, DataType::FLOAT32, static_cast<ReduceOp>(99));
    CHECK_THROWS_WITH_AS(call(plan, 16, 16, DataType::FLOAT32, ReduceOp::SUM, rank.rank, nullptr),
                         doctest::Contains("the input is null"), Error);
    CHECK_THROWS_WITH_AS(call(plan, 16, 16, DataType::FLOAT32, ReduceOp::SUM, rank.rank, output.data() + 2),
                         doctest::Contains("input and output overlap"), Error);
    // A plan of each rank.
    CHECK_THROWS_WITH_AS(call(executionPlan(plan::twoShotPacketPlan(2, 1 + rank.rank), rank.rank), 16, 16,
                              DataType::FLOAT32, ReduceOp::SUM, rank.rank, input.data()),
                         doctest::Contains("has another plan"), Error);
    refused("it is made for calls in place", executionPlan(plan::ringPlan(2, true), rank.rank), 16, 16);

    // An error on one rank is an error on all.
    const auto text = [&] {
      try {
        call(plan, rank.rank == 0 ? 16 : 18, 32, DataType::FLOAT32, ReduceOp::SUM, rank.rank, input.data());
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    }();
    CHECK(text.find(rank.rank == 0 ? "rank 1" : "18 bytes") != std::string::npos);
    // Different calls.
    CHECK_THROWS_WITH_AS(
        call(plan, rank.rank == 0 ? 16 : 32, 32, DataType::FLOAT32, ReduceOp::SUM, rank.rank, input.data()),
        doctest::Contains(rank.rank == 0 ? "rank 1 has messages with parts of 32 bytes, and this rank of 16"
                                         : "rank 0 has messages with parts of 16 bytes, and this rank of 32"),
        Error);
    // No elements: done, without a set-up that would wait for rank 1.
    if (rank.rank == 0) call(plan, 0, 0, DataType::FLOAT32, ReduceOp::SUM, 0, nullptr);
    CHECK_THROWS_WITH_AS(call(plan, 0, 0, DataType::FLOAT32, ReduceOp::SUM, 7, nullptr),
                         doctest::Contains("execute() is called for rank 7"), Error);
    // The executor can be used afterwards.
    Buffers(4096, true).check<float>(executor, rank, plan, 100, 1);
    rank.bootstrap.barrier();
  });
  CHECK_THROWS_AS(Executor(nullptr), Error);
  plan::Plan unordered = plan::twoShotPlan(2);
  unordered.operations[unordered.blocks[0].operations.first + 3].kind = plan::OperationKind::Sync;
  CHECK_THROWS_WITH_AS(executionPlan(unordered, 0), doctest::Contains("at rank 0, block 0, operation"), Error);
  CHECK_THROWS_WITH_AS(executionPlan(plan::ringPlan(2), 2), doctest::Contains("of which 2 is none"), Error);
}

}  // namespace
