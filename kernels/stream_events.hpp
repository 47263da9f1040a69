// Events by which calls on different streams are ordered, in captures of graphs too.
#pragma once

#include <cstdint>
#include <memory>

struct CUstream_st;

namespace mscclpp::kernels {

/// What orders work on streams of the current device. None of the functions waits on the host. They throw CudaError.
class StreamEvents {
 public:
  /// An event that belongs to the device. One that was never recorded counts as complete.
  using Event = std::shared_ptr<void>;

  StreamEvents() = default;
  StreamEvents(const StreamEvents&) = delete;
  StreamEvents& operator=(const StreamEvents&) = delete;
  virtual ~StreamEvents() = default;

  virtual Event make() = 0;
  /// The number of a stream that does not capture (CUDA refuses others), unique in the process: that of a destroyed
  /// stream is not used again.
  virtual std::uint64_t idOf(CUstream_st* stream) = 0;
  /// The number of the capture that the stream is part of, unique in the process; 0: it does not capture.
  virtual std::uint64_t captureOf(CUstream_st* stream) = 0;
  /// Marks the end of what is in the stream now. In a capture: of what has been captured, for wait() in this capture.
  virtual void record(const Event& event, CUstream_st* stream) = 0;
  /// What is enqueued in the stream from now on runs after what the event marks.
  virtual void wait(CUstream_st* stream, const Event& event) = 0;
  /// In a capture only: a node that records the event in each launch of the graph, and one that waits for what the
  /// event marks when the graph is launched.
  virtual void recordInGraph(const Event& event, CUstream_st* stream) = 0;
  virtual void waitInGraph(CUstream_st* stream, const Event& event) = 0;
};

}  // namespace mscclpp::kernels
