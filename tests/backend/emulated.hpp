// The CPU backend of the device tests: emulated threads in ordinary memory.
#pragma once

#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "mscclpp/basic/wait.hpp"
#include "mscclpp/emulation/launch.hpp"
#include "mscclpp/emulation/symmetric_buffers.hpp"
#include "shape.hpp"

namespace mscclpp::test {

/// Buffers of the same size, one per rank.
class EmulatedBuffers {
 public:
  EmulatedBuffers(int ranks, std::size_t bytes, int initialByte) : bytes_(bytes), buffers_(ranks, bytes, initialByte) {}

  Window<> window() const { return buffers_.window(); }
  void write(int rank, const void* from, std::size_t bytes, std::size_t offset = 0) {
    if (bytes != 0) std::memcpy(buffers_.at(rank) + offset, from, bytes);
  }
  template <class T>
  void write(int rank, const std::vector<T>& from, std::size_t offset = 0) {
    write(rank, from.data(), from.size() * sizeof(T), offset);
  }
  /// The whole buffer, as elements.
  template <class T = std::byte>
  std::vector<T> read(int rank) const {
    std::vector<T> to(bytes_ / sizeof(T));
    if (!to.empty()) std::memcpy(static_cast<void*>(to.data()), buffers_.at(rank), to.size() * sizeof(T));
    return to;
  }

 private:
  std::size_t bytes_;
  emulation::SymmetricBuffers buffers_;
};

/// What the host does during a launch.
using HostTask = std::function<void(WaitControl&)>;

/// Width: lanes per warp.
template <int Width>
class EmulatedBackend {
 public:
  static constexpr bool onGpu = false;
  static constexpr int warpWidth = Width;

  /// Allocates `bytes` bytes per rank, each set to initialByte; readable and writable by all ranks.
  EmulatedBuffers allocate(int ranks, std::size_t bytes, int initialByte) const { return {ranks, bytes, initialByte}; }

  BoundedWait wait(std::uint64_t timeout = waitTimeout) { return {&control_, timeout}; }
  WaitControl* control() { return &control_; }

  /// Runs body(rank, grid) in every thread. Returns the record of the first failed wait, if any.
  template <class Body>
  std::optional<WaitRecord> run(const Shape& shape, const Body& body) {
    launchThreads(shape, body);
    return takeRecord();
  }
  /// The same, with hostTask(control) running concurrently.
  template <class Body>
  std::optional<WaitRecord> run(const Shape& shape, const Body& body, const HostTask& hostTask) {
    {
      const std::jthread hostThread = start(hostTask);
      launchThreads(shape, body);
    }
    return takeRecord();
  }

  /// run(), but throws if a wait fails.
  template <class Body>
  void launch(const Shape& shape, const Body& body) {
    if (const auto record = run(shape, body)) throw std::runtime_error(describe(*record));
  }

 private:
  template <class Body>
  static void launchThreads(const Shape& shape, const Body& body) {
    emulation::launch<Width>(
        {
            .ranks = shape.ranks,
            .blocks = shape.blocks,
            .threads = shape.warps * Width,
            .timeout = std::chrono::seconds(60),  // a failed wait, which says more, comes first
            .sharedBytes = shape.sharedBytes,
        },
        body);
  }
  // Here, not in run(), so that std::thread is instantiated once and not for each body.
  std::jthread start(const HostTask& hostTask) {
    return std::jthread([this, &hostTask] { hostTask(control_); });
  }
  std::optional<WaitRecord> takeRecord() {
    const WaitRecord record = control_.record;
    const bool expired = control_.expired != 0;
    control_ = {};
    return expired ? std::optional(record) : std::nullopt;
  }

  WaitControl control_{};
};

}  // namespace mscclpp::test
