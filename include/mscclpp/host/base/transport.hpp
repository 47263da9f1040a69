// Transports: their names, and sets of them.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

#include "mscclpp/config.hpp"

namespace mscclpp {

/// A method of accessing another rank's memory.
enum class Transport {
  Unknown,
  CudaIpc,  ///< GPU memory of the same host, mapped into this process
  IB0,      ///< the first verbs device, and so on
  IB1,
  IB2,
  IB3,
  IB4,
  IB5,
  IB6,
  IB7,
  Ethernet,      ///< TCP
  SharedMemory,  ///< host memory of the same host, mapped into this process; used by CPU ranks
  NumTransports,
};

/// The enumerator's name: "CudaIpc".
std::string nameOf(Transport transport);
/// Short names, as of MSCCL++: UNK, IPC, IB0 to IB7, ETH, SHM.
std::ostream& operator<<(std::ostream& out, Transport transport);

namespace detail {
inline constexpr std::size_t TransportFlagsSize = static_cast<std::size_t>(Transport::NumTransports);
/// One bit for each transport, at the position of its enumerator.
using TransportFlagsBase = std::bitset<TransportFlagsSize>;
}  // namespace detail

/// A set of transports.
class TransportFlags {
 public:
  constexpr TransportFlags() = default;
  /// The set with one transport; Unknown gives the empty set.
  constexpr TransportFlags(Transport transport) : bits_(bitOf(transport)) {}  // NOLINT: implicit, as in `A | B`

  constexpr bool has(Transport transport) const { return (bits_ & bitOf(transport)) != 0; }
  constexpr bool none() const { return bits_ == 0; }
  constexpr bool any() const { return bits_ != 0; }
  /// Whether every known transport is in the set.
  constexpr bool all() const { return bits_ == everyBit(); }
  std::size_t count() const { return toBitset().count(); }
  detail::TransportFlagsBase toBitset() const { return bits_; }

  constexpr TransportFlags& operator|=(TransportFlags other) { return *this = *this | other; }
  constexpr TransportFlags& operator&=(TransportFlags other) { return *this = *this & other; }
  constexpr TransportFlags& operator^=(TransportFlags other) { return *this = *this ^ other; }
  friend constexpr TransportFlags operator|(TransportFlags a, TransportFlags b) { return fromBits(a.bits_ | b.bits_); }
  friend constexpr TransportFlags operator&(TransportFlags a, TransportFlags b) { return fromBits(a.bits_ & b.bits_); }
  friend constexpr TransportFlags operator^(TransportFlags a, TransportFlags b) { return fromBits(a.bits_ ^ b.bits_); }
  constexpr TransportFlags operator~() const { return fromBits(everyBit() & ~bits_); }
  friend constexpr bool operator==(TransportFlags, TransportFlags) = default;

 private:
  static constexpr std::uint32_t bitOf(Transport transport) {
    return transport == Transport::Unknown || transport == Transport::NumTransports
               ? 0
               : std::uint32_t{1} << static_cast<unsigned>(transport);
  }
  static constexpr std::uint32_t everyBit() {
    return (std::uint32_t{1} << static_cast<unsigned>(Transport::NumTransports)) - 2;
  }
  static constexpr TransportFlags fromBits(std::uint32_t bits) {
    TransportFlags flags;
    flags.bits_ = bits;
    return flags;
  }

  std::uint32_t bits_ = 0;
};

constexpr TransportFlags operator|(Transport a, Transport b) {
  return TransportFlags(a) | TransportFlags(b);
}
constexpr TransportFlags operator&(Transport a, Transport b) {
  return TransportFlags(a) & TransportFlags(b);
}
constexpr TransportFlags operator^(Transport a, Transport b) {
  return TransportFlags(a) ^ TransportFlags(b);
}
constexpr TransportFlags operator~(Transport transport) {
  return ~TransportFlags(transport);
}

/// The names in the set, joined by '|'; "none" for the empty one.
std::string nameOf(TransportFlags flags);

inline constexpr TransportFlags NoTransports{};
inline constexpr TransportFlags AllIBTransports = Transport::IB0 | Transport::IB1 | Transport::IB2 | Transport::IB3 |
                                                  Transport::IB4 | Transport::IB5 | Transport::IB6 | Transport::IB7;
inline constexpr TransportFlags AllTransports = ~NoTransports;

}  // namespace mscclpp
