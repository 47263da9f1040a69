// Serialised objects of a peer: any bytes are either rejected, or read and written back unchanged.
//
// The first byte of an input selects the type of the rest.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <vector>

#include "check.hpp"
#include "host/bootstrap/unique_id.hpp"
#include "host/memory/host_allocation.hpp"
#include "host/transport/memory_registration.hpp"
#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/transport/context.hpp"
#if MSCCLPP_HAVE_RDMA
#include "host/transport/verbs/endpoint_info.hpp"
#endif

using namespace mscclpp;
using namespace mscclpp::fuzz;

namespace {

using Bytes = std::vector<char>;

void readUniqueId(const Bytes& bytes) {
  UniqueId id{};
  std::copy_n(bytes.begin(), std::min(bytes.size(), id.size()), id.begin());
  accepts([&] {
    const detail::Rendezvous where = detail::fromUniqueId(id);
    const detail::Rendezvous again = detail::fromUniqueId(detail::toUniqueId(where));
    check(again.address == where.address && again.secret == where.secret, "a UniqueId keeps what it holds");
    (void)where.address.toString();
  });
  // And with a valid checksum, which a process that has seen a UniqueId can compute.
  detail::Rendezvous forged{};
  std::copy_n(id.begin(), sizeof(forged), reinterpret_cast<std::uint8_t*>(&forged));
  const detail::Rendezvous read = detail::fromUniqueId(detail::toUniqueId(forged));
  check(read.address == forged.address, "a UniqueId keeps what it holds");
  accepts([&] {
    (void)read.address.toString();
    sockaddr_storage storage;
    (void)read.address.toSockaddr(storage);
  });
}

void readEndpoint(const Bytes& bytes) {
  accepts([&] { check(Endpoint::deserialize(bytes).serialize() == bytes, "an Endpoint is written as it was read"); });
}

void readVerbs([[maybe_unused]] const Bytes& bytes) {
#if MSCCLPP_HAVE_RDMA
  accepts([&] {
    check(detail::ib::EndpointInfo::deserialize(bytes).serialize() == bytes,
          "verbs details are written as they were read");
  });
#endif
}

// Memory of a peer may also be deregistered or impossible to map, with other error codes.
template <class T>
void deserialize(const Bytes& bytes) {
  try {
    (void)T::deserialize(bytes);
  } catch (const BaseError&) {
  }
}

void readRegistration(const Bytes& bytes) {
  const bool isWellFormed = accepts([&] {
    check(detail::MemoryRegistration::deserialize(bytes).serialize() == bytes,
          "a registration is written as it was read");
  });
  if (isWellFormed) deserialize<RegisteredMemory>(bytes);
}

void readSemaphore(const Bytes& bytes) {
  deserialize<SemaphoreStub>(bytes);
}

// A registration of another process of this host, modified: only memory within its bounds is mapped.
void mapMemory(FuzzedDataProvider& input) {
  static const auto context = Context::create();
  static const HostBuffer buffer(3 * 4096);
  static const RegisteredMemory mine = context->registerMemory(buffer.data(), buffer.bytes(), Transport::SharedMemory);
  detail::MemoryRegistration form = detail::MemoryRegistration::deserialize(mine.serialize());
  form.process[0] ^= 1;  // of another process
  if (input.ConsumeBool()) form.size = input.ConsumeIntegral<std::uint64_t>();
  if (input.ConsumeBool()) form.size = input.ConsumeIntegralInRange<std::uint64_t>(1, 4 * 4096);
  detail::MemoryHandle& handle = form.handles.at(0);
  if (input.ConsumeBool()) handle.offset = input.ConsumeIntegral<std::uint64_t>();
  if (input.ConsumeBool()) handle.offset = input.ConsumeIntegralInRange<std::uint64_t>(0, 4 * 4096);
  if (input.ConsumeBool()) handle.allocationBytes = input.ConsumeIntegral<std::uint64_t>();
  if (input.ConsumeBool()) handle.allocation[0] ^= input.ConsumeIntegral<std::uint8_t>();
  if (input.ConsumeBool()) handle.access[input.ConsumeIntegralInRange<std::size_t>(0, 63)] ^= 1;
  try {
    const RegisteredMemory mapped = RegisteredMemory::deserialize(form.serialize());
    if (mapped.data() == nullptr) return;
    check(mapped.size() <= buffer.bytes(), "no more is mapped than there is");
    auto* bytes = static_cast<volatile char*>(mapped.data());
    bytes[0] = bytes[mapped.size() - 1];
  } catch (const BaseError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return -1;
  const Bytes rest(reinterpret_cast<const char*>(data) + 1, reinterpret_cast<const char*>(data) + size);
  FuzzedDataProvider provider(data + 1, size - 1);
  switch (data[0]) {
    case 'u':
      readUniqueId(rest);
      break;
    case 'e':
      readEndpoint(rest);
      break;
    case 'v':
      readVerbs(rest);
      break;
    case 'm':
      readRegistration(rest);
      break;
    case 's':
      readSemaphore(rest);
      break;
    case 'p':
      mapMemory(provider);
      break;
    default:
      return -1;
  }
  return 0;
}
