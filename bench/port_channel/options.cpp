#include "options.hpp"

#include <CLI/CLI.hpp>

#include "trigger_options.hpp"

namespace mscclpp::bench {

namespace {

const NameMap<Measurement> measurements{
    {"ping_pong", Measurement::PingPong}, {"stream", Measurement::Stream}, {"breakdown", Measurement::Breakdown}};
const NameMap<Operation> operations{{"put_with_signal", Operation::PutWithSignal},
                                    {"put_then_signal", Operation::PutThenSignal},
                                    {"signal", Operation::SignalOnly}};

}  // namespace

std::string nameOf(Measurement measure) {
  return nameOfValue(measurements, measure);
}
std::string nameOf(Operation operation) {
  return nameOfValue(operations, operation);
}
std::string nameOf(ReleaseScope releaseScope) {
  return nameOfValue(releaseScopes, releaseScope);
}

bool parse(int argc, char** argv, Options& options, int& code) {
  CLI::App app{"Times a port channel between two ranks: two GPUs, or two CPU processes."};
  const CLI::AsSizeValue bytes(false);
  app.add_option("--device", options.device, "auto, gpu or cpu")->check(CLI::IsMember({"auto", "gpu", "cpu"}));
  app.add_flag("--one-gpu", options.oneGpu, "both ranks on GPU 0");
  addEnumOption(app, "--measure", options.measurements, measurements,
                "ping_pong (one way), stream (puts, then a flush), breakdown (host calls)");
  app.add_option("--sizes", options.sizes, "bytes per message, such as 8,1K,128M")->delimiter(',')->transform(bytes);
  addEnumOption(app, "--operation", options.operations, operations, "put_with_signal, put_then_signal, signal");
  addTriggerOptions(app, "put", options.releaseScopes, options.wide);
  app.add_option("--messages", options.messages, "messages per run; default: by size")
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--repeats", options.repeats, "runs per line; their median is reported")->check(CLI::Range(1, 1000));
  app.add_option("--streams", options.streams, "streams that large copies are striped across")
      ->check(CLI::Range(1, 16));
  app.add_option("--bytes-per-stream", options.bytesPerStream, "minimum bytes per stream")->transform(bytes);
  app.add_option("--fifo-size", options.fifoSize, "slots of the FIFO, a power of two");
  app.add_option("--pops-per-tail-update", options.popsPerTailUpdate, "pops per update of the device's tail");
  app.add_option("--sleep-after", options.sleepAfter, "idle microseconds after which the proxy sleeps; default: never");
  app.add_flag("--numa-local", options.numaLocal, "pin the proxy to the GPU's NUMA node");
  app.add_flag("--no-inline-values{false}", options.inlineValues,
               "send 8 bytes through a copy engine, like larger messages, instead of inline in the request");
  app.add_flag("--json", options.json, "print one line of JSON per case instead of the table");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    code = app.exit(error);
    return false;
  }
  return true;
}

}  // namespace mscclpp::bench
