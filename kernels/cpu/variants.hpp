// Runs a collective on a CPU, in the calling thread.
#pragma once

#include <thread>

#include "kernels/joined_access.hpp"
#include "kernels/kernel_lookup.hpp"
#include "kernels/scaled_source.hpp"
#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels::cpu {

struct Backend {
  template <class T>
  static constexpr bool supports(const Algorithm& algorithm) {
    return algorithm.backends == Backends::CpuAndGpu &&
           (!hasReduction(algorithm.collective) || isCompiledFor<T>(algorithm));
  }
  template <class T>
  static constexpr bool isSpecialized(const Algorithm& algorithm) {
    return hasReduction(algorithm.collective) && algorithm.variants == Variants::Specialized && isCommonType<T> &&
           isPipelined(algorithm.protocol);
  }

  template <class T, std::size_t index, int ranks>
  static int run(const KernelCall& call) {
    constexpr Algorithm algorithm = algorithmTable[index];
    const ArraySource<T> source(static_cast<const T*>(call.input));
    const ArraySink<T> sink(static_cast<T*>(call.output));
    if constexpr (algorithm.collective == CollectiveType::SendReceive) {
      sendReceive<CollectiveOf<index, 0, T>>(call, source, sink);
    } else if constexpr (!hasReduction(algorithm.collective)) {
      using Collective = CollectiveOf<index, 0, T>;
      Collective::run(mscclpp::cpu::SerialGrid(), argsFor<Collective>(call), source, sink);
    } else {
      reduce<T, index, ranks>(call, source, sink);
    }
    return 0;
  }

 private:
  template <class T, std::size_t index, int ranks>
  static void reduce(const KernelCall& call, const ArraySource<T>& source, const ArraySink<T>& sink) {
    if constexpr (isSpecialized<T>(algorithmTable[index])) {
      using Collective = CollectiveOf<index, ranks, T, Sum>;
      if (isPlainSum(call.reduction)) {
        Collective::run(mscclpp::cpu::SerialGrid(), argsFor<Collective>(call), source, sink);
        return;
      }
    }
    using Collective = CollectiveOf<index, 0, T, RuntimeOp>;
    if (call.reduction.factor == nullptr) {
      Collective::run(mscclpp::cpu::SerialGrid(), argsFor<Collective>(call), source, sink);
    } else {
      Collective::run(mscclpp::cpu::SerialGrid(), argsFor<Collective>(call), scaledSource<T>(call), sink);
    }
  }

  /// A transfer both ways needs two blocks that run at once: a message may be longer than the slots.
  template <class Collective, class T>
  static void sendReceive(const KernelCall& call, const ArraySource<T>& source, const ArraySink<T>& sink) {
    const auto args = argsFor<Collective>(call);
    const bool isBothWays = call.destination >= 0 && call.origin >= 0 && call.destination != call.rank;
    if (!isPipelined(Collective::configuration.protocol) || !isBothWays) {
      Collective::run(mscclpp::cpu::SerialGrid(), args, source, sink);
      return;
    }
    const auto runBlock = [&](int block) {
      Collective::run(RenumberedBlock(mscclpp::cpu::SerialGrid(), block, 2), args, source, sink);
    };
    const std::jthread receiver([&] { runBlock(1); });
    runBlock(0);
  }
};

/// The general variants with tracing.
struct TracedBackend {
  template <class T>
  static constexpr bool supports(const Algorithm& algorithm) {
    return algorithm.backends == Backends::CpuAndGpu && isTracedFor<T>(algorithm);
  }
  template <class T>
  static constexpr bool isSpecialized(const Algorithm&) {
    return false;
  }

  template <class T, std::size_t index, int ranks>
  static int run(const KernelCall& call) {
    using Collective = CollectiveOf<index, ranks, T, RuntimeOp>;
    const TracedArgs<typename Collective::Args> args{argsFor<Collective>(call), call.trace};
    const ArraySink<T> sink(static_cast<T*>(call.output));
    if (call.reduction.factor == nullptr) {
      Traced<Collective>::run(mscclpp::cpu::SerialGrid(), args, ArraySource<T>(static_cast<const T*>(call.input)),
                              sink);
    } else {
      Traced<Collective>::run(mscclpp::cpu::SerialGrid(), args, scaledSource<T>(call), sink);
    }
    return 0;
  }
};

/// The general variants for joined calls, of the algorithms that are always selected.
struct JoinedBackend {
  template <class T>
  static constexpr bool supports(const Algorithm& algorithm) {
    return isJoined(algorithm.collective) && isCommonType<T> && isPipelined(algorithm.protocol) &&
           !needsRegistration(algorithm);
  }
  template <class T>
  static constexpr bool isSpecialized(const Algorithm&) {
    return false;
  }

  template <class T, std::size_t index, int ranks>
  static int run(const KernelCall& call) {
    using Collective = CollectiveOf<index, ranks, T, RuntimeOp>;
    Collective::run(mscclpp::cpu::SerialGrid(), argsFor<Collective>(call), joinedSource<T>(call), joinedSink<T>(call));
    return 0;
  }
};

template <class T>
KernelFunction findReduction(std::size_t algorithm, int ranks) {
  return findVariant<Backend, T, true>(algorithm, ranks);
}
template <class T>
KernelFunction findTracedReduction(std::size_t algorithm, int ranks) {
  return findVariant<TracedBackend, T, true>(algorithm, ranks);
}
template <class T>
KernelFunction findJoinedReduction(std::size_t algorithm, int ranks) {
  return findVariant<JoinedBackend, T, true>(algorithm, ranks);
}

}  // namespace mscclpp::kernels::cpu
