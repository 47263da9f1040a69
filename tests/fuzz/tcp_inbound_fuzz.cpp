// The receiving end of a TCP connection: whatever a peer sends, memory that is not on offer stays as it was, and what is
// on offer holds what a model of the protocol says.
#include <fuzzer/FuzzedDataProvider.h>
#include <sys/socket.h>

#include <cstring>
#include <vector>

#include "../../host/transport/tcp/inbound.hpp"
#include "check.hpp"

using namespace mscclpp;
using namespace mscclpp::detail;
using namespace mscclpp::detail::tcp;
using namespace mscclpp::fuzz;

namespace {

constexpr std::size_t sizes[] = {8, 64, 4099};

/// Memory on offer, and what should be in it. On the heap, of its exact size: a byte beyond it is noticed.
struct Piece {
  explicit Piece(std::size_t size) : real(size), model(size) {}
  std::vector<char> real;
  std::vector<char> model;
  Id128 name{};
};

class Rig {
 public:
  Rig() {
    auto [peer, own] = makeSocketPair();
    peer_ = std::move(peer);
    for (const std::size_t size : sizes) {
      Piece& piece = pieces_.emplace_back(size);
      // operator new aligns to 16 bytes, as updates need it.
      piece.name = registry_.add(std::make_shared<Registration>(piece.real.data(), size, -1));
    }
    inbound_ = std::make_unique<Inbound>(std::move(own), registry_, nullptr);
  }

  /// Lets the peer say one thing. Returns false once the connection is over.
  bool step(FuzzedDataProvider& input) {
    Message message{};
    message.operation = static_cast<Operation>(input.ConsumeIntegralInRange<std::uint32_t>(0, 4));
    message.number = applied_ + (message.operation == Operation::Query ? 0 : 1);
    if (input.ConsumeProbability<float>() > 0.9F) message.number = input.ConsumeIntegral<std::uint64_t>();
    const auto which = input.ConsumeIntegralInRange<std::size_t>(0, pieces_.size());
    Piece* piece = which < pieces_.size() ? &pieces_[which] : nullptr;
    if (piece != nullptr) message.memory = piece->name;
    const std::size_t bound = piece != nullptr ? piece->real.size() : 8;
    message.offset = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::uint64_t>(0, bound)
                                         : input.ConsumeIntegral<std::uint64_t>();
    message.size = input.ConsumeBool() ? input.ConsumeIntegralInRange<std::uint64_t>(0, bound)
                                       : input.ConsumeIntegral<std::uint64_t>();
    message.value = input.ConsumeIntegral<std::uint64_t>();
    const bool isGood = apply(message, piece);
    send(input, &message, sizeof(message));
    if (isGood && message.operation == Operation::Write) {
      std::vector<char> payload = input.ConsumeBytes<char>(message.size);
      payload.resize(message.size, 'p');
      std::memcpy(piece->model.data() + message.offset, payload.data(), payload.size());
      send(input, payload.data(), payload.size());
    }
    for (int i = 0; i < 4; ++i) isOpen_ = inbound_->serve() && isOpen_;
    if (message.operation == Operation::Query && isGood) {
      check(readAnswer() && answer_.outcome == Outcome::Fine && answer_.completed == applied_,
            "a question is answered");
    }
    if (!isGood) check(readAnswer() && answer_.outcome != Outcome::Fine, "a refusal is said");
    return isGood;
  }

  /// Bytes that are no message.
  void garbage(FuzzedDataProvider& input) {
    const std::vector<char> bytes = input.ConsumeRemainingBytes<char>();
    send(input, bytes.data(), bytes.size());
  }

  void end() {
    for (int i = 0; i < 20 && inbound_->serve(); ++i) {
    }
    inbound_.reset();
  }
  void checkMemory() const {
    for (const Piece& piece : pieces_) check(piece.real == piece.model, "memory holds what was written, and no more");
  }

 private:
  // What the operation should do.
  bool apply(const Message& message, Piece* piece) {
    if (message.operation == Operation::Query) return message.number <= applied_;
    if (message.operation != Operation::Write && message.operation != Operation::Update) return false;
    if (piece == nullptr || message.number != applied_ + 1) return false;
    const bool isWrite = message.operation == Operation::Write;
    const std::size_t size = isWrite ? message.size : sizeof(message.value);
    if (size == 0 || size > piece->real.size() || message.offset > piece->real.size() - size) return false;
    if (!isWrite) {
      if (reinterpret_cast<std::uintptr_t>(piece->real.data() + message.offset) % 8 != 0) return false;
      std::memcpy(piece->model.data() + message.offset, &message.value, sizeof(message.value));
    }
    ++applied_;
    return true;
  }

  // In pieces, so that nothing arrives whole by luck.
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
  bool readAnswer() { return ::recv(peer_.get(), &answer_, sizeof(answer_), MSG_DONTWAIT) == sizeof(answer_); }

  Registry registry_;
  std::vector<Piece> pieces_;
  UniqueFd peer_;
  std::unique_ptr<Inbound> inbound_;
  std::uint64_t applied_ = 0;
  bool isOpen_ = true;
  Answer answer_{};
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  Rig rig;
  bool isGood = true;
  for (int i = 0; i < 30 && isGood && input.remaining_bytes() > 0; ++i) isGood = rig.step(input);
  rig.checkMemory();
  if (!isGood) rig.garbage(input);  // after a refusal nothing is taken any more
  rig.end();
  rig.checkMemory();
  return 0;
}
