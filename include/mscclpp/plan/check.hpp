// Proof that a plan is right, before it runs: in a constant expression or at run time.
#pragma once

#include "mscclpp/plan/fault.hpp"
#include "mscclpp/plan/plan.hpp"
#include "mscclpp/plan/simulation.hpp"
#include "mscclpp/plan/structure.hpp"

namespace mscclpp::plan {

namespace detail {

/// The first fault that a simulation finds; in plans with packets also those of each pair that it leaves open.
/// iterations: of the loops, in each call. Takes its steps off the limits.
constexpr Fault checkOrder(const Plan& plan, const std::vector<std::int32_t>& iterations, CheckLimits& limits) {
  Simulation all(plan, iterations, limits);
  if (const Fault fault = all.run(true)) {
    // What is missing in one call may show as something else where ranks go on to the next: a signal of that one makes
    // up for it until blocks wait for each other, or data without a position (setPositions() has seen one call) is
    // transferred; data of that one is there where this call's should be read. As few calls as have a fault tell best.
    if (fault.kind == FaultKind::TooLarge) return fault;
    for (std::int32_t calls = 1; calls < countOf(iterations); ++calls)
      if (const Fault cause = Simulation(plan, {iterations.begin(), iterations.begin() + calls}, limits).run(false))
        return cause;
    return fault;
  }
  limits.steps -= all.steps();
  for (const PiecePair& pair : all.openPairs()) {
    Simulation ofPair(plan, iterations, limits, &pair);
    if (const Fault fault = ofPair.run(true)) return fault;
    limits.steps -= ofPair.steps();
  }
  return {};
}

}  // namespace detail

/// The first fault of a plan; FaultKind::None if it is proven that, for messages of any size and in every execution of
/// any number of successive calls: no access leaves its buffer, no block waits for ever, every read is ordered after
/// the write whose value it is to see, no data is overwritten while somebody may read it (the caller's included, who
/// writes inputs and reads outputs between calls), other ranks' inputs and outputs are accessed during their calls
/// only, all signals are waited for, and all outputs hold what the collective defines. What is assumed of operations is
/// written at OperationKind; docs/plans.md lists what the model does not see. A plan whose check would exceed `limits`
/// gets FaultKind::TooLarge.
///
/// Three calls are simulated: scratch is used by each second or each call in the same way, so that the third relates to
/// those before as every later one does. Loops run once, and three times, on parts of the chunks that are disjoint: the
/// third iteration relates to the second as every later one to its predecessor. All calls have as many iterations;
/// checkMixedIterations() is about others.
/// In constant expressions g++ wants -fconstexpr-ops-limit=... beyond about 8 ranks with 8 blocks each.
constexpr Fault check(const Plan& plan, const CheckLimits& limits = {}) {
  if (const Fault fault = StructureCheck(plan).run()) return fault;
  CheckLimits left = limits;
  if (const Fault fault = detail::checkOrder(plan, {1, 1, 1}, left)) return fault;
  for (const Operation& operation : plan.operations)
    if (operation.kind == OperationKind::LoopBegin) {
      left = limits;
      return detail::checkOrder(plan, {loopIterations, loopIterations, loopIterations}, left);
    }
  return {};
}

/// The first fault of a plan that check() has proven, in calls whose loops run for different numbers of iterations, one
/// after the other with the same scratch. FaultKind::None: any such calls may follow each other. Simulated are the
/// sequences of three calls, with one iteration and with three, which check() leaves out. limits: of all together.
constexpr Fault checkMixedIterations(const Plan& plan, CheckLimits limits = {}) {
  for (int longCalls = 1; longCalls < 7; ++longCalls) {
    std::vector<std::int32_t> iterations;
    for (int call = 0; call < 3; ++call) iterations.push_back((longCalls >> call & 1) != 0 ? loopIterations : 1);
    if (const Fault fault = detail::checkOrder(plan, iterations, limits)) return fault;
  }
  return {};
}

/// Sets Operation::position of all transfers, by following the data. Returns the fault that made it stop, if any;
/// positions of operations that the data did not reach are then left alone.
constexpr Fault setPositions(Plan& plan) {
  if (const Fault fault = StructureCheck(plan).run()) return fault;
  Simulation simulation(plan, {1}, {});
  const Fault fault = simulation.run(false);
  for (std::int32_t i = 0; i < countOf(plan.operations); ++i)
    if (simulation.positions()[i] >= 0) plan.operations[i].position = simulation.positions()[i];
  return fault;
}

}  // namespace mscclpp::plan
