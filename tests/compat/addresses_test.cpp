// The addresses of MSCCL++'s host functions, as bindings and wrappers take them: a function that MSCCL++ does not
// overload is not overloaded here, and has the same type.
#include <doctest/doctest.h>

#include <mscclpp/core.hpp>
#include <mscclpp/gpu_utils.hpp>
#include <mscclpp/memory_channel.hpp>
#include <mscclpp/semaphore.hpp>
#include <mscclpp/switch_channel.hpp>
#include <mscclpp/utils.hpp>

#include "tests/host/ranks.hpp"

using namespace mscclpp;

namespace {

using Bytes = std::vector<char>;

/// Whether `&X::f`, which must not be overloaded, has the type or differs only in noexcept.
template <class Wanted, class Function>
constexpr bool isA(Function) {
  return std::is_convertible_v<Function, Wanted>;
}

static_assert(isA<Connection (Context::*)(const Endpoint&, const Endpoint&)>(&Context::connect));
static_assert(isA<RegisteredMemory (Context::*)(void*, std::size_t, TransportFlags)>(&Context::registerMemory));
static_assert(isA<Endpoint (Context::*)(EndpointConfig)>(&Context::createEndpoint));
static_assert(isA<RegisteredMemory (*)(const Bytes&)>(&RegisteredMemory::deserialize));
static_assert(isA<SemaphoreStub (*)(const Bytes&)>(&SemaphoreStub::deserialize));
static_assert(isA<Endpoint (*)(const Bytes&)>(&Endpoint::deserialize));
static_assert(isA<SwitchChannel (NvlsConnection::*)(CUdeviceptr, std::size_t)>(&NvlsConnection::bindAllocatedMemory));
static_assert(isA<void (TcpBootstrap::*)(void*, int, int, int)>(&TcpBootstrap::send));
static_assert(isA<void (TcpBootstrap::*)(void*, int, int, int)>(&TcpBootstrap::recv));
static_assert(isA<std::shared_ptr<NvlsConnection> (*)(std::shared_ptr<Communicator>, std::vector<int>, std::size_t)>(
    &connectNvlsCollective));
static_assert(isA<Connection& (Semaphore::*)()>(&Semaphore::connection));
static_assert(isA<Connection& (MemoryDevice2DeviceSemaphore::*)()>(&MemoryDevice2DeviceSemaphore::connection));
static_assert(isA<Connection& (Host2DeviceSemaphore::*)()>(&Host2DeviceSemaphore::connection));
static_assert(isA<Connection& (Host2HostSemaphore::*)()>(&Host2HostSemaphore::connection));

constexpr void (TcpBootstrap::*initializeById)(UniqueId, std::int64_t) = &TcpBootstrap::initialize;
constexpr void (TcpBootstrap::*initializeByAddress)(const std::string&, std::int64_t) = &TcpBootstrap::initialize;
constexpr void (Bootstrap::*sendVector)(const Bytes&, int, int) = &Bootstrap::send;

static_assert(detail::TransportFlagsSize == static_cast<std::size_t>(Transport::NumTransports));
static_assert(std::is_same_v<decltype(TransportFlags().toBitset()), detail::TransportFlagsBase>);
static_assert(std::is_same_v<detail::UniqueGpuPtr<int>, std::unique_ptr<int, detail::GpuDeleter<int>>>);
static_assert(std::is_same_v<detail::UniqueGpuHostPtr<int>, std::unique_ptr<int, detail::GpuHostDeleter<int>>>);
static_assert(std::is_same_v<detail::UniqueGpuPhysicalPtr<int>, std::unique_ptr<int, detail::GpuPhysicalDeleter<int>>>);
static_assert(isA<std::unique_ptr<int, detail::GpuPhysicalDeleter<int>> (*)(std::size_t, std::size_t, std::size_t)>(
    &detail::gpuCallocPhysicalUnique<int>));

/// A user-defined error, which changes the protected members.
class TaggedError : public BaseError {
 public:
  TaggedError(const std::string& tag, int code) : BaseError(0) {
    message_ = "[" + tag + "] failed";
    errorCode_ = code;
  }
};

}  // namespace

TEST_CASE("compat host: functions called through their addresses") {
  const auto bootstrap = std::make_shared<TcpBootstrap>(0, 1);
  (*bootstrap.*initializeById)(TcpBootstrap::createUniqueId(), 30);
  (static_cast<Bootstrap&>(*bootstrap).*sendVector)({'a'}, 0, 7);
  std::vector<char> received;
  static_cast<Bootstrap&>(*bootstrap).recv(received, 0, 7);
  CHECK(received == std::vector<char>{'a'});
  TcpBootstrap other(0, 1);
  (other.*initializeByAddress)("127.0.0.1:" + std::to_string(test::freePort()), 30);
  CHECK(other.getNranks() == 1);

  const auto context = Context::create();
  const auto registerMemory = &Context::registerMemory;
  std::vector<std::uint64_t> memory(8);
  const RegisteredMemory registered = (*context.*registerMemory)(memory.data(), 64, Transport::Ethernet);
  const auto deserialize = &RegisteredMemory::deserialize;
  CHECK(deserialize(registered.serialize()).size() == 64);
}

TEST_CASE("compat host: a user-defined error class") {
  try {
    throw TaggedError("step", 17);
  } catch (const BaseError& error) {
    CHECK(std::string(error.what()) == "[step] failed");
    CHECK(error.getErrorCode() == 17);
  }
}
