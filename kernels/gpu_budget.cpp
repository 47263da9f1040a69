#include "gpu_budget.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "host/base/byte_stream.hpp"
#include "host/bootstrap/group_agreement.hpp"
#include "mscclpp/host/base/error.hpp"

namespace mscclpp::kernels {

namespace {

constexpr mscclpp::detail::WireFormat shareFormat{"share of a GPU's block slots", 0x54475542, 1};

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
  std::unique_ptr<Share> share(new Share(budget, blocks));
  const std::lock_guard lock(budget->mutex_);
  const int wanted = budget->concurrentSlots_ + 2 * blocks;
  share->isConcurrent_ = wanted <= budget->slots_ / 2 && wanted + budget->largestChained() <= budget->slots_;
  if (!share->isConcurrent_) share->blocks_ = std::min(blocks, budget->slots_ - budget->concurrentSlots_);
  budget->add(*share);
  return share;
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

void GpuBudget::Share::chain(int blocks) {
  const std::lock_guard lock(budget_->mutex_);
  budget_->remove(*this);
  blocks_ = std::min(blocks_, blocks);
  isConcurrent_ = false;
  budget_->add(*this);
}

CallChain::Turn GpuBudget::Share::begin(CUstream_st* stream) const {
  if (isConcurrent_) return {};
  {
    const std::lock_guard lock(budget_->mutex_);
    if (budget_->chained_.size() == 1) return {};
  }
  return budget_->chain_.begin(stream);
}

KernelStart GpuBudget::Share::start() const {
  if (isConcurrent_) return KernelStart::Early;
  const std::lock_guard lock(budget_->mutex_);
  const bool isAlone = budget_->concurrentObjects_ + budget_->chained_.size() == 1;
  return isAlone ? KernelStart::Early : KernelStart::InOrder;
}

std::unique_ptr<GpuBudget::Share> reserveOnAllRanks(Bootstrap& bootstrap, const std::shared_ptr<GpuBudget>& budget,
                                                    int blocks) {
  std::unique_ptr<GpuBudget::Share> share;
  const mscclpp::detail::GroupAgreement agreement(bootstrap, "Collectives");
  const auto all = agreement.runStep("reserve blocks on its GPU", [&] {
    share = GpuBudget::reserve(budget, blocks);
    return mscclpp::detail::ByteWriter(shareFormat)
        .put(static_cast<std::uint64_t>(::getpid()))
        .put(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(budget.get())))
        .put(static_cast<std::uint64_t>(share->isConcurrent() ? 1 : 0))
        .put(static_cast<std::uint64_t>(share->blocks()))
        .finish();
  });
  bool isConcurrent = true;
  int fewest = blocks;
  std::map<std::pair<std::uint64_t, std::uint64_t>, int> ranks;  // by process and GPU
  for (const auto& bytes : all) {
    mscclpp::detail::ByteReader reader(bytes, shareFormat);
    const auto process = reader.get<std::uint64_t>();
    const auto rank = static_cast<int>(ranks.size());
    const auto other = ranks.emplace(std::pair(process, reader.get<std::uint64_t>()), rank);
    if (!other.second) {
      throw Error("Collectives: ranks " + std::to_string(other.first->second) + " and " + std::to_string(rank) +
                      " of one process use the same GPU: make a GPU of its own current in each",
                  ErrorCode::InvalidUsage);
    }
    isConcurrent = reader.get<std::uint64_t>() == 1 && isConcurrent;
    fewest = std::min(fewest, static_cast<int>(reader.get<std::uint64_t>()));
    reader.expectEnd();
  }
  if (!isConcurrent) share->chain(fewest);
  return share;
}

}  // namespace mscclpp::kernels
