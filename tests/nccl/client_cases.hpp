// A client of NCCL's C API, written against nccl.h alone: the same cases for CPU ranks and GPUs, and on GPUs for this
// library and for NCCL.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/nccl/elements.hpp"

namespace mscclpp::test {

/// Reports a failed call with NCCL's explanation. doctest's macros are not for several threads at once.
inline void require(ncclResult_t result, const std::string& call) {
  if (result == ncclSuccess) return;
  throw std::runtime_error(call + ": " + ncclGetErrorString(result) + ": " + ncclGetLastError(nullptr));
}

template <class Check>
void requireSame(const Bytes& found, const Bytes& wanted, const Check& describe) {
  if (found == wanted) return;
  const auto at = std::mismatch(found.begin(), found.end(), wanted.begin()).first - found.begin();
  throw std::runtime_error(std::string(describe()) + ": byte " + std::to_string(at) + " of " +
                           std::to_string(wanted.size()) + " is " +
                           std::to_string(found[static_cast<std::size_t>(at)]) + ", not " +
                           std::to_string(wanted[static_cast<std::size_t>(at)]));
}

/// A rank of a test: its communicator, its stream, and memory of its device. Backend: CpuClient or GpuClient.
template <class Backend>
struct Client {
  int rank;
  int ranks;
  ncclComm_t comm;
  typename Backend::Stream stream;

