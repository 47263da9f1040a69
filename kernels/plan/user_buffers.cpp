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
  std::size_t inputOffset = 0;
  std::size_t outputOffset = 0;
  if (registeredInput_ && registeredOutput_) {
    input_ = registeredInput_->window();
    output_ = registeredOutput_->window();
  } else {
    registeredInput_.reset();
    std::size_t bytes = 0;
    if (request.inPlace) {
      (request.inputBytes < request.outputBytes ? inputOffset : outputOffset) = request.offsetInPlace;
      bytes = std::max(request.mostInputBytes, request.mostOutputBytes);
    } else {
      outputOffset = roundUp(request.mostInputBytes, 128);
      bytes = outputOffset + request.mostOutputBytes;
    }
    staging_ = std::make_unique<SymmetricMemory>(communicator, std::max<std::size_t>(bytes, 1), where);
    for (int rank = 0; rank < staging_->nRanks(); ++rank) {
      // In place, the offset of a rank's part is that of its number.
      const auto at = [&](std::size_t own) {
        const auto number = static_cast<std::size_t>(staging_->rank());
        const std::size_t offset = !request.inPlace || own == 0 ? own : own / number * static_cast<std::size_t>(rank);
        return static_cast<std::byte*>(staging_->peer(rank)) + offset;
      };
      input_.base[rank] = at(inputOffset);
      output_.base[rank] = at(outputOffset);
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
