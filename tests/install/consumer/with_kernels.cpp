// A program that uses the compiled collectives: an all-reduce of the only rank there is.
#include <mscclpp/kernels/collectives.hpp>

int main() {
  using namespace mscclpp;
  const auto bootstrap = std::make_shared<TcpBootstrap>(0, 1);
  bootstrap->initialize(TcpBootstrap::createUniqueId());
  Collectives collectives(std::make_shared<Communicator>(bootstrap), DeviceType::CPU);
  float values[3] = {1, 2, 3};
  collectives.allReduce(values, values, 3, DataType::FLOAT32, ReduceOp::SUM);
  return values[0] == 1 && values[1] == 2 && values[2] == 3 ? 0 : 1;
}
