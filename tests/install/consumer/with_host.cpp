// A program that uses the host part: a rendezvous token, and an error of the library's family.
#include <mscclpp/host/base/error.hpp>
#include <mscclpp/host/bootstrap/bootstrap.hpp>

int main() {
  const mscclpp::UniqueId id = mscclpp::TcpBootstrap::createUniqueId();
  if (id == mscclpp::UniqueId{}) return 1;
  try {
    mscclpp::TcpBootstrap(1, 0);  // no such rank
  } catch (const mscclpp::BaseError&) {
    return 0;
  }
  return 1;
}
