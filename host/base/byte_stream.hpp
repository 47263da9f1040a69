// Serialisation: a kind, a version and a length, then fields in a fixed order. Reading checks every bound.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "mscclpp/host/base/error.hpp"

namespace mscclpp::detail {

static_assert(std::endian::native == std::endian::little, "serialised forms are little-endian");

/// The type of a serialised object. A change of its fields needs a new version.
struct WireFormat {
  const char* name;
  std::uint32_t kind;
  std::uint32_t version;
};

template <typename T>
concept Field = std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T> && !std::is_pointer_v<T>;

class ByteWriter {
 public:
  explicit ByteWriter(const WireFormat& format) {
    put(format.kind);
    put(format.version);
    put(std::uint64_t{0});  // the length, filled in by finish()
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
  ByteReader(const std::vector<char>& bytes, const WireFormat& format) : bytes_(bytes), format_(format) {
    if (get<std::uint32_t>() != format.kind) fail("they are of another type, or not serialised by mscclpp");
    const auto version = get<std::uint32_t>();
    if (version != format.version) {
      fail("their version is " + std::to_string(version) + ", and this library reads version " +
           std::to_string(format.version) + "; use the same library on every rank");
    }
    if (get<std::uint64_t>() != bytes.size()) fail("their length differs from the one that they state");
  }

  template <Field T>
  T get() {
    T value;
    requireBytes(sizeof(T));
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::vector<char> getBytes() {
    const auto size = get<std::uint64_t>();
    requireBytes(size);
    const auto begin = bytes_.begin() + static_cast<std::ptrdiff_t>(position_);
    position_ += size;
    return {begin, begin + static_cast<std::ptrdiff_t>(size)};
  }

  /// An enumerator stored as 32 bits, less than `end`.
  template <typename Enum>
  Enum getEnum(Enum end) {
    const auto value = get<std::uint32_t>();
    if (value >= static_cast<std::uint32_t>(end)) fail("a field is out of range");
    return static_cast<Enum>(value);
  }

  /// Called after the last field.
  void expectEnd() const {
    if (position_ != bytes_.size()) fail("there are bytes after the last field");
  }

  [[noreturn]] void fail(const std::string& why) const {
    throw Error("these " + std::to_string(bytes_.size()) + " bytes are not a serialised " + format_.name + ": " + why,
                ErrorCode::InvalidUsage);
  }

 private:
  void requireBytes(std::uint64_t size) const {
    if (size > bytes_.size() - position_) fail("they end too early");
  }

  const std::vector<char>& bytes_;
  WireFormat format_;
  std::size_t position_ = 0;
};

}  // namespace mscclpp::detail
