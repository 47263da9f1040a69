#include "user_buffers.hpp"

#include <algorithm>
#include <utility>

#include "mscclpp/basic/partition.hpp"
#include "mscclpp/host/base/error.hpp"
#include "mscclpp/host/communicator/communicator.hpp"

namespace mscclpp::kernels {

UserBuffers::UserBuffers(Communicator& communicator, DeviceType where, const Backend& backend,
                         const BufferRequest& request, const PlanMemory& memory, WideProxyService* service) {
  if (!request.copied) {
    registeredInput_ = RegisteredBuffer::tryRegister(communicator, request.input, request.inputBytes);
    if (registeredInput_)
      registeredOutput_ = RegisteredBuffer::tryRegister(communicator, request.output, request.outputBytes);
  }
  if (registeredInput_ && registeredOutput_) {
    input_ = registeredInput_->window();
    output_ = registeredOutput_->window();
  } else {
    registeredInput_.reset();
    const std::size_t outputOffset = roundUp(request.mostInputBytes, 128);
    const std::size_t bytes = request.inPlace ? std::max(request.mostInputBytes, request.mostOutputBytes)
                                              : outputOffset + request.mostOutputBytes;
    staging_ = std::make_unique<SymmetricMemory>(communicator, std::max<std::size_t>(bytes, 1), where);
    for (int rank = 0; rank < staging_->nRanks(); ++rank) {
      const BufferRequest::Offsets offsets = request.inPlace ? request.offsetsInPlace[static_cast<std::size_t>(rank)]
                                                             : BufferRequest::Offsets{0, outputOffset};
      auto* const base = static_cast<std::byte*>(staging_->peer(rank));
      input_.base[rank] = base + offsets.input;
      output_.base[rank] = base + offsets.output;
    }
  }
  if (service == nullptr) return;

  const auto ranks = static_cast<std::size_t>(communicator.bootstrap()->getNranks());
  std::vector<plan::PortMemory> memories(3 * ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const auto add = [&](plan::BufferKind kind, const RegisteredMemory& of, const std::byte* buffer) {
      if (of.size() == 0) return;
      memories[static_cast<std::size_t>(kind) * ranks + rank] = {
          static_cast<std::uint64_t>(buffer - static_cast<const std::byte*>(of.data())), service->addMemory(of)};
    };
    const int number = static_cast<int>(rank);
    add(plan::BufferKind::Scratch, memory.scratch().memory(number),
        memory.args().buffers[static_cast<int>(plan::BufferKind::Scratch)].base[rank]);
    add(plan::BufferKind::Input, isCopied() ? staging_->memory(number) : registeredInput_->memory(number),
        input_.base[rank]);
    add(plan::BufferKind::Output, isCopied() ? staging_->memory(number) : registeredOutput_->memory(number),
        output_.base[rank]);
  }
  portMemories_ = backend.allocate(memories.size() * sizeof(plan::PortMemory));
  backend.upload(portMemories_.get(), memories.data(), memories.size() * sizeof(plan::PortMemory));
}

void UserBuffers::requireAllocated() const {
  if ((registeredInput_ && !registeredInput_->isAllocated()) ||
      (registeredOutput_ && !registeredOutput_->isAllocated())) {
    throw Error(
        "Executor: a buffer that a plan was set up for has been freed, and its address was allocated again: keep the "
        "buffers of plans allocated, or call reset() on all ranks before they are freed",
        ErrorCode::InvalidUsage);
  }
}

}  // namespace mscclpp::kernels