  using Memory = typename Backend::Memory;
  Memory make(const Bytes& bytes) const { return Memory(bytes); }
  /// Filled with bytes that no result consists of.
  Memory poisoned(std::size_t bytes) const { return Memory(Bytes(bytes, 0xa5)); }
  Bytes read(const Memory& memory) const {
    stream.synchronize();
    return memory.read();
  }
};

/// Runs a body for each rank of new communicators of this process, each rank on a thread; rethrows the first failure.
template <class Backend>
void onRanks(int ranks, const std::function<void(Client<Backend>&)>& body) {
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
  require(ncclCommInitAll(comms.data(), ranks, nullptr), "ncclCommInitAll");
  std::vector<std::string> failures(comms.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<std::size_t>(rank);
      try {
        Backend::setDevice(rank);
        Client<Backend> client{rank, ranks, comms[index], {}};
        body(client);
        client.stream.synchronize();
      } catch (const std::exception& error) {
        failures[index] = error.what();
        if (failures[index].empty()) failures[index] = "failed";
        ncclCommAbort(std::exchange(comms[index], nullptr));  // the others must not wait for this rank
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& failure : failures) CHECK(failure == "");
  for (const ncclComm_t comm : comms) {
    if (comm != nullptr) require(ncclCommDestroy(comm), "ncclCommDestroy");
  }
}

inline const std::vector<ncclDataType_t>& allTypes() {
  static const std::vector<ncclDataType_t> types{ncclInt8,    ncclUint8,    ncclInt32,      ncclUint32,
                                                 ncclInt64,   ncclUint64,   ncclFloat16,    ncclFloat32,
                                                 ncclFloat64, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
  return types;
}

/// One reduction: all-reduce, reduce-scatter or reduce, by name.
template <class Backend>
void checkReductions(Client<Backend>& c, ncclDataType_t type, ncclRedOp_t op, std::size_t count, bool inPlace) {
  const bool isInteger = formatOf(type).exponentBits == 0;
  const int least = op == ncclSum || op == ncclAvg ? 0 : 1;
  const auto size = static_cast<std::size_t>(formatOf(type).bytes);
  const auto ranks = static_cast<std::size_t>(c.ranks);
  const auto rank = static_cast<std::size_t>(c.rank);
  const auto describe = [&](const char* name) {
    return std::string(name) + " type " + std::to_string(type) + " op " + std::to_string(op) + " count " +
           std::to_string(count) + (inPlace ? " in place" : "") + " rank " + std::to_string(c.rank);
  };
  {
    auto input = c.make(encode(type, valuesOf(c.rank, 0, count, least)));
    auto output = c.poisoned(count * size);
    auto& result = inPlace ? input : output;
    require(ncclAllReduce(input.data(), result.data(), count, type, op, c.comm, c.stream.get()), describe("AllReduce"));
    requireSame(c.read(result), encode(type, reducedValues(op, isInteger, c.ranks, 0, count, least)),
                [&] { return describe("AllReduce"); });
  }
  {
    auto input = c.make(encode(type, valuesOf(c.rank, 0, count * ranks, least)));
    auto output = c.poisoned(count * size);
    auto* result = inPlace ? input.data() + rank * count * size : output.data();
    require(ncclReduceScatter(input.data(), result, count, type, op, c.comm, c.stream.get()),
            describe("ReduceScatter"));
    Bytes found = c.read(inPlace ? input : output);
    if (inPlace) {
      found = Bytes(found.begin() + static_cast<std::ptrdiff_t>(rank * count * size),
                    found.begin() + static_cast<std::ptrdiff_t>((rank + 1) * count * size));
    }
    requireSame(found, encode(type, reducedValues(op, isInteger, c.ranks, rank * count, count, least)),
                [&] { return describe("ReduceScatter"); });
  }
  {
    const int root = c.ranks - 1;
    auto input = c.make(encode(type, valuesOf(c.rank, 0, count, least)));
    auto output = c.poisoned(count * size);
    auto& result = inPlace ? input : output;
    const bool isRoot = c.rank == root;
    require(ncclReduce(input.data(), isRoot ? result.data() : nullptr, count, type, op, root, c.comm, c.stream.get()),
            describe("Reduce"));
    const Bytes wanted = isRoot    ? encode(type, reducedValues(op, isInteger, c.ranks, 0, count, least))
                         : inPlace ? encode(type, valuesOf(c.rank, 0, count, least))
                                   : Bytes(count * size, 0xa5);
    requireSame(c.read(result), wanted, [&] { return describe("Reduce"); });
  }
}

/// The collectives that move data, each by itself or all in one group.
template <class Backend>
void checkMoves(Client<Backend>& c, ncclDataType_t type, std::size_t count, bool inPlace, bool grouped = false) {
  const auto size = static_cast<std::size_t>(formatOf(type).bytes);
  const auto ranks = static_cast<std::size_t>(c.ranks);
  const auto part = count * size;
  const auto own = static_cast<std::size_t>(c.rank) * part;
  const auto describe = [&](const char* name) {
    return std::string(name) + " type " + std::to_string(type) + " count " + std::to_string(count) +
           (inPlace ? " in place" : "") + (grouped ? " in a group" : "") + " rank " + std::to_string(c.rank);
  };
  const auto joined = [&](const std::function<Bytes(int)>& partOf) {
    Bytes all;
    for (int rank = 0; rank < c.ranks; ++rank) {
      const Bytes bytes = partOf(rank);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
  };
  const auto ofRank = [&](int rank) { return encode(type, valuesOf(rank, 0, count)); };
  const auto fromTo = [&](int from, int to) {
    return encode(type, valuesOf(from, static_cast<std::size_t>(to) * 5, count));
  };
  const Bytes gathered = joined(ofRank);
  const int root = c.ranks / 2;
  const bool isRoot = c.rank == root;
  Bytes initial(part * ranks, 0xa5);
  if (inPlace) {
    const Bytes mine = ofRank(c.rank);
    std::copy(mine.begin(), mine.end(), initial.begin() + static_cast<std::ptrdiff_t>(own));
  }
  auto input = c.make(ofRank(c.rank));
  auto forAll = c.make(joined([&](int to) { return fromTo(c.rank, to); }));
  auto all = c.make(initial), collected = c.make(initial), exchanged = c.poisoned(part * ranks);
  auto sent = inPlace ? c.make(ofRank(c.rank)) : c.poisoned(part), both = c.make(ofRank(c.rank));
  auto scattered = c.make(gathered);
  auto dealt = c.poisoned(part);

  if (grouped) require(ncclGroupStart(), "ncclGroupStart");
  const auto stream = c.stream.get();
  require(ncclAllGather(inPlace ? all.data() + own : input.data(), all.data(), count, type, c.comm, stream),
          describe("AllGather"));
  require(ncclGather(inPlace && isRoot ? collected.data() + own : input.data(), isRoot ? collected.data() : nullptr,
                     count, type, root, c.comm, stream),
          describe("Gather"));
  require(ncclBroadcast(inPlace ? sent.data() : input.data(), sent.data(), count, type, root, c.comm, stream),
          describe("Broadcast"));
  require(ncclBcast(both.data(), count, type, root, c.comm, stream), describe("Bcast"));
  require(ncclScatter(isRoot ? scattered.data() : nullptr, inPlace && isRoot ? scattered.data() + own : dealt.data(),
                      count, type, root, c.comm, stream),
          describe("Scatter"));
  if (!inPlace) {
    require(ncclAlltoAll(forAll.data(), exchanged.data(), count, type, c.comm, stream), describe("AlltoAll"));
  }
  if (grouped) require(ncclGroupEnd(), "ncclGroupEnd");

  requireSame(c.read(all), gathered, [&] { return describe("AllGather"); });
  requireSame(c.read(collected), isRoot ? gathered : initial, [&] { return describe("Gather"); });
  requireSame(c.read(sent), ofRank(root), [&] { return describe("Broadcast"); });
  requireSame(c.read(both), ofRank(root), [&] { return describe("Bcast"); });
  if (!(inPlace && isRoot)) requireSame(c.read(dealt), ofRank(c.rank), [&] { return describe("Scatter"); });
  if (!inPlace) {
    requireSame(c.read(exchanged), joined([&](int from) { return fromTo(from, c.rank); }),
                [&] { return describe("AlltoAll"); });
  }
}

/// Every rank sends `messages` messages to every rank, itself too, of sizes that depend on both and may be zero, in one
/// group.
template <class Backend>
void checkMessages(Client<Backend>& c, int messages) {
  const auto countOf = [](int from, int to, int k) {
    return static_cast<std::size_t>((from * 7 + to * 3 + k * 11) % 5) * 37;
  };
  std::vector<std::pair<typename Backend::Memory, Bytes>> received;
  std::vector<typename Backend::Memory> sent;
  require(ncclGroupStart(), "ncclGroupStart");
  for (int k = 0; k < messages; ++k) {
    for (int peer = 0; peer < c.ranks; ++peer) {
      const std::size_t out = countOf(c.rank, peer, k);
      sent.push_back(c.make(encode(ncclInt32, valuesOf(c.rank + peer + k, 0, out))));
      require(ncclSend(sent.back().data(), out, ncclInt32, peer, c.comm, c.stream.get()), "ncclSend");
      const std::size_t in = countOf(peer, c.rank, k);
      received.emplace_back(c.poisoned(in * 4), encode(ncclInt32, valuesOf(c.rank + peer + k, 0, in)));
      require(ncclRecv(received.back().first.data(), in, ncclInt32, peer, c.comm, c.stream.get()), "ncclRecv");
    }
  }
  require(ncclGroupEnd(), "ncclGroupEnd");
  for (const auto& [memory, wanted] : received) requireSame(c.read(memory), wanted, [] { return "a message"; });
}

/// An all-reduce of a communicator that the test has made, whose ranks have the values of `rankOf`.
template <class Backend>
void checkSum(const Client<Backend>& c, ncclComm_t comm, const std::string& what, std::size_t count = 100) {
  int rank = -1, ranks = 0;
  require(ncclCommUserRank(comm, &rank), "ncclCommUserRank");
  require(ncclCommCount(comm, &ranks), "ncclCommCount");
  auto input = c.make(encode(ncclFloat32, valuesOf(rank, 0, count)));
  auto output = c.poisoned(count * 4);
  require(ncclAllReduce(input.data(), output.data(), count, ncclFloat32, ncclSum, comm, c.stream.get()), what);
  requireSame(c.read(output), encode(ncclFloat32, reducedValues(ncclSum, false, ranks, 0, count, 0)),
              [&] { return what; });
}

template <class Backend>
void checkSplits(Client<Backend>& c) {
  // By parity, in reverse order.
  ncclComm_t half = nullptr;
  require(ncclCommSplit(c.comm, c.rank % 2, -c.rank, &half, nullptr), "ncclCommSplit");
  int rank = -1, ranks = 0;
  require(ncclCommUserRank(half, &rank), "ncclCommUserRank");
  require(ncclCommCount(half, &ranks), "ncclCommCount");
  const int inHalf = (c.ranks - c.rank % 2 + 1) / 2;
  if (ranks != inHalf || rank != inHalf - 1 - c.rank / 2) throw std::runtime_error("wrong rank after a split");
  checkSum(c, half, "half");
  // A part of a part, and one of all ranks; both beside the parents.
  ncclComm_t all = nullptr, alone = nullptr, none = c.comm;
  require(ncclCommSplit(c.comm, 0, 0, &all, nullptr), "ncclCommSplit");
  require(ncclCommSplit(half, rank, 0, &alone, nullptr), "ncclCommSplit");
  require(ncclCommSplit(c.comm, c.rank == 0 ? 3 : NCCL_SPLIT_NOCOLOR, 0, &none, nullptr), "ncclCommSplit");
  if ((none == nullptr) != (c.rank != 0)) throw std::runtime_error("NCCL_SPLIT_NOCOLOR must give no communicator");
  checkSum(c, all, "all");
  checkSum(c, half, "half again");
  checkSum(c, alone, "alone");
  checkSum(c, c.comm, "parent");
  for (const ncclComm_t comm : {none, alone, half, all}) {
    if (comm != nullptr) require(ncclCommDestroy(comm), "ncclCommDestroy");
  }
  checkSum(c, c.comm, "parent again");
}

template <class Backend>
void checkShrink(Client<Backend>& c) {
  std::vector<int> excluded{0};
  ncclComm_t fewer = nullptr;
  if (c.rank != 0) {
    require(ncclCommShrink(c.comm, excluded.data(), 1, &fewer, nullptr, NCCL_SHRINK_DEFAULT), "ncclCommShrink");
    int rank = -1;
    require(ncclCommUserRank(fewer, &rank), "ncclCommUserRank");
    if (rank != c.rank - 1) throw std::runtime_error("wrong rank after a shrink");
    checkSum(c, fewer, "fewer ranks");
    require(ncclCommDestroy(fewer), "ncclCommDestroy");
  }
  checkSum(c, c.comm, "the parent of a shrunk communicator");
}

template <class Backend>
void checkOperators(Client<Backend>& c) {
  ncclRedOp_t op = ncclSum;
  const Bytes two = encode(ncclFloat32, {2});
  require(ncclRedOpCreatePreMulSum(&op, const_cast<unsigned char*>(two.data()), ncclFloat32, ncclScalarHostImmediate,
                                   c.comm),
          "ncclRedOpCreatePreMulSum");
  constexpr std::size_t count = 50;
  auto input = c.make(encode(ncclFloat32, valuesOf(c.rank, 0, count)));
  auto output = c.poisoned(count * 4);
  // The operator may be destroyed before the group ends.
  require(ncclGroupStart(), "ncclGroupStart");
  require(ncclAllReduce(input.data(), output.data(), count, ncclFloat32, op, c.comm, c.stream.get()), "PreMulSum");
  require(ncclRedOpDestroy(op, c.comm), "ncclRedOpDestroy");
  require(ncclGroupEnd(), "ncclGroupEnd");
  std::vector<double> wanted = reducedValues(ncclSum, false, c.ranks, 0, count, 0);
  for (double& value : wanted) value *= 2;
  requireSame(c.read(output), encode(ncclFloat32, wanted), [] { return "PreMulSum"; });

  auto scalar = c.make(encode(ncclFloat32, {0.5}));
  require(ncclRedOpCreatePreMulSum(&op, scalar.data(), ncclFloat32, ncclScalarDevice, c.comm),
          "ncclRedOpCreatePreMulSum");
  require(ncclAllReduce(input.data(), output.data(), count, ncclFloat32, op, c.comm, c.stream.get()), "PreMulSum");
  for (double& value : wanted) value /= 4;
  requireSame(c.read(output), encode(ncclFloat32, wanted), [] { return "PreMulSum of a device scalar"; });
  require(ncclRedOpDestroy(op, c.comm), "ncclRedOpDestroy");
}

template <class Backend>
void checkWindows(Client<Backend>& c) {
  constexpr std::size_t count = 3000;
  void* memory = nullptr;
  require(ncclMemAlloc(&memory, count * 4), "ncclMemAlloc");
  ncclWindow_t window = nullptr;
  require(ncclCommWindowRegister(c.comm, memory, count * 4, &window, NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister");
  void* handle = nullptr;
  require(ncclCommRegister(c.comm, memory, count * 4, &handle), "ncclCommRegister");
  auto input = c.make(encode(ncclFloat32, valuesOf(c.rank, 0, count)));
  require(ncclAllReduce(input.data(), memory, count, ncclFloat32, ncclSum, c.comm, c.stream.get()), "ncclAllReduce");
  c.stream.synchronize();
  requireSame(Backend::Memory::readFrom(memory, count * 4),
              encode(ncclFloat32, reducedValues(ncclSum, false, c.ranks, 0, count, 0)), [] { return "a window"; });
  require(ncclCommDeregister(c.comm, handle), "ncclCommDeregister");
  // A window is used until every rank has the result.
  checkSum(c, c.comm, "before a window ends");
  if (window != nullptr) require(ncclCommWindowDeregister(c.comm, window), "ncclCommWindowDeregister");
  checkSum(c, c.comm, "after a window has ended");
  require(ncclMemFree(memory), "ncclMemFree");
}

/// Several collectives and messages in a group, nested groups.
template <class Backend>
void checkMixedGroup(Client<Backend>& c) {
  constexpr std::size_t count = 100;
  const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
  auto input = c.make(encode(ncclInt32, valuesOf(c.rank, 0, count)));
  auto first = c.poisoned(count * 4), second = c.poisoned(count * 4 * static_cast<std::size_t>(c.ranks)),
       third = c.poisoned(count * 4);
  require(ncclGroupStart(), "ncclGroupStart");
  require(ncclAllReduce(input.data(), first.data(), count, ncclInt32, ncclSum, c.comm, c.stream.get()), "AllReduce");
  require(ncclGroupStart(), "ncclGroupStart");
  require(ncclRecv(third.data(), count, ncclInt32, previous, c.comm, c.stream.get()), "ncclRecv");
  require(ncclGroupEnd(), "ncclGroupEnd");
  require(ncclAllGather(input.data(), second.data(), count, ncclInt32, c.comm, c.stream.get()), "AllGather");
  require(ncclSend(input.data(), count, ncclInt32, next, c.comm, c.stream.get()), "ncclSend");
  requireSame(c.read(first), Bytes(count * 4, 0xa5), [] { return "before the group has ended"; });
  require(ncclGroupEnd(), "ncclGroupEnd");
  requireSame(c.read(first), encode(ncclInt32, reducedValues(ncclSum, true, c.ranks, 0, count, 0)),
              [] { return "all-reduce of a group"; });
  requireSame(c.read(third), encode(ncclInt32, valuesOf(previous, 0, count)), [] { return "a message of a group"; });
}

/// A group of reductions of several types, operators and lengths, most of which follow others of the same; with a
/// message among them. `longest`: elements of the longest.
template <class Backend>
void checkReductionGroup(Client<Backend>& c, std::size_t longest) {
  ncclRedOp_t twice = ncclSum;
  const Bytes two = encode(ncclFloat32, {2});
  require(ncclRedOpCreatePreMulSum(&twice, const_cast<unsigned char*>(two.data()), ncclFloat32, ncclScalarHostImmediate,
                                   c.comm),
          "ncclRedOpCreatePreMulSum");
  struct One {
    ncclDataType_t type;
    ncclRedOp_t op;
    std::size_t count;
    bool isScattered;
    bool inPlace;
  };
  const bool isPowerOfTwo = (c.ranks & (c.ranks - 1)) == 0;
  const ncclRedOp_t average = isPowerOfTwo ? ncclAvg : ncclMax;  // others are not exact
  const std::vector<One> group{
      {ncclFloat32, ncclSum, 33, false, false},       {ncclFloat32, ncclSum, longest, false, true},
      {ncclFloat32, twice, 5, false, false},          {ncclFloat32, ncclSum, 0, false, false},
      {ncclFloat32, ncclSum, 1, false, true},         {ncclBfloat16, ncclSum, 7, false, true},
      {ncclBfloat16, ncclSum, longest, false, false}, {ncclBfloat16, average, 100, false, false},
      {ncclBfloat16, average, 9, false, true},        {ncclInt32, ncclSum, 50, false, false},
      {ncclInt32, ncclSum, 51, false, true},          {ncclFloat16, ncclMax, 19, true, false},
      {ncclFloat16, ncclMax, longest, true, true},    {ncclFloat16, ncclMax, 3, true, false},
  };
  const auto rank = static_cast<std::size_t>(c.rank), ranks = static_cast<std::size_t>(c.ranks);
  const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
  const std::size_t shift = c.rank % 2 == 0 ? 4 : 0;  // bytes off alignment, of some ranks
  const auto shifted = [&](Bytes bytes) {
    bytes.insert(bytes.begin(), shift, 0xa5);
    return bytes;
  };
  std::vector<typename Backend::Memory> inputs, outputs;
  for (const One& one : group) {
    const auto size = static_cast<std::size_t>(formatOf(one.type).bytes);
    inputs.push_back(
        c.make(shifted(encode(one.type, valuesOf(c.rank, 0, one.count * (one.isScattered ? ranks : 1), 1)))));
    outputs.push_back(c.poisoned(shift + one.count * size));
  }
  auto message = c.poisoned(400);
  auto sent = c.make(encode(ncclInt32, valuesOf(c.rank, 0, 100)));
  const auto placeOf = [&](const One& one) {
    return shift + (one.isScattered ? rank * one.count * static_cast<std::size_t>(formatOf(one.type).bytes) : 0);
  };
  require(ncclGroupStart(), "ncclGroupStart");
  for (std::size_t i = 0; i < group.size(); ++i) {
    const One& one = group[i];
    auto* const input = inputs[i].data() + shift;
    auto* const output = one.inPlace ? inputs[i].data() + placeOf(one) : outputs[i].data() + shift;
    require((one.isScattered ? ncclReduceScatter : ncclAllReduce)(input, output, one.count, one.type, one.op, c.comm,
                                                                  c.stream.get()),
            "a reduction of a group");
    if (i == 1) require(ncclSend(sent.data(), 100, ncclInt32, next, c.comm, c.stream.get()), "ncclSend");
    if (i == 3) require(ncclRecv(message.data(), 100, ncclInt32, previous, c.comm, c.stream.get()), "ncclRecv");
  }
  require(ncclRedOpDestroy(twice, c.comm), "ncclRedOpDestroy");
  require(ncclGroupEnd(), "ncclGroupEnd");
  for (std::size_t i = 0; i < group.size(); ++i) {
    const One& one = group[i];
    const bool isTwice = one.op == twice;
    std::vector<double> wanted = reducedValues(isTwice ? ncclSum : one.op, formatOf(one.type).exponentBits == 0,
                                               c.ranks, one.isScattered ? rank * one.count : 0, one.count, 1);
    for (double& value : wanted) value *= isTwice ? 2 : 1;
    const Bytes all = c.read(one.inPlace ? inputs[i] : outputs[i]);
    const auto at = all.begin() + static_cast<std::ptrdiff_t>(one.inPlace ? placeOf(one) : shift);
    const Bytes result = encode(one.type, wanted);
    requireSame(Bytes(at, at + static_cast<std::ptrdiff_t>(result.size())), result,
                [&] { return "reduction " + std::to_string(i) + " of a group"; });
  }
  requireSame(c.read(message), encode(ncclInt32, valuesOf(previous, 0, 100)), [] { return "a message of a group"; });
}

/// Groups with the same collectives on all ranks, and messages among them on some.
template <class Backend>
void checkUnlikeGroups(Client<Backend>& c) {
  if (c.ranks < 2) return;
  constexpr std::size_t count = 50;
  const auto all = static_cast<std::size_t>(c.ranks);
  auto input = c.make(encode(ncclInt32, valuesOf(c.rank, 0, count)));
  auto first = c.poisoned(count * 4 * all), second = c.poisoned(count * 4 * all), message = c.poisoned(count * 4);
  const auto gather = [&](typename Backend::Memory& output) {
    require(ncclAllGather(input.data(), output.data(), count, ncclInt32, c.comm, c.stream.get()), "ncclAllGather");
  };
  require(ncclGroupStart(), "ncclGroupStart");
  gather(first);
  if (c.rank == 0) require(ncclSend(input.data(), count, ncclInt32, 1, c.comm, c.stream.get()), "ncclSend");
  gather(second);
  if (c.rank == 1) require(ncclRecv(message.data(), count, ncclInt32, 0, c.comm, c.stream.get()), "ncclRecv");
  require(ncclGroupEnd(), "ncclGroupEnd");
  Bytes gathered;
  for (int rank = 0; rank < c.ranks; ++rank) {
    const Bytes part = encode(ncclInt32, valuesOf(rank, 0, count));
    gathered.insert(gathered.end(), part.begin(), part.end());
  }
  for (const auto* output : {&first, &second}) requireSame(c.read(*output), gathered, [] { return "an all-gather"; });
  if (c.rank == 1) requireSame(c.read(message), encode(ncclInt32, valuesOf(0, 0, count)), [] { return "a message"; });
}

}  // namespace mscclpp::test
