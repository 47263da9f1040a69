#include "gpu_budget.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/base/process_identity.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

namespace {

/// What a rank tells the others.
struct RankShare {
  mscclpp::detail::Id128 process;
  std::uint64_t budget;  ///< its address
  std::int32_t isConcurrent;
  std::int32_t blocks;
};

}  // namespace

std::shared_ptr<GpuBudget> GpuBudget::of(int device, const std::function<std::shared_ptr<GpuBudget>()>& make) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<GpuBudget>> budgets;
  const std::lock_guard lock(mutex);
  std::weak_ptr<GpuBudget>& known = budgets[device];
  std::shared_ptr<GpuBudget> budget = known.lock();
  if (budget == nullptr) known = budget = make();
  return budget;
}

std::unique_ptr<GpuBudget::Share> GpuBudget::reserve(const std::shared_ptr<GpuBudget>& budget, int blocks) {
  std::unique_ptr<Share> share(new Share(budget));
  const std::lock_guard lock(budget->mutex_);
  budget->grant(*share, blocks);
  return share;
}

void GpuBudget::grant(Share& share, int blocks) {
  const int wanted = concurrentSlots_ + 2 * blocks;
  share.isConcurrent_ = wanted <= slots_ / 2 && wanted + largestChained() <= slots_;
  share.blocks_ = share.isConcurrent_ ? blocks : std::min(blocks, slots_ - concurrentSlots_);
  add(share);
}

void GpuBudget::add(const Share& share) {
  if (share.isConcurrent_) {
    concurrentSlots_ += 2 * share.blocks_;
    ++concurrentObjects_;
  } else {
    chained_.insert(share.blocks_);
  }
}

void GpuBudget::remove(const Share& share) {
  if (share.isConcurrent_) {
    concurrentSlots_ -= 2 * share.blocks_;
    --concurrentObjects_;
  } else {
    chained_.erase(chained_.find(share.blocks_));
  }
}

GpuBudget::Share::~Share() {
  if (!owner_.isCurrent()) return;
  const std::lock_guard lock(budget_->mutex_);
  budget_->remove(*this);
}

void GpuBudget::Share::resize(int blocks) {
  const std::lock_guard lock(budget_->mutex_);
  hasUnchainedCalls_ = hasUnchainedCalls_ || isConcurrent_;
  budget_->remove(*this);
  budget_->grant(*this, blocks);
}

void GpuBudget::Share::chain(int blocks) {
  const std::lock_guard lock(budget_->mutex_);
  budget_->remove(*this);
  blocks_ = std::min(blocks_, blocks);
  isConcurrent_ = false;
  budget_->add(*this);
}

CallOrder::Turn GpuBudget::Share::begin(CUstream_st* stream) {
  if (isConcurrent_) return own_.begin(stream, GraphLaunches::Unordered);
  // Ends at once: this call is none of them.
  if (hasUnchainedCalls_) static_cast<void>(own_.begin(stream, GraphLaunches::Unordered));
  bool isAlone = false;
  {
    const std::lock_guard lock(budget_->mutex_);
    isAlone = budget_->chained_.size() == 1;
  }
  return budget_->chain_.begin(stream, isAlone ? GraphLaunches::Unordered : GraphLaunches::Ordered);
}

KernelStart GpuBudget::Share::start() const {
  if (isConcurrent_) return KernelStart::Early;
  const std::lock_guard lock(budget_->mutex_);
  const bool isAlone = budget_->concurrentObjects_ + budget_->chained_.size() == 1;
  return isAlone ? KernelStart::Early : KernelStart::InOrder;
}

namespace {

/// Reserves on each rank by `reserve`, and makes the shares equal. reserve: returns the share. undo: called on all
/// ranks before an error that they all have.
void agreeOnShare(Bootstrap& bootstrap, const std::string& who, const GpuBudget* budget, int blocks,
                  const std::function<GpuBudget::Share&()>& reserve, const std::function<void()>& undo) {
  GpuBudget::Share* share = nullptr;
  const mscclpp::detail::GroupAgreement agreement(bootstrap, who);
  const auto all = agreement.gather("reserve blocks on its GPU", [&] {
    share = &reserve();
    return RankShare{mscclpp::detail::processId(), reinterpret_cast<std::uintptr_t>(budget),
                     share->isConcurrent() ? 1 : 0, share->blocks()};
  });
  bool isConcurrent = true;
  int fewest = blocks;
  std::map<std::pair<mscclpp::detail::Id128, std::uint64_t>, int> ranks;  // by process and GPU
  std::optional<std::pair<int, int>> sharing;                             // two ranks of a GPU
  for (std::size_t r = 0; r < all.size(); ++r) {
    const RankShare& each = all[r];
    const auto other = ranks.emplace(std::pair(each.process, each.budget), static_cast<int>(r));
    if (!other.second && !sharing) sharing.emplace(other.first->second, static_cast<int>(r));
    isConcurrent = isConcurrent && each.isConcurrent != 0;
    fewest = std::min(fewest, each.blocks);
  }
  if (sharing && !isConcurrent) {
    undo();
    throw Error(who + ": ranks " + std::to_string(sharing->first) + " and " + std::to_string(sharing->second) +
                    " of one process use the same GPU, which has no room for kernels of " + std::to_string(blocks) +
                    " blocks of both: make a GPU of its own current in each, or use fewer blocks",
                ErrorCode::InvalidUsage);
  }
  if (!isConcurrent) share->chain(fewest);
}

}  // namespace

std::unique_ptr<GpuBudget::Share> reserveOnAllRanks(Bootstrap& bootstrap, const std::shared_ptr<GpuBudget>& budget,
                                                    int blocks, const std::string& who) {
  std::unique_ptr<GpuBudget::Share> share;
  agreeOnShare(
      bootstrap, who, budget.get(), blocks,
      [&]() -> GpuBudget::Share& {
        share = GpuBudget::reserve(budget, blocks);
        return *share;
      },
      [] {});
  return share;
}

void resizeOnAllRanks(Bootstrap& bootstrap, GpuBudget::Share& share, int blocks, const std::string& who) {
  // What ranks on one GPU had together fits again once all of them have given up what they have, unless another object
  // takes it meanwhile.
  const int former = share.blocks();
  const auto restore = [&] {
    const mscclpp::detail::GroupAgreement agreement(bootstrap, who);
    const auto resize = [&](int to) {
      agreement.runStep("restore its blocks", [&] {
        share.resize(to);
        if (!share.isConcurrent() || share.blocks() != to) {
          throw Error(who + ": another object has taken the blocks that it had: destroy it on all ranks",
                      ErrorCode::InvalidUsage);
        }
        return std::vector<char>();
      });
    };
    resize(0);
    resize(former);
  };
  agreeOnShare(
      bootstrap, who, share.budget(), blocks,
      [&]() -> GpuBudget::Share& {
        share.resize(blocks);
        return share;
      },
      restore);
}

}  // namespace mscclpp::kernels
