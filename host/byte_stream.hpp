// Serialised forms: a kind, a version and a length, then fields in a fixed order. Reading checks every bound.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "mscclpp/host/error.hpp"

namespace mscclpp::detail {

static_assert(std::endian::native == std::endian::little, "serialised forms are little-endian");

/// Which object some bytes stand for. A change of its fields takes a new version.
struct Form {
  const char* name;
  std::uint32_t kind;
  std::uint32_t version;
};

template <typename T>
concept Field = std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T> && !std::is_pointer_v<T>;

class ByteWriter {
 public:
  explicit ByteWriter(const Form& form) {
    put(form.kind);
    put(form.version);
    put(std::uint64_t{0});  // the length, which finish() knows
  }

  template <Field T>
  ByteWriter& put(const T& value) {
    const auto* bytes = reinterpret_cast<const char*>(&value);
    bytes_.insert(bytes_.end(), bytes, bytes + sizeof(T));
    return *this;
  }

  ByteWriter& putBytes(const std::vector<char>& bytes) {
    put(static_cast<std::uint64_t>(bytes.size()));
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }

  std::vector<char> finish() {
    const std::uint64_t length = bytes_.size();
    std::memcpy(bytes_.data() + lengthOffset, &length, sizeof(length));
    return std::move(bytes_);
  }

 private:
  static constexpr std::size_t lengthOffset = 2 * sizeof(std::uint32_t);
  std::vector<char> bytes_;
};

/// Reads what ByteWriter wrote. Anything else throws Error(InvalidUsage). The bytes must outlive the reader.
class ByteReader {
 public:
  ByteReader(const std::vector<char>& bytes, const Form& form) : bytes_(bytes), form_(form) {
    if (get<std::uint32_t>() != form.kind) fail("they are of another kind, or no serialised form at all");
    const auto version = get<std::uint32_t>();
    if (version != form.version) {
      fail("their version is " + std::to_string(version) + ", and this library reads version " +
           std::to_string(form.version) + "; use the same library on every rank");
    }
    if (get<std::uint64_t>() != bytes.size()) fail("bytes are missing or there are too many");
  }

  template <Field T>
  T get() {
    T value;
    need(sizeof(T));
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::vector<char> getBytes() {
    const auto size = get<std::uint64_t>();
    need(size);
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(position_);
    position_ += size;
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
  }

  /// An enumerator stored as 32 bits, below `end`.
  template <typename Enum>
  Enum getEnum(Enum end) {
    const auto value = get<std::uint32_t>();
    if (value >= static_cast<std::uint32_t>(end)) fail("a field is out of range");
    return static_cast<Enum>(value);
  }

  /// Called after the last field.
  void end() const {
    if (position_ != bytes_.size()) fail("they are longer than their fields");
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error("these " + std::to_string(bytes_.size()) + " bytes are not a serialised " + form_.name + ": " + why,
                ErrorCode::InvalidUsage);
  }

 private:
  void need(std::uint64_t size) const {
    if (size > bytes_.size() - position_) fail("they end too early");
  }

  const std::vector<char>& bytes_;
  Form form_;
  std::size_t position_ = 0;
};

}  // namespace mscclpp::detail
