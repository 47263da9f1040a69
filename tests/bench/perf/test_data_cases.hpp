// The check of results finds a single wrong element, a byte behind the output, and nothing in a correct output.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "bench/perf/backend.hpp"
#include "bench/perf/test_data.hpp"

namespace mscclpp::test {

using namespace mscclpp::perf;

inline constexpr int root = 1;

/// The outputs of one call on all ranks, computed from the inputs that fillInput() writes, in one device's memory.
class CheckedCall {
 public:
  CheckedCall(Backend& backend, TestData& data, CollectiveType collective, DataType type, ReduceOp op, int ranks,
              std::size_t count)
      : backend_(backend), data_(data), shape_{collective, ranks, count}, type_(type), rule_{42, op} {
    for (int rank = 0; rank < ranks; ++rank) inputs_.push_back(makeInput(rank));
    for (int rank = 0; rank < ranks; ++rank) outputs_.push_back(makeOutput(rank));
  }

  /// What the check says of a rank's output, in which `flipped` bits of the byte at `offset` are inverted.
  std::uint64_t wrong(int rank, std::size_t offset = 0, int flipped = 0) const {
    std::vector<std::byte> bytes = outputs_[static_cast<std::size_t>(rank)];
    const std::size_t outputBytes = bytes.size();
    bytes.resize(outputBytes + guardBytes, static_cast<std::byte>(poisonByte));
    bytes[offset] ^= static_cast<std::byte>(flipped);
    const auto memory = backend_.allocate(bytes.size());
    backend_.upload(memory.get(), bytes.data(), bytes.size());
    const auto counter = backend_.allocate(sizeof(std::uint64_t));
    backend_.fill(counter.get(), 0, sizeof(std::uint64_t));
    const OutputData output{memory.get(), outputBytes / sizeOf(type_), outputRule(shape_, rule_, rank, root, false),
                            static_cast<std::byte*>(memory.get()) + outputBytes};
    backend_.runOnce([&](CUstream_st* stream) {
      data_.countWrong(shape_.collective, type_, output, static_cast<std::uint64_t*>(counter.get()), stream);
    });
    std::uint64_t found = 0;
    backend_.download(&found, counter.get(), sizeof(found));
    return found;
  }
  std::size_t outputBytes(int rank) const { return outputs_[static_cast<std::size_t>(rank)].size(); }
  /// Elements that are the same on two ranks' inputs.
  std::size_t equalInputs(int a, int b) const {
    std::size_t equal = 0;
    const std::size_t bytes = sizeOf(type_);
    for (std::size_t i = 0; i < shape_.input(); ++i) {
      equal += std::memcmp(part(a, i), part(b, i), bytes) == 0 ? 1 : 0;
    }
    return equal;
  }

 private:
  using Bytes = std::vector<std::byte>;

  const std::byte* part(int rank, std::size_t element) const {
    return inputs_[static_cast<std::size_t>(rank)].data() + element * sizeOf(type_);
  }

  Bytes makeInput(int rank) const {
    Bytes bytes(shape_.input() * sizeOf(type_));
    const auto memory = backend_.allocate(bytes.size());
    backend_.runOnce([&](CUstream_st* stream) {
      data_.fillInput(shape_.collective, type_, rule_, rank, memory.get(), shape_.input(), stream);
    });
    backend_.download(bytes.data(), memory.get(), bytes.size());
    return bytes;
  }

  /// Appends `count` elements of a rank's input, from element `first` on.
  void append(Bytes& bytes, int rank, std::size_t first) const {
    bytes.insert(bytes.end(), part(rank, first), part(rank, first + shape_.count));
  }

  Bytes makeOutput(int rank) const {
    Bytes bytes;
    const std::size_t ownPart = static_cast<std::size_t>(rank) * shape_.count;
    const bool hasOutput = shape_.output(rank, root) != 0;
    switch (shape_.collective) {
      case CollectiveType::AllReduce:
        return reduced(0);
      case CollectiveType::Reduce:
        return hasOutput ? reduced(0) : bytes;
      case CollectiveType::ReduceScatter:
      case CollectiveType::ReduceScatterV:
        return reduced(ownPart);
      case CollectiveType::AllGather:
      case CollectiveType::Gather:
        for (int sender = 0; hasOutput && sender < shape_.ranks; ++sender) append(bytes, sender, 0);
        break;
      case CollectiveType::AllToAll:
        for (int sender = 0; sender < shape_.ranks; ++sender) append(bytes, sender, ownPart);
        break;
      case CollectiveType::Broadcast:
        append(bytes, root, 0);
        break;
      case CollectiveType::Scatter:
        append(bytes, root, ownPart);
        break;
      case CollectiveType::SendReceive:
        append(bytes, rank == 0 ? shape_.ranks - 1 : rank - 1, 0);
        break;
    }
    return bytes;
  }

