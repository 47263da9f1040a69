// Dispatches and combines on a CPU, in the calling thread.
#include "kernels/moe/calls.hpp"
#include "mscclpp/basic/serial_group.hpp"

namespace mscclpp::kernels::cpu {

namespace {

struct Launch {
  static constexpr bool hasSharedMemory = false;

  template <class Collective, class Source, class Sink>
  int operator()(const typename Collective::Args& args, const Source& source, const Sink& sink) const {
    Collective::run(mscclpp::cpu::SerialGrid(), args, source, sink);
    return 0;
  }
};

}  // namespace

int run(const MoeDispatchCall& call) {
  return runMoe(call, Launch{});
}
int run(const MoeCombineCall& call) {
  return runMoe(call, Launch{});
}
int run(const MoeLayoutCall& call) {
  return runMoe(call, Launch{});
}

}  // namespace mscclpp::kernels::cpu
