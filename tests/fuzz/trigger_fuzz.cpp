// Triggers, in both layouts: any words that a kernel may push into a FIFO are executed as requested, or end the proxy
// with an error, and change no memory other than that of the request.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstring>
#include <memory>
#include <vector>

#include "check.hpp"
#include "mscclpp/host/communicator/semaphore.hpp"
#include "mscclpp/host/memory/host_buffer.hpp"
#include "mscclpp/host/proxy/proxy_service.hpp"
#include "mscclpp/host/transport/context.hpp"

using namespace mscclpp;
using namespace mscclpp::fuzz;

namespace {

constexpr std::size_t memories = 2;
constexpr std::size_t memoryBytes = 4096;
constexpr std::size_t guardBytes = 4096;

/// A connection of this process to itself, and memory between guards.
struct Fixture {
  std::shared_ptr<Context> context = Context::create();
  Connection connection = makeConnection(*context);
  HostBuffer buffer{guardBytes + memories * (memoryBytes + guardBytes)};
  std::vector<RegisteredMemory> registered;
  std::vector<char> model = std::vector<char>(buffer.bytes());

  Fixture() {
    for (std::size_t i = 0; i < memories; ++i) {
      registered.push_back(context->registerMemory(bytes() + offsetOf(i), memoryBytes, Transport::SharedMemory));
    }
    for (std::size_t i = 0; i < buffer.bytes(); ++i) model[i] = static_cast<char>(i * 7);
    std::memcpy(bytes(), model.data(), model.size());
  }
  char* bytes() const { return static_cast<char*>(buffer.data()); }
  static std::size_t offsetOf(std::size_t memory) { return guardBytes + memory * (memoryBytes + guardBytes); }

  static Connection makeConnection(Context& context) {
    const EndpointConfig config(Transport::SharedMemory, DeviceType::CPU);
    const Endpoint local = context.createEndpoint(config);
    const Endpoint remote = context.createEndpoint(config);
    return context.connect(local, remote);
  }
};

Fixture& fixture() {
  static Fixture fixture;
  return fixture;
}

/// Applies a request to the model. Returns whether the service must accept it.
bool applyTo(const PortRequest& request, std::vector<char>& model) {
  constexpr TriggerType known = TriggerData | TriggerFlag | TriggerSync | TriggerValue;
  const bool isValue = (request.type & TriggerValue) != 0;
  if (request.type == 0 || (request.type & ~known) != 0) return false;
  if (isValue && (request.type & ~(TriggerValue | TriggerFlag)) != 0) return false;
  if (request.semaphore != 0) return false;
  const auto isInside = [](std::uint64_t offset, std::uint64_t size) {
    return size <= memoryBytes && offset <= memoryBytes - size;
  };
  if ((request.type & TriggerData) != 0) {
    if (request.dstMemory >= memories || request.srcMemory >= memories) return false;
    if (!isInside(request.dstOffset, request.size) || !isInside(request.srcOffset, request.size)) return false;
    std::memmove(model.data() + Fixture::offsetOf(request.dstMemory) + request.dstOffset,
                 model.data() + Fixture::offsetOf(request.srcMemory) + request.srcOffset, request.size);
  }
  if (isValue) {
    if (request.dstMemory >= memories || !isInside(request.dstOffset, 8) || request.dstOffset % 8 != 0) return false;
    std::memcpy(model.data() + Fixture::offsetOf(request.dstMemory) + request.dstOffset, &request.size, 8);
  }
  return true;
}

// Numbers in or just beyond the valid range, with higher probability.
std::uint64_t number(FuzzedDataProvider& input, std::uint64_t bound) {
  return input.ConsumeProbability<float>() > 0.1F ? input.ConsumeIntegralInRange<std::uint64_t>(0, bound)
                                                  : input.ConsumeIntegral<std::uint64_t>();
}

template <class Trigger>
Trigger makeTrigger(FuzzedDataProvider& input) {
  if (input.ConsumeProbability<float>() > 0.8F) {
    Word128 words[Trigger::words];
    for (Word128& word : words) word = {input.ConsumeIntegral<std::uint64_t>(), input.ConsumeIntegral<std::uint64_t>()};
    return Trigger::fromWords(words);
  }
  PortRequest request{};
  request.type = number(input, 16);
  request.dstMemory = static_cast<MemoryId>(number(input, memories));
  request.dstOffset = number(input, memoryBytes);
  request.srcMemory = static_cast<MemoryId>(number(input, memories));
  request.srcOffset = number(input, memoryBytes);
  request.size = number(input, memoryBytes);
  request.semaphore = static_cast<SemaphoreId>(number(input, 1));
  return Trigger::make(request);
}

template <class Trigger>
void checkLayout(const Trigger& trigger) {
  Word128 words[Trigger::words];
  for (int i = 0; i < Trigger::words; ++i) words[i] = trigger.word(i);
  const Trigger decoded = Trigger::fromWords(words);
  for (int i = 0; i < Trigger::words; ++i) {
    check(decoded.word(i).lo == words[i].lo && decoded.word(i).hi == (words[i].hi & ~triggerPhaseBit),
          "words carry a trigger");
  }
}

template <class Trigger>
void run(FuzzedDataProvider& input) {
  Fixture& here = fixture();
  BasicProxyService<Trigger> service({.thread = {.device = DeviceType::CPU}, .fifoSize = 16});
  const SemaphoreStub local(here.connection);
  const SemaphoreStub remote(here.connection);
  const SemaphoreId id = service.addSemaphore(Semaphore(local, remote));
  for (const RegisteredMemory& memory : here.registered) service.addMemory(memory);
  const auto channel = service.basePortChannel(id);
  auto fifo = channel.deviceHandle().fifo_;

  bool isValid = true;
  for (int i = 0; i < 8 && isValid && input.remaining_bytes() > 0; ++i) {
    const Trigger trigger = makeTrigger<Trigger>(input);
    checkLayout(trigger);
    isValid = applyTo(trigger.request(), here.model);
    fifo.push(trigger);
  }
  service.startProxy();
  bool hasFailed = false;
  try {
    service.stopProxy();  // all pushed triggers are handled first
  } catch (const Error& error) {
    check(error.getErrorCode() == ErrorCode::InvalidUsage, error.what());
    hasFailed = true;
  }
  check(hasFailed != isValid, "the proxy refuses what is wrong, and only that");
  check(std::memcmp(here.bytes(), here.model.data(), here.model.size()) == 0, "memory holds what was asked for");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  if (input.ConsumeBool()) {
    run<ProxyTrigger>(input);
  } else {
    run<WideTrigger>(input);
  }
  return 0;
}