  /// The reduction in the order of the ranks, by the library's operators.
  Bytes reduced(std::size_t first) const {
    Bytes bytes(shape_.count * sizeOf(type_));
    const auto none = [] {};
    visit(
        type_,
        [&](auto typeTag) {
          using T = typename decltype(typeTag)::Type;
          visit(
              rule_.op,
              [&](auto opTag) {
                using Op = typename decltype(opTag)::Type;
                for (std::size_t i = 0; i < shape_.count; ++i) {
                  Accumulator<T> total = widen<T>(element<T>(0, first + i));
                  for (int rank = 1; rank < shape_.ranks; ++rank) {
                    total = Op::combine(total, widen<T>(element<T>(rank, first + i)));
                  }
                  const T result = narrow<T>(Op::finish(total, shape_.ranks));
                  std::memcpy(bytes.data() + i * sizeof(T), &result, sizeof(T));
                }
              },
              none);
        },
        none);
    return bytes;
  }
  template <class T>
  T element(int rank, std::size_t index) const {
    T value;
    std::memcpy(static_cast<void*>(&value), part(rank, index), sizeof(T));
    return value;
  }

  Backend& backend_;
  TestData& data_;
  CollectiveShape shape_;
  DataType type_;
  InputRule rule_;
  std::vector<Bytes> inputs_;
  std::vector<Bytes> outputs_;
};

/// A correct output has no wrong element; one wrong element or byte behind the end is found, wherever it is.
inline void testCheck(Backend& backend, TestData& data, CollectiveType collective, DataType type, ReduceOp op,
                      int ranks, std::size_t count) {
  CAPTURE(std::string(nameOf(collective)));
  CAPTURE(std::string(nameOf(type)));
  CAPTURE(std::string(nameOf(op)));
  CAPTURE(ranks);
  CAPTURE(count);
  const CheckedCall call(backend, data, collective, type, op, ranks, count);
  const std::size_t elementBytes = sizeOf(type);
  // The sign bit of a floating-point type, and a bit that changes any integer; a mover may not change any bit.
  const int anyBit = hasReduction(collective) ? 0x80 : 0x01;
  for (int rank = 0; rank < ranks; ++rank) {
    CAPTURE(rank);
    CHECK(call.wrong(rank) == 0);
    const std::size_t bytes = call.outputBytes(rank);
    for (std::size_t at = elementBytes - 1; at < bytes; at += elementBytes * (count / 2 + 1)) {
      CHECK(call.wrong(rank, at, anyBit) == 1);
    }
    if (bytes != 0) CHECK(call.wrong(rank, bytes - 1, anyBit) == 1);
    for (const std::size_t behind : {std::size_t{0}, guardBytes - 1}) {
      CHECK(call.wrong(rank, bytes + behind, 0x01) == 1);
    }
  }
}

inline void testEveryCollective(Backend& backend, TestData& data) {
  for (int i = 0; i < collectiveTypes; ++i) {
    const auto collective = static_cast<CollectiveType>(i);
    if (hasVariableCounts(collective)) continue;
    for (const DataType type : {DataType::INT8, DataType::UINT16, DataType::BFLOAT16, DataType::FLOAT32,
                                DataType::FLOAT64, DataType::FLOAT8_E4M3FN}) {
      for (const std::size_t count : {1, 1003}) testCheck(backend, data, collective, type, ReduceOp::PROD, 3, count);
    }
    testCheck(backend, data, collective, DataType::FLOAT32, ReduceOp::PROD, 2, 77);
  }
  // Signs of sums, averages and extrema are random, and 0 has none that counts: integers alone differ in any bit.
  for (const ReduceOp op : {ReduceOp::SUM, ReduceOp::MIN, ReduceOp::MAX, ReduceOp::AVG}) {
    for (const DataType type : {DataType::INT32, DataType::UINT64}) {
      testCheck(backend, data, CollectiveType::AllReduce, type, op, 4, 1003);
    }
    for (const DataType type : {DataType::FLOAT16, DataType::BFLOAT16, DataType::FLOAT32, DataType::FLOAT64,
                                DataType::FLOAT8_E4M3FN, DataType::FLOAT8_E5M2}) {
      CAPTURE(std::string(nameOf(type)));
      CAPTURE(std::string(nameOf(op)));
      CHECK(CheckedCall(backend, data, CollectiveType::AllReduce, type, op, 4, 1003).wrong(2) == 0);
    }
  }
}

/// Ranks have different inputs, so that a call which does nothing, or takes the wrong rank's data, is found.
inline void testInputsDiffer(Backend& backend, TestData& data) {
  for (const auto collective : {CollectiveType::Broadcast, CollectiveType::AllReduce}) {
    const CheckedCall call(backend, data, collective, DataType::FLOAT32, ReduceOp::SUM, 3, 1000);
    CHECK(call.equalInputs(0, 1) < 10);
    CHECK(call.equalInputs(1, 2) < 10);
  }
}

}  // namespace mscclpp::test
