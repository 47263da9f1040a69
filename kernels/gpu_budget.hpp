// The block slots of a GPU, shared by the objects whose kernels wait for other ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "call_order.hpp"
#include "host/base/process_identity.hpp"
#include "mscclpp/basic/launch_shape.hpp"
#include "mscclpp/host/bootstrap/bootstrap.hpp"

namespace mscclpp::kernels {

/// A kernel that waits for other ranks needs all its blocks resident, on all ranks. So kernels of several objects may
/// start in any order only if there is room for all of them at once. The measure is the *slot*, a multiprocessor: every
/// kernel is compiled so that a block of the largest size fits in one (__launch_bounds__), and a block of the long
/// messages' kernels leaves no room for another one. As long as no more blocks than slots are resident, the next block
/// finds a multiprocessor without any.
///
/// An object is *concurrent* if there are slots for its kernel and for the next one in its stream, which may start
/// early, so for twice its blocks, beside all other concurrent objects and the largest chained one. The other objects
/// are *chained*: their calls run one after another, so that they need the slots of the largest of them only.
/// Concurrent objects get at most half of the slots, and chained ones as many blocks as are left: so there is always
/// room for a chained object. Thread-safe.
class GpuBudget {
 public:
  /// slots: at least 4.
  GpuBudget(int slots, StreamEvents& events) : slots_(slots), events_(events), chain_(events) {}
  GpuBudget(const GpuBudget&) = delete;
  GpuBudget& operator=(const GpuBudget&) = delete;

  /// The budget of the GPU, the same for all callers of the process as long as one of them holds it. make: the first.
  static std::shared_ptr<GpuBudget> of(int device, const std::function<std::shared_ptr<GpuBudget>()>& make);

  /// What an object has of the budget, until it is destroyed.
  class Share {
   public:
    ~Share();
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

    const GpuBudget* budget() const noexcept { return budget_.get(); }
    bool isConcurrent() const noexcept { return isConcurrent_; }
    /// The most blocks of its kernels: as many as were asked for or, if it is chained, as there are.
    int blocks() const noexcept { return blocks_; }
    /// Reserves anew, for kernels of up to `blocks` blocks, as if it were destroyed and made again. Its later eager
    /// calls run after its earlier ones; calls that were captured before keep the order that they had then.
    void resize(int blocks);
    /// Makes it a chained one of `blocks` blocks, at most as many as it has: for what other ranks have.
    void chain(int blocks);

    /// Called before a call of this object is enqueued: the call runs after the object's others and, if it is chained,
    /// after those of the other chained objects. Launches of graphs are ordered where there are other chained objects
    /// while the graph is captured.
    [[nodiscard]] CallOrder::Turn begin(CUstream_st* stream);
    /// How its kernels start: those of a chained object in order, as there are no slots for one that starts early. An
    /// object that has the GPU alone needs none.
    KernelStart start() const;

   private:
    friend class GpuBudget;
    explicit Share(std::shared_ptr<GpuBudget> budget) : budget_(std::move(budget)), own_(budget_->events_) {}

    const mscclpp::detail::OwnerProcess owner_;  // a forked child's copy has a copy of the lock
    const std::shared_ptr<GpuBudget> budget_;
    int blocks_ = 0;
    bool isConcurrent_ = false;
    bool hasUnchainedCalls_ = false;  ///< there may be calls in own_ although it is chained
    CallOrder own_;                   ///< of the calls of a concurrent object
  };

  /// A share for an object whose kernels have up to `blocks` blocks.
  static std::unique_ptr<Share> reserve(const std::shared_ptr<GpuBudget>& budget, int blocks);

 private:
  /// Decides what a share that has nothing gets.
  void grant(Share& share, int blocks);
  void add(const Share& share);
  void remove(const Share& share);
  int largestChained() const { return chained_.empty() ? 0 : *chained_.rbegin(); }

  const int slots_;
  StreamEvents& events_;
  mutable std::mutex mutex_;
  int concurrentSlots_ = 0;
  std::size_t concurrentObjects_ = 0;
  std::multiset<int> chained_;  ///< their blocks
  CallOrder chain_;             ///< of the calls of all chained objects
};

/// The same kind of share on all ranks: concurrent if it is on every rank, else chained, with the fewest blocks of any.
/// Called by all ranks; their numbers of blocks may differ, and if the shares are concurrent each has its own. Ranks of
/// one process may be on one GPU if their shares are concurrent: the calls of chained ones would wait for each other.
/// Throws Error(InvalidUsage) on all ranks otherwise. who: begins the messages of errors.
std::unique_ptr<GpuBudget::Share> reserveOnAllRanks(Bootstrap& bootstrap, const std::shared_ptr<GpuBudget>& budget,
                                                    int blocks, const std::string& who);
/// Share::resize() likewise. After an error the shares are what they were.
void resizeOnAllRanks(Bootstrap& bootstrap, GpuBudget::Share& share, int blocks, const std::string& who);

namespace gpu {
/// The multiprocessors of the current GPU. Throws CudaError.
int multiprocessors();
/// The budget of the current GPU. Throws CudaError.
std::shared_ptr<GpuBudget> currentBudget();
}  // namespace gpu

}  // namespace mscclpp::kernels
