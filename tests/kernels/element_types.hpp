// The element types and operators of the compiled collectives, and checks of their output.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "mscclpp/basic/data_type.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"
#include "tests/backend/sanitizer.hpp"
#include "tests/collective/reference.hpp"

namespace mscclpp::test {

inline constexpr std::array elementTypes = {
    DataType::INT8,          DataType::UINT8,       DataType::INT16,   DataType::UINT16,  DataType::INT32,
    DataType::UINT32,        DataType::INT64,       DataType::UINT64,  DataType::FLOAT16, DataType::BFLOAT16,
    DataType::FLOAT8_E4M3FN, DataType::FLOAT8_E5M2, DataType::FLOAT32, DataType::FLOAT64};
inline constexpr std::array operators = {ReduceOp::SUM, ReduceOp::PROD, ReduceOp::MIN, ReduceOp::MAX, ReduceOp::AVG};

/// Those for which all algorithms are called. ThreadSanitizer sees synchronisation, which depends on the size of an
/// element and on whether the operator is known at compile time, and takes long: one of each size, two operators.
inline const std::vector<DataType> combinedTypes =
    thinned<DataType>({elementTypes.begin(), elementTypes.end()},
                      {DataType::FLOAT8_E4M3FN, DataType::BFLOAT16, DataType::FLOAT32, DataType::INT64});
inline const std::vector<ReduceOp> combinedOperators =
    thinned<ReduceOp>({operators.begin(), operators.end()}, {ReduceOp::SUM, ReduceOp::MAX});

/// Where a call writes its result.
enum class Output { OtherBuffer, InPlace };

using Bytes = std::vector<unsigned char>;

template <class T>
Bytes bytesOf(const std::vector<T>& elements) {
  Bytes bytes(elements.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

/// The inputs of all ranks, from inputsOf().
inline std::vector<Bytes> inputBytes(DataType type, std::size_t count, int ranks, unsigned seed) {
  std::vector<Bytes> inputs;
  visit(
      type,
      [&](auto tag) {
        for (const auto& input : inputsOf<typename decltype(tag)::Type>(count, ranks, seed)) {
          inputs.push_back(bytesOf(input));
        }
      },
      [] {});
  return inputs;
}

template <class T>
std::vector<T> elementsOf(const Bytes& bytes) {
  std::vector<T> elements(bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(static_cast<void*>(elements.data()), bytes.data(), bytes.size());
  return elements;
}

/// The error in an output, or empty. Any NaN is accepted where the reference has one.
inline std::string describeDifference(DataType type, ReduceOp op, const std::vector<Bytes>& inputs,
                                      const Bytes& output) {
  const auto none = [] { return std::string("no such element type or operator"); };
  return visit(
      type,
      [&](auto typeTag) {
        using T = typename decltype(typeTag)::Type;
        return visit(
            op,
            [&](auto opTag) {
              std::vector<std::vector<T>> elements;
              for (const Bytes& input : inputs) elements.push_back(elementsOf<T>(input));
              const auto wanted = referenceOf<T, typename decltype(opTag)::Type>(elements);
              const auto actual = elementsOf<T>(output);
              if (wanted.size() != actual.size()) return std::string("wrong length");
              for (std::size_t i = 0; i < wanted.size(); ++i) {
                if (isNan(wanted[i]) && isNan(actual[i])) continue;
                if (std::memcmp(&wanted[i], &actual[i], sizeof(T)) != 0) {
                  return "element " + std::to_string(i) + " of " + std::to_string(wanted.size()) + " differs";
                }
              }
              return std::string();
            },
            none);
      },
      none);
}

/// FNV-1a.
inline std::uint64_t hashOf(const Bytes& bytes) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const auto byte : bytes) hash = (hash ^ byte) * 0x100000001b3u;
  return hash;
}

/// Whether all ranks call this with the same value. Called by all ranks.
inline bool sameOnAllRanks(Bootstrap& bootstrap, std::uint64_t value) {
  std::vector<std::uint64_t> all(static_cast<std::size_t>(bootstrap.getNranks()));
  all[static_cast<std::size_t>(bootstrap.getRank())] = value;
  bootstrap.allGather(all.data(), sizeof(std::uint64_t));
  for (const auto other : all) {
    if (other != value) return false;
  }
  return true;
}

}  // namespace mscclpp::test
