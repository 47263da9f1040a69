// The receiving end of a TCP connection: whatever a peer sends, unregistered memory stays unchanged, and registered
// memory has the contents that a model of the protocol predicts.
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>

#include <cstring>
#include <vector>

#include "check.hpp"
#include "host/transport/tcp/tcp_receiver.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::detail::tcp;
using namespace mscclpp::fuzz;

namespace {

constexpr std::size_t sizes[] = {8, 64, 4099};

/// Registered memory, and its expected contents. On the heap, of its exact size, so that an overrun is detected.
struct MemoryRegion {
  explicit MemoryRegion(std::size_t size) : real(size), model(size) {}
  std::vector<char> real;
  std::vector<char> model;
  Id128 name{};
};

class Fixture {
 public:
  Fixture() {
    auto [peer, own] = makeSocketPair();
    peer_ = std::move(peer);
    for (const std::size_t size : sizes) {
      MemoryRegion& region = regions_.emplace_back(size);
      // operator new aligns to 16 bytes, which updates require.
      region.name = registry_.add(std::make_shared<Registration>(region.real.data(), size, -1));
    }
    inbound_ = std::make_unique<TcpReceiver>(std::move(own), registry_, nullptr);
  }

  /// Sends one operation of the peer. Returns false once the connection has ended.
  bool step(FuzzedDataProvider& input) {
    Message message{};
    message.operation = static_cast<Operation>(input.ConsumeIntegralInRange<std::uint32_t>(0, 4));
    message.number = applied_ + (message.operation == Operation::Query ? 0 : 1);
    if (input.ConsumeProbability<float>() > 0.9F) message.number = input.ConsumeIntegral<std::uint64_t>();
    const auto which = input.ConsumeIntegralInRange<std::size_t>(0, regions_.size());
    MemoryRegion* region = which < regions_.size() ? &regions_[which] : nullptr;
    if (region != nullptr) message.memory = region->name;
    const std::size_t bound = region != nullptr ? region->real.size() : 8;
    message.offset = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::uint64_t>(0, bound)
                                         : input.ConsumeIntegral<std::uint64_t>();
    message.size = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::uint64_t>(0, bound)
                                       : input.ConsumeIntegral<std::uint64_t>();
    message.value = input.ConsumeIntegral<std::uint64_t>();
    const bool isValid = apply(message, region);
    send(input, &message, sizeof(message));
    if (isValid && message.operation == Operation::Write) {
      std::vector<char> payload = input.ConsumeBytes<char>(message.size);
      payload.resize(message.size, 'p');
      std::memcpy(region->model.data() + message.offset, payload.data(), payload.size());
      send(input, payload.data(), payload.size());
    }
    for (int i = 0; i < 4; ++i) isOpen_ = inbound_->serve() && isOpen_;
    if (message.operation == Operation::Query && isValid) {
      check(readAnswer() && reply_.status == Status::Ok && reply_.completed == applied_, "a question is answered");
    }
    if (!isValid) check(readAnswer() && reply_.status != Status::Ok, "a refusal is said");
    return isValid;
  }

  /// Bytes that are not a message.
  void sendGarbage(FuzzedDataProvider& input) {
    const std::vector<char> bytes = input.ConsumeRemainingBytes<char>();
    send(input, bytes.data(), bytes.size());
  }

  void end() {
    for (int i = 0; i < 20 && inbound_->serve(); ++i) {
    }
    inbound_.reset();
  }
  void checkMemory() const {
    for (const MemoryRegion& region : regions_)
      check(region.real == region.model, "memory holds what was written, and no more");
  }

 private:
  // Applies the operation to the model. Returns whether it must be accepted.
  bool apply(const Message& message, MemoryRegion* region) {
    if (message.operation == Operation::Query) return message.number <= applied_;
    if (message.operation != Operation::Write && message.operation != Operation::Update) return false;
    if (region == nullptr || message.number != applied_ + 1) return false;
    const bool isWrite = message.operation == Operation::Write;
    const std::size_t size = isWrite ? message.size : sizeof(message.value);
    if (size == 0 || size > region->real.size() || message.offset > region->real.size() - size) return false;
    if (!isWrite) {
      if (reinterpret_cast<std::uintptr_t>(region->real.data() + message.offset) % 8 != 0) return false;
      std::memcpy(region->model.data() + message.offset, &message.value, sizeof(message.value));
    }
    ++applied_;
    return true;
  }

  // In chunks, so that partial messages arrive.
  void send(FuzzedDataProvider& input, const void* data, std::size_t size) {
    const auto* next = static_cast<const char*>(data);
    while (size > 0) {
      const std::size_t piece = std::min(size, input.ConsumeIntegralInRange<std::size_t>(1, 5000));
      const ssize_t count = ::send(peer_.get(), next, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count > 0) {
        next += count;
        size -= static_cast<std::size_t>(count);
      }
      isOpen_ = inbound_->serve() && isOpen_;
      if (!isOpen_) return;
    }
  }
  bool readAnswer() { return ::recv(peer_.get(), &reply_, sizeof(reply_), MSG_DONTWAIT) == sizeof(reply_); }

  Registry registry_;
  std::vector<MemoryRegion> regions_;
  UniqueFd peer_;
  std::unique_ptr<TcpReceiver> inbound_;
  std::uint64_t applied_ = 0;
  bool isOpen_ = true;
  Reply reply_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  Fixture fixture;
  bool isValid = true;
  for (int i = 0; i < 30 && isValid && input.remaining_bytes() > 0; ++i) isValid = fixture.step(input);
  fixture.checkMemory();
  if (!isValid) fixture.sendGarbage(input);  // after a rejection nothing more is read
  fixture.end();
  fixture.checkMemory();
  return 0;
}
